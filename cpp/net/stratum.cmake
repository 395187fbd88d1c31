# Asio's fences are only warned about under ThreadSanitizer; its locks are what orders memory.
if(JCCL_SANITIZE MATCHES "thread")
  target_compile_options(jccl_net PRIVATE -Wno-tsan)
endif()
# The kernel's <linux/tcp.h>, which knows more than glibc's, stands no other beside it.
set_source_files_properties(net/socket/tune.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

if(TARGET net_test)
  # Once more with other threads that move what is large; by themselves they begin where cores abound.
  add_test(NAME net_io_threads_test COMMAND net_test --gtest_filter=*Link*)
  set_tests_properties(net_io_threads_test PROPERTIES TIMEOUT ${JCCL_TEST_SECONDS_MAX}
    ENVIRONMENT JCCL_TEST_IO_THREADS=1)
endif()
