# The scenario world is test code: it goes into the test program, not into the library.
if(JCCL_TESTS AND TARGET protocol_test)
  target_compile_definitions(protocol_test PRIVATE
    JCCL_SCENARIOS="${CMAKE_CURRENT_SOURCE_DIR}/protocol/scenarios")
endif()

# The simulator's form of this folder, with bugs to choose from (mutants.h). Nothing else links it.
add_library(jccl_protocol_mutants STATIC EXCLUDE_FROM_ALL ${sources})
target_compile_definitions(jccl_protocol_mutants PUBLIC JCCL_MUTANTS)
target_link_libraries(jccl_protocol_mutants PUBLIC jccl_flags jccl_base jccl_wire)
if(JCCL_TESTS)
  add_test(NAME no_mutant_in_the_product COMMAND ${CMAKE_COMMAND}
    -DLIBRARY=$<TARGET_FILE:jccl_protocol> -DPLANTED=$<TARGET_FILE:jccl_protocol_mutants>
    -DNM=${CMAKE_NM} -P ${CMAKE_CURRENT_SOURCE_DIR}/protocol/no_mutant_test.cmake)
endif()
