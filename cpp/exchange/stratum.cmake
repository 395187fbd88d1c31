# The simulator's form of this folder, with bugs to choose from (base/planted.h), as protocol's.
if(JCCL_PLANTED)
  add_library(jccl_exchange_mutants INTERFACE)
  target_link_libraries(jccl_exchange_mutants INTERFACE jccl_exchange)
else()
  add_library(jccl_exchange_mutants STATIC EXCLUDE_FROM_ALL ${sources})
  target_compile_definitions(jccl_exchange_mutants PUBLIC JCCL_PLANTED_BUGS)
  target_link_libraries(jccl_exchange_mutants PUBLIC jccl_flags jccl_base jccl_wire jccl_codec
    jccl_collective jccl_snapshot)
endif()
