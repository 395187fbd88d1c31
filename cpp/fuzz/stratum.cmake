# jccl-fuzz-replay runs the stored inputs in any build but one: what counts branches for libFuzzer
# links with libFuzzer or with a sanitizer. With JCCL_FUZZ (clang) there is one libFuzzer program
# per target.
option(JCCL_FUZZ_PLAIN "Compile the fuzz targets without optimisation" ON)
if(NOT JCCL_FUZZ AND JCCL_FUZZ_PLAIN)
  set_target_properties(jccl_fuzz PROPERTIES JCCL_PLAIN ON)
endif()
if(NOT JCCL_FUZZ OR JCCL_SANITIZE)
  add_executable(jccl-fuzz-replay fuzz/replay_main.cc)
  target_link_libraries(jccl-fuzz-replay PRIVATE jccl_fuzz)
endif()
if(JCCL_TESTS)
  add_test(NAME fuzz_corpora
    COMMAND jccl-fuzz-replay --others ${CMAKE_CURRENT_SOURCE_DIR}/../tests/data/fuzz)
  add_test(NAME fuzz_reached
    COMMAND jccl-fuzz-replay --reached ${CMAKE_CURRENT_SOURCE_DIR}/../tests/data/fuzz)
  set_tests_properties(fuzz_corpora fuzz_reached PROPERTIES TIMEOUT ${JCCL_TEST_SECONDS_MAX})
endif()
if(JCCL_FUZZ)
  file(STRINGS fuzz/targets.cc _rows REGEX "run_[a-z]+,")
  string(REGEX MATCHALL "run_[a-z]+" _runs "${_rows}")
  list(TRANSFORM _runs REPLACE "run_" "")
  foreach(_target ${_runs})
    add_executable(fuzz_${_target} fuzz/libfuzzer_main.cc)
    target_link_libraries(fuzz_${_target} PRIVATE jccl_fuzz)
    target_link_options(fuzz_${_target} PRIVATE -fsanitize=fuzzer)
    target_compile_definitions(fuzz_${_target} PRIVATE JCCL_FUZZ_TARGET="${_target}")
  endforeach()
endif()
