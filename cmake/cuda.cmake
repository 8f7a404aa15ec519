# Sets LSM_BUILDS_CUDA: whether GPU code is compiled, for compute capability 8.0, 9.0 and (CUDA 12.8
# and newer) 10.0 unless CMAKE_CUDA_ARCHITECTURES says otherwise.
include(CheckLanguage)

set(LSM_BUILDS_CUDA FALSE)
if(LSM_CUDA STREQUAL "OFF")
  return()
endif()

# GPU code takes minutes to compile, and torch decides whether it can be used. pip hides the packages
# of its environment from a build by PYTHON* variables, which -E ignores. A torch that is installed
# after this package speaks neither for GPU code nor against it.
if(NOT LSM_CUDA STREQUAL "ON")
  foreach(sight IN ITEMS "" -E)
    execute_process(
      COMMAND ${Python_EXECUTABLE} ${sight} -c "import importlib.util as u, pathlib as p, re\n\
spec = u.find_spec('torch')\n\
text = p.Path(spec.origin).with_name('version.py').read_text() if spec else ''\n\
print('host' if re.search(r'^cuda.*= None$', text, re.M) else 'cuda' if spec else 'none')"
      OUTPUT_VARIABLE LSM_TORCH_BUILD OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT LSM_TORCH_BUILD STREQUAL "none")
      break()
    endif()
  endforeach()
  if(LSM_TORCH_BUILD STREQUAL "host")
    message(STATUS "torch was built without CUDA: building without GPU code (LSM_CUDA=ON builds it)")
    return()
  endif()
endif()

check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  find_package(CUDAToolkit 12.4)
endif()
if(NOT CUDAToolkit_FOUND)
  if(LSM_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LSM_CUDA=ON, but no nvcc of CUDA 12.4 or newer was found (set CUDACXX)")
  endif()
  message(STATUS "no nvcc of CUDA 12.4 or newer: building without GPU code")
  return()
endif()

if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90)
  if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
    list(APPEND CMAKE_CUDA_ARCHITECTURES 100)
  endif()
endif()

# CMake 3.25.1 has no flag for C++20 of nvcc 13, and nvcc refuses host compilers newer than those of its
# time. Both would end this configuration, so a small project tries first, once.
set(LSM_CUDA_PAIR "CMake ${CMAKE_VERSION}, nvcc ${CUDAToolkit_VERSION}, ${CMAKE_CUDA_ARCHITECTURES}")
if(NOT LSM_CUDA_WORKS STREQUAL LSM_CUDA_PAIR)
  set(probe ${CMAKE_BINARY_DIR}/cuda_probe)
  file(REMOVE_RECURSE ${probe})
  file(WRITE ${probe}/settings.cmake "")
  foreach(name IN ITEMS COMPILER ARCHITECTURES HOST_COMPILER FLAGS)
    if(CMAKE_CUDA_${name})
      file(APPEND ${probe}/settings.cmake
           "set(CMAKE_CUDA_${name} [[${CMAKE_CUDA_${name}}]] CACHE STRING \"\")\n")
    endif()
  endforeach()
  execute_process(
    COMMAND ${CMAKE_COMMAND} -G ${CMAKE_GENERATOR} -DCMAKE_MAKE_PROGRAM=${CMAKE_MAKE_PROGRAM}
            -C ${probe}/settings.cmake -S ${CMAKE_CURRENT_LIST_DIR}/cuda_probe -B ${probe}
    RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT failed)
    execute_process(COMMAND ${CMAKE_COMMAND} --build ${probe}
                    RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  endif()
  if(failed)
    set(reason "CMake ${CMAKE_VERSION} and nvcc ${CUDAToolkit_VERSION} cannot compile GPU code together")
    set(remedy "a newer CMake (pip install cmake) or another nvcc (CUDACXX) may")
    if(LSM_CUDA STREQUAL "ON")
      message(FATAL_ERROR "LSM_CUDA=ON, but ${reason}; ${remedy}:\n${output}")
    endif()
    file(WRITE ${probe}/output.txt "${output}")
    message(STATUS "${reason}: building without GPU code; ${remedy} (${probe}/output.txt)")
    return()
  endif()
  set(LSM_CUDA_WORKS ${LSM_CUDA_PAIR} CACHE INTERNAL "Tools that have compiled GPU code here")
endif()

set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
enable_language(CUDA)
set(LSM_BUILDS_CUDA TRUE)
message(STATUS "GPU code: CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
