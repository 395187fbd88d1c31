# Master and members of an attacked run as processes (tests/attack).
add_executable(jccl-attack attack/attack_main.cc)
target_link_libraries(jccl-attack PRIVATE jccl_attack)
