# Which commit a recording is of (base/build.h). Read when the build is configured: a new commit
# compiles nothing anew.
execute_process(COMMAND git describe --always --dirty WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
  OUTPUT_VARIABLE _commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT _commit)
  set(_commit unknown)
endif()
set_source_files_properties(base/build.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON
  COMPILE_DEFINITIONS "JCCL_BUILD_VERSION=\"${PROJECT_VERSION}\";JCCL_BUILD_COMMIT=\"${_commit}\"")

if(TARGET base_test)
  set(_sanitized 0)
  if(JCCL_SANITIZE MATCHES "address|thread")
    set(_sanitized 1)
  endif()
  target_compile_definitions(base_test PRIVATE JCCL_TEST_SANITIZED=${_sanitized})
endif()
