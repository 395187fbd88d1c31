# jccl-sim: the simulator as a program. It links once both protocol machines are there.
add_executable(jccl-sim ${CMAKE_CURRENT_SOURCE_DIR}/sim/main.cc)
target_link_libraries(jccl-sim PRIVATE jccl_sim Threads::Threads)
if(JCCL_TESTS)
  add_test(NAME sim_seeds COMMAND jccl-sim --seeds 1000)
  set_tests_properties(sim_seeds PROPERTIES TIMEOUT 300)
endif()
