# Asio's fences are only warned about under ThreadSanitizer; its locks are what orders memory.
if(JCCL_SANITIZE MATCHES "thread")
  target_compile_options(jccl_net PRIVATE -Wno-tsan)
endif()
