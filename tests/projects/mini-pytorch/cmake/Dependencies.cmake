# Which libraries the build takes.
if(NOT INTERN_BUILD_MOBILE)
  set(BLAS "MKL" CACHE STRING "Which BLAS to use")
else()
  set(BLAS "Eigen" CACHE STRING "Which BLAS to use")
endif()
set_property(CACHE BLAS PROPERTY STRINGS "ATLAS;BLIS;Eigen;Generic;MKL;OpenBLAS;vecLib")

if(USE_CUDA)
  find_package(CUDAToolkit)
  if(CUDAToolkit_FOUND)
    enable_language(CUDA)
    if((NOT DEFINED TORCH_CUDA_ARCH_LIST) AND (DEFINED ENV{TORCH_CUDA_ARCH_LIST}))
      set(TORCH_CUDA_ARCH_LIST $ENV{TORCH_CUDA_ARCH_LIST})
    endif()
    message(STATUS "architectures: ${TORCH_CUDA_ARCH_LIST}")
  else()
    set(USE_CUDA OFF)
  endif()
endif()

# The tree decides this by itself.
set(BUILD_GMOCK ON CACHE BOOL "Make the mocks." FORCE)
