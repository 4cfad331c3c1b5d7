# CUDA's device, a library that the program loads where one is asked for.
#   LOWKEY_CUDA                AUTO: where nvcc is found, and not for sanitizers; ON; OFF
#   LOWKEY_CUDA_ARCHITECTURES  default with ON: Ampere, Hopper and Blackwell, what the toolkit knows
#                              of them, and a form that later devices' drivers compile; with AUTO
#                              Hopper and that form, which takes half the time to build
# Sets LOWKEY_CUDA_FOUND and LOWKEY_DEVICE_INTERFACE, a digest of the headers that the program and
# the library must share.
set(LOWKEY_CUDA AUTO CACHE STRING "Build CUDA's device: AUTO (where nvcc is found), ON, OFF")
set(LOWKEY_CUDA_ARCHITECTURES "" CACHE STRING "As CMAKE_CUDA_ARCHITECTURES; empty: see LOWKEY_CUDA")
set_property(CACHE LOWKEY_CUDA PROPERTY STRINGS AUTO ON OFF)

set(LOWKEY_CUDA_FOUND FALSE)
if(LOWKEY_CUDA STREQUAL "ON" OR
   (LOWKEY_CUDA STREQUAL "AUTO" AND NOT LOWKEY_SANITIZE AND NOT LOWKEY_FUZZ))
  if(LOWKEY_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${LOWKEY_CUDA_ARCHITECTURES})
  else()
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  # Both by the environment, for a compiler that is named is not tried: one that is found may not
  # work, and that of CMake's default architectures may be none that CUDA 13 still has.
  if(NOT DEFINED ENV{CUDACXX})
    find_program(LOWKEY_NVCC nvcc HINTS /usr/local/cuda/bin)
    if(LOWKEY_NVCC)
      set(ENV{CUDACXX} ${LOWKEY_NVCC})
    endif()
  endif()
  if(NOT DEFINED ENV{CUDAARCHS})
    set(ENV{CUDAARCHS} 90)
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    if(NOT TARGET CUDA::nvToolsExt)  # CMake 3.25 sets a property of it, and CUDA 13 has it no more
      add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
    endif()
    find_package(CUDAToolkit 12.0)
    if(CUDAToolkit_FOUND AND TARGET CUDA::cudart_static AND TARGET CUDA::cublasLt)
      set(LOWKEY_CUDA_FOUND TRUE)
    endif()
  endif()
  if(LOWKEY_CUDA STREQUAL "ON" AND NOT LOWKEY_CUDA_FOUND)
    message(FATAL_ERROR "LOWKEY_CUDA=ON needs an nvcc that works (CUDACXX, PATH, "
                        "/usr/local/cuda/bin) and cuBLAS, both of CUDA 12 or later")
  endif()
endif()

if(LOWKEY_CUDA_FOUND)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  if(LOWKEY_CUDA STREQUAL "ON" AND NOT LOWKEY_CUDA_ARCHITECTURES)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
    else()
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
    endif()
  endif()
  message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
else()
  message(STATUS "Without CUDA's device (LOWKEY_CUDA=${LOWKEY_CUDA})")
endif()

file(GLOB interface_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/engine/kernels/device/*.h)
list(APPEND interface_headers
  ${PROJECT_SOURCE_DIR}/engine/base/buffer.h ${PROJECT_SOURCE_DIR}/engine/base/dtype.h
  ${PROJECT_SOURCE_DIR}/engine/base/tensor.h ${PROJECT_SOURCE_DIR}/engine/kernels/kernels.h
  ${PROJECT_SOURCE_DIR}/engine/kernels/cuda/entry.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${interface_headers})
set(interface "${PROJECT_VERSION}")
foreach(header IN LISTS interface_headers)
  file(SHA256 ${header} digest)
  string(APPEND interface ${digest})
endforeach()
string(SHA256 LOWKEY_DEVICE_INTERFACE "${interface}")
