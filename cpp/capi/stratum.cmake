# libjccl.so: what C programs link. Its exported symbols are those of exports.txt, no others.
add_library(jccl_shared SHARED $<TARGET_OBJECTS:jccl_capi>)
target_link_libraries(jccl_shared PRIVATE jccl_master jccl_peer)
if(NOT JCCL_SANITIZE)  # what a sanitizer adds is in the program (clang)
  target_link_options(jccl_shared PRIVATE -Wl,--no-undefined)
endif()
target_link_options(jccl_shared PRIVATE
  -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/capi/exports.map)
set_target_properties(jccl_shared PROPERTIES OUTPUT_NAME jccl
  LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/capi/exports.map)
target_include_directories(jccl_shared INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/include)

if(JCCL_TESTS)
  # A C program that knows jccl.h and nothing else.
  add_executable(c_program_test capi/c_program_test.c)
  target_link_libraries(c_program_test PRIVATE jccl_shared Threads::Threads)
  target_compile_options(c_program_test PRIVATE -std=c99 -pedantic -Wall -Wextra -Werror)
  if(JCCL_SANITIZE)
    target_link_options(c_program_test PRIVATE -fsanitize=${JCCL_SANITIZE})
    set_target_properties(c_program_test PROPERTIES LINKER_LANGUAGE CXX)  # its runtime's second half
  endif()
  add_test(NAME c_program_test COMMAND c_program_test)
  add_test(NAME exports_test COMMAND ${CMAKE_COMMAND}
    -DLIBRARY=$<TARGET_FILE:jccl_shared> -DNM=${CMAKE_NM}
    -DLIST=${CMAKE_CURRENT_SOURCE_DIR}/capi/exports.txt
    -P ${CMAKE_CURRENT_SOURCE_DIR}/capi/exports_test.cmake)
  set_tests_properties(c_program_test exports_test PROPERTIES TIMEOUT 120)
endif()

if(TARGET capi_test)
  # Processes to be stopped and killed.
  add_dependencies(capi_test jccl-stress-peer)
  target_compile_definitions(capi_test PRIVATE
    JCCL_STRESS_PEER="$<TARGET_FILE:jccl-stress-peer>")
  # As net_io_threads_test: those whose values are large, that break, and that share memory.
  add_test(NAME capi_io_threads_test COMMAND capi_test
    "--gtest_filter=*Contract*:Outputs*:Stripes*:Calls*:Join*:Hung*:Teardown*:Cluster*:Tls*:Guard*")
  set_tests_properties(capi_io_threads_test PROPERTIES COST 500 TIMEOUT ${JCCL_TEST_SECONDS_MAX}
    ENVIRONMENT JCCL_TEST_IO_THREADS=1)
endif()
