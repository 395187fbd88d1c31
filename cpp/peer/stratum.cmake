add_executable(jccl-stress-peer peer/stress_peer_main.cc)
target_link_libraries(jccl-stress-peer PRIVATE jccl_peer)
