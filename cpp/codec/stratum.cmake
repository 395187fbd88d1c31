# One source, three instruction sets. -fopenmp-simd only gives meaning to `#pragma omp simd`.
set(_kernels codec/kernels/kernels_baseline.cc codec/kernels/kernels_v3.cc codec/kernels/kernels_v4.cc)
set_source_files_properties(${_kernels} PROPERTIES COMPILE_OPTIONS "-fopenmp-simd")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(codec/kernels/kernels_v3.cc PROPERTIES
    COMPILE_OPTIONS "-fopenmp-simd;-march=x86-64-v3")
  set_source_files_properties(codec/kernels/kernels_v4.cc PROPERTIES
    COMPILE_OPTIONS "-fopenmp-simd;-march=x86-64-v4;-mprefer-vector-width=512")
endif()
