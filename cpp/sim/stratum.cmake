# jccl-sim: the simulator as a program. It links once both protocol machines are there.
set_target_properties(jccl_sim PROPERTIES JCCL_TEST_CODE ON)
# A failure names the commit it was found at.
set(JCCL_SIM_COMMIT ${CMAKE_CURRENT_BINARY_DIR}/sim_commit.cc)
add_custom_target(jccl_sim_commit BYPRODUCTS ${JCCL_SIM_COMMIT}
  COMMAND ${CMAKE_COMMAND} -DOUT=${JCCL_SIM_COMMIT} -DFROM=${CMAKE_CURRENT_SOURCE_DIR}
          -P ${CMAKE_CURRENT_SOURCE_DIR}/sim/commit.cmake)
add_executable(jccl-sim ${CMAKE_CURRENT_SOURCE_DIR}/sim/main.cc ${JCCL_SIM_COMMIT})
add_dependencies(jccl-sim jccl_sim_commit)
# Its operators new and delete are no business of the code that calls them.
set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/sim/program/pool.cc PROPERTIES
  SKIP_UNITY_BUILD_INCLUSION ON)
if(NOT JCCL_SANITIZE)
  target_sources(jccl-sim PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/sim/program/pool.cc)
endif()
target_link_libraries(jccl-sim PRIVATE jccl_sim Threads::Threads)
if(JCCL_TESTS)
  set(_seeds 200)  # CI has a stage for more
  if(JCCL_SANITIZE)
    set(_seeds 100)
  endif()
  add_test(NAME sim_seeds COMMAND jccl-sim --seeds ${_seeds})
  set_tests_properties(sim_seeds PROPERTIES TIMEOUT ${JCCL_TEST_SECONDS_MAX})
  # Listed seeds run too.
  add_test(NAME sim_rare COMMAND jccl-sim --seeds 1
    --rare ${CMAKE_CURRENT_SOURCE_DIR}/sim/rare_seeds.txt)
  set_tests_properties(sim_rare PROPERTIES TIMEOUT ${JCCL_TEST_SECONDS_MAX}
    PASS_REGULAR_EXPRESSION "(^|\n)([2-9]|[1-9][0-9]+) seeds in.*\n0 seeds broke a promise")
  # A failure names seed and commit, and ends with a small script of it.
  add_test(NAME sim_failure COMMAND jccl-sim --seeds 50 --mutant commit-told-early)
  set_tests_properties(sim_failure PROPERTIES TIMEOUT ${JCCL_TEST_SECONDS_MAX} PASS_REGULAR_EXPRESSION
    "seed [0-9]+, commit [0-9a-f]+.*: P5 broken.*replay: .*faults became .*promise P5.*mutant commit-told-early.*1 seeds broke a promise")
endif()

# jccl-model: all interleavings of the same machines in a small world.
add_library(jccl_model STATIC ${CMAKE_CURRENT_SOURCE_DIR}/sim/model/world.cc
  ${CMAKE_CURRENT_SOURCE_DIR}/sim/model/choices.cc
  ${CMAKE_CURRENT_SOURCE_DIR}/sim/model/state.cc ${CMAKE_CURRENT_SOURCE_DIR}/sim/model/search.cc)
target_link_libraries(jccl_model PUBLIC jccl_sim Threads::Threads)
set_target_properties(jccl_model PROPERTIES JCCL_TEST_CODE ON)
add_executable(jccl-model ${CMAKE_CURRENT_SOURCE_DIR}/sim/model/main.cc)
target_link_libraries(jccl-model PRIVATE jccl_model Threads::Threads)
if(NOT JCCL_SANITIZE)
  target_sources(jccl-model PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/sim/program/pool.cc)
endif()
if(JCCL_TESTS)
  add_executable(model_test ${CMAKE_CURRENT_SOURCE_DIR}/sim/model/model_test.cc)
  target_link_libraries(model_test PRIVATE jccl_model GTest::gtest GTest::gtest_main)
  add_test(NAME model_test COMMAND model_test)
  set_tests_properties(model_test PROPERTIES TIMEOUT ${JCCL_TEST_SECONDS_MAX})
endif()
