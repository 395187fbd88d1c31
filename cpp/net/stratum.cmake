# Asio's fences are only warned about under ThreadSanitizer; its locks are what orders memory.
if(JCCL_SANITIZE MATCHES "thread")
  target_compile_options(jccl_net PRIVATE -Wno-tsan)
endif()
# The kernel's <linux/tcp.h>, which knows more than glibc's, stands no other beside it.
set_source_files_properties(net/tune.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
