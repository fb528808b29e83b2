# CUDA: found by itself under PATH or /usr/local/cuda; without it everything else is built.
#   BZ_CUDA        ON when nvcc is found
#   BZ_CUDA_ARCHS  "90a" (what CI builds); "80;89;90a;100;120" for every target (./dev build --arch all)
find_program(BZ_NVCC nvcc HINTS /usr/local/cuda/bin)
if(BZ_NVCC)
  option(BZ_CUDA "Build the CUDA backend" ON)
else()
  option(BZ_CUDA "Build the CUDA backend" OFF)
endif()
set(BZ_CUDA_ARCHS "90a" CACHE STRING "GPU architectures to build for")

if(BZ_CUDA)
  set(CMAKE_CUDA_COMPILER ${BZ_NVCC} CACHE FILEPATH "nvcc")
  set(CMAKE_CUDA_ARCHITECTURES ${BZ_CUDA_ARCHS})
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # CMake 3.25 does not know that nvcc 12 and later has it
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  find_package(CUDAToolkit REQUIRED)
  # Its types alone: the library is found at run time, or done without (ops/cuda/cublas_lt.h).
  find_path(BZ_CUBLASLT_INCLUDE cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(NOT BZ_CUBLASLT_INCLUDE)
    message(FATAL_ERROR "CUDA backend: no cublasLt.h in ${CUDAToolkit_INCLUDE_DIRS}; install the toolkit's cuBLAS headers "
                        "(package libcublas-dev), or configure with -DBZ_CUDA=OFF")
  endif()
  # --expt-relaxed-constexpr: kv/slot.h is constexpr and runs on the device (PAD-2). Werror for host code comes from
  # bz_flags; here for what nvcc itself warns about.
  set(BZ_CUDA_FLAGS --expt-relaxed-constexpr -lineinfo -Werror=all-warnings -Xcudafe=--display_error_number
      -diag-suppress=20012)
  message(STATUS "CUDA backend: ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${BZ_CUDA_ARCHS}")
else()
  message(STATUS "CUDA backend: off")
endif()

# bz_add_cuda(target SOURCES *.cu): adds CUDA sources and the runtime (static: a machine without a driver starts).
function(bz_add_cuda target)
  cmake_parse_arguments(C "" "" "SOURCES" ${ARGN})
  target_sources(${target} PRIVATE ${C_SOURCES})
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${BZ_CUDA_FLAGS}>")
  target_compile_definitions(${target} PUBLIC BZ_CUDA=1)
  target_link_libraries(${target} PUBLIC CUDA::cudart_static)
endfunction()
