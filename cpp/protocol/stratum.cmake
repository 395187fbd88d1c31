# `State` is the master's in some of these files, the peer's in others, and nobody's in the rest.
foreach(_side master peer)
  file(GLOB _files ${CMAKE_CURRENT_SOURCE_DIR}/protocol/*/${_side}_*.cc)
  set_source_files_properties(${_files} PROPERTIES UNITY_GROUP ${_side})
endforeach()
file(GLOB_RECURSE _files ${CMAKE_CURRENT_SOURCE_DIR}/protocol/*.cc)
list(FILTER _files EXCLUDE REGEX "/(master|peer)_[a-z_]*\\.cc$")
set_source_files_properties(${_files} PROPERTIES UNITY_GROUP rest)
set_target_properties(jccl_protocol PROPERTIES UNITY_BUILD_MODE GROUP)

# The scenario world is test code: it goes into the test program, not into the library.
if(JCCL_TESTS AND TARGET protocol_test)
  target_compile_definitions(protocol_test PRIVATE
    JCCL_SCENARIOS="${CMAKE_CURRENT_SOURCE_DIR}/protocol/scenarios")
endif()

# The simulator's form of this folder, with bugs to choose from (base/planted.h). Nothing else links
# it, but where all folders have bugs: a bug that nobody chooses does nothing.
if(JCCL_PLANTED)
  add_library(jccl_protocol_mutants INTERFACE)
  target_link_libraries(jccl_protocol_mutants INTERFACE jccl_protocol)
else()
  add_library(jccl_protocol_mutants STATIC EXCLUDE_FROM_ALL ${sources}
    ${CMAKE_CURRENT_SOURCE_DIR}/base/planted.cc)
  target_compile_definitions(jccl_protocol_mutants PUBLIC JCCL_PLANTED_BUGS)
  target_link_libraries(jccl_protocol_mutants PUBLIC jccl_flags jccl_base jccl_wire)
  set_target_properties(jccl_protocol_mutants PROPERTIES UNITY_BUILD_MODE GROUP)
endif()
