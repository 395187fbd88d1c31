# What compiler and linker can do against mistakes that get through: checked copies
# (_FORTIFY_SOURCE), guarded stacks, no writable relocations after start, no executable stack,
# programs at random addresses, and control flow that lands where it may (CET, BTI). As a library
# without sources (jccl_hardening), part of jccl_flags; tests/python/test_hardening.py reads the
# built files. Sanitizers check more than _FORTIFY_SOURCE and don't see through its calls, so a
# sanitized build has none, and neither has what is not optimised (glibc warns then).
include(CheckCXXSourceCompiles)
include(CheckCXXCompilerFlag)
include(CheckPIESupported)
include(CMakePushCheckState)

check_pie_supported(LANGUAGES C CXX)  # CMAKE_POSITION_INDEPENDENT_CODE links programs with -pie
define_property(TARGET PROPERTY JCCL_PLAIN BRIEF_DOCS "Compiled longer than run: no optimisation")
set(_plain $<BOOL:$<TARGET_PROPERTY:JCCL_PLAIN>>)

add_library(jccl_hardening INTERFACE)
target_compile_options(jccl_hardening INTERFACE -fstack-protector-strong)
target_link_options(jccl_hardening INTERFACE
  -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(_branches -fcf-protection=full)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(_branches -mbranch-protection=standard)
endif()
if(DEFINED _branches)
  check_cxx_compiler_flag(${_branches} JCCL_HAS_BRANCH_PROTECTION)
  if(JCCL_HAS_BRANCH_PROTECTION)
    target_compile_options(jccl_hardening INTERFACE ${_branches})
  endif()
endif()

# Level 3 knows sizes that are computed; glibc below 2.34 or an older compiler has 2.
if(NOT JCCL_SANITIZE AND NOT CMAKE_BUILD_TYPE STREQUAL Debug)
  cmake_push_check_state(RESET)
  set(CMAKE_REQUIRED_FLAGS "-O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
  check_cxx_source_compiles("#include <cstring>
    static_assert(__USE_FORTIFY_LEVEL == 3);
    int main() { return 0; }" JCCL_HAS_FORTIFY_3)
  cmake_pop_check_state()
  set(_level $<IF:$<BOOL:${JCCL_HAS_FORTIFY_3}>,3,2>)
  # First undefined: some distributions' compilers come with a level of their own.
  target_compile_options(jccl_hardening INTERFACE
    $<$<NOT:${_plain}>:-U_FORTIFY_SOURCE> $<$<NOT:${_plain}>:-D_FORTIFY_SOURCE=${_level}>)
endif()
