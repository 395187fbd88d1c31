# The scenario world is test code: it goes into the test program, not into the library.
if(JCCL_TESTS AND TARGET protocol_test)
  target_compile_definitions(protocol_test PRIVATE
    JCCL_SCENARIOS="${CMAKE_CURRENT_SOURCE_DIR}/protocol/scenarios")
endif()
