# Writes OUT: the commit this is built from, or "unknown". Run at every build.
execute_process(COMMAND git describe --always --dirty WORKING_DIRECTORY ${FROM}
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
set(text "extern const char* const jccl_sim_commit;\nconst char* const jccl_sim_commit = \"${commit}\";\n")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT "${before}" STREQUAL "${text}")
  file(WRITE ${OUT} "${text}")
endif()
