# One source, three instruction sets. -fopenmp-simd only gives meaning to `#pragma omp simd`.
set(_loops collective/kernels/loops_baseline.cc collective/kernels/loops_v3.cc collective/kernels/loops_v4.cc
  collective/kernels/ranks_baseline.cc collective/kernels/ranks_v3.cc collective/kernels/ranks_v4.cc)
set_source_files_properties(${_loops} PROPERTIES COMPILE_OPTIONS "-fopenmp-simd")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(collective/kernels/loops_v3.cc collective/kernels/ranks_v3.cc PROPERTIES
    COMPILE_OPTIONS "-fopenmp-simd;-march=x86-64-v3")
  set_source_files_properties(collective/kernels/loops_v4.cc collective/kernels/ranks_v4.cc PROPERTIES
    COMPILE_OPTIONS "-fopenmp-simd;-march=x86-64-v4;-mprefer-vector-width=512")
endif()
