# Sets LSM_BUILDS_CUDA: whether GPU code is compiled, for compute capability 8.0, 9.0 and (CUDA 12.8
# and newer) 10.0 unless CMAKE_CUDA_ARCHITECTURES says otherwise.
include(CheckLanguage)

set(LSM_BUILDS_CUDA FALSE)
if(LSM_CUDA STREQUAL "OFF")
  return()
endif()

# GPU code takes minutes to compile, and torch decides whether it can be used. A torch that is not
# there, as in an isolated build, speaks neither for it nor against it.
if(NOT LSM_CUDA STREQUAL "ON")
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "import importlib.util as u, pathlib as p, re\n\
spec = u.find_spec('torch')\n\
text = p.Path(spec.origin).with_name('version.py').read_text() if spec else ''\n\
print('host' if re.search(r'^cuda.*= None$', text, re.M) else 'any')"
    OUTPUT_VARIABLE LSM_TORCH_BUILD OUTPUT_STRIP_TRAILING_WHITESPACE)
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
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
enable_language(CUDA)
set(LSM_BUILDS_CUDA TRUE)
message(STATUS "GPU code: CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
