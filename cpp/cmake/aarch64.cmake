# Cross-compiles for Linux on aarch64; what it builds runs under qemu-user (.ci/aarch64, which also
# makes the folder of libraries).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

get_filename_component(_root ${CMAKE_CURRENT_LIST_DIR}/../../build/aarch64-root ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH ${_root})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CXX_FLAGS_INIT "-isystem ${_root}/usr/include/aarch64-linux-gnu")
set(CMAKE_C_FLAGS_INIT ${CMAKE_CXX_FLAGS_INIT})
# Where the libraries find each other.
set(CMAKE_EXE_LINKER_FLAGS_INIT
  "-Wl,-rpath-link,${_root}/usr/lib/aarch64-linux-gnu")
set(CMAKE_SHARED_LINKER_FLAGS_INIT ${CMAKE_EXE_LINKER_FLAGS_INIT})
set(CMAKE_CROSSCOMPILING_EMULATOR
  "qemu-aarch64;-L;/usr/aarch64-linux-gnu;-E;LD_LIBRARY_PATH=/usr/aarch64-linux-gnu/lib:${_root}/usr/lib/aarch64-linux-gnu")
