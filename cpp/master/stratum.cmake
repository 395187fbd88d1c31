# The master as a program. Its tests start it, kill it, and start it again.
add_executable(jccl-master master/main.cc)
target_link_libraries(jccl-master PRIVATE jccl_master)
if(JCCL_STATIC)
  target_link_options(jccl-master PRIVATE -static)
endif()
if(JCCL_TESTS)
  # The same program with failpoints that JCCL_FAIL arms.
  add_executable(jccl-failing-master master/main.cc master/failing_main.cc)
  target_link_libraries(jccl-failing-master PRIVATE jccl_master)
endif()
if(TARGET master_test)
  add_dependencies(master_test jccl-master)
  target_compile_definitions(master_test PRIVATE
    JCCL_MASTER_PROGRAM="$<TARGET_FILE:jccl-master>")
  # A program by itself: it defines anew the C library's calls that change files.
  set(_power ${CMAKE_CURRENT_SOURCE_DIR}/master/power_cut)
  add_executable(power_cut_test ${_power}/disk.cc ${_power}/recorder.cc ${_power}/power_cut_test.cc)
  target_link_libraries(power_cut_test PRIVATE jccl_master GTest::gtest GTest::gtest_main
    ${CMAKE_DL_LIBS})
  set_target_properties(power_cut_test PROPERTIES JCCL_TEST_CODE ON JCCL_PLAIN ON)
  add_test(NAME power_cut_test COMMAND power_cut_test)
  set_tests_properties(power_cut_test PROPERTIES TIMEOUT ${JCCL_TEST_SECONDS_MAX})
endif()
