# The master as a program. Its tests start it, kill it, and start it again.
add_executable(jccl-master master/main.cc)
target_link_libraries(jccl-master PRIVATE jccl_master)
if(JCCL_TESTS)
  # The same program with failpoints that JCCL_FAIL arms.
  add_executable(jccl-failing-master master/main.cc master/failing_main.cc)
  target_link_libraries(jccl-failing-master PRIVATE jccl_master)
endif()
if(TARGET master_test)
  add_dependencies(master_test jccl-master)
  target_compile_definitions(master_test PRIVATE
    JCCL_MASTER_PROGRAM="$<TARGET_FILE:jccl-master>")
endif()
