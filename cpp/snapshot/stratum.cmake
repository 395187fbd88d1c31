# One source, three instruction sets.
target_include_directories(jccl_snapshot SYSTEM PRIVATE ${XXHASH_INCLUDE_DIR})
set_source_files_properties(snapshot/xxh3_baseline.cc snapshot/mark_baseline.cc PROPERTIES
  COMPILE_OPTIONS "-O3")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(snapshot/xxh3_v3.cc PROPERTIES
    COMPILE_OPTIONS "-O3;-march=x86-64-v3")
  set_source_files_properties(snapshot/xxh3_v4.cc PROPERTIES
    COMPILE_OPTIONS "-O3;-march=x86-64-v4;-mprefer-vector-width=512;-Wno-maybe-uninitialized;-Wno-uninitialized;-Wno-unknown-warning-option")  # gcc 12's intrinsics
  set_source_files_properties(snapshot/mark_v3.cc PROPERTIES
    COMPILE_OPTIONS "-O3;-march=x86-64-v3")
  set_source_files_properties(snapshot/mark_v4.cc PROPERTIES
    COMPILE_OPTIONS "-O3;-march=x86-64-v4;-mprefer-vector-width=512")
endif()
