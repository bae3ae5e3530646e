# Imported targets over the folder of the pinned `torch` wheel.
#
#   LibTorch::cpu    headers, libtorch_cpu, libc10 and the one OpenMP runtime that the wheel carries
#   LibTorch::c10_cuda  streams and memory of a GPU, and the wheel's cudart (only when CUDA is enabled).  libtorch_cuda,
#                    whose loading takes a second, is opened by the program that is asked for a GPU
#   LibTorch::nccl   the wheel's NCCL (only when CUDA is enabled): the same file that libtorch_cuda loads
#
# find_package(Torch) is not used: with a CUDA wheel and no CUDA toolkit it stops the configuration, and it sets
# architecture flags behind our back.  The wheel is that of LIBTORCH_PYTHON: .venv's Python, and under `pip install .` the
# one that pip runs with.

set(LIBTORCH_VERSION_WANTED 2.11.0)
if(SKBUILD)
  set(_python "${Python3_EXECUTABLE}")
  set(_environment_alone -E)  # without the folders that pip adds, and takes away, while it builds
else()
  set(_python "${CMAKE_SOURCE_DIR}/.venv/bin/python")
endif()
set(LIBTORCH_PYTHON "${_python}" CACHE FILEPATH "Python whose site-packages hold the torch wheel")

execute_process(
  COMMAND "${LIBTORCH_PYTHON}" ${_environment_alone} -c
          "import importlib.util as u, os; s = u.find_spec('torch'); print(os.path.dirname(s.origin) if s else '')"
  OUTPUT_VARIABLE LIBTORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT LIBTORCH_DIR)
  message(FATAL_ERROR "The torch wheel was not found by ${LIBTORCH_PYTHON}: expected torch ${LIBTORCH_VERSION_WANTED}; "
                      "run scripts/setup, or pip install torch==${LIBTORCH_VERSION_WANTED} into its environment, or pass "
                      "-DLIBTORCH_PYTHON=/path/to/python of an environment that has it.")
endif()
file(STRINGS "${LIBTORCH_DIR}/version.py" _torch_version_line REGEX "^__version__ = ")
string(REGEX REPLACE "^__version__ = '([^'+]+).*" "\\1" LIBTORCH_VERSION "${_torch_version_line}")
if(NOT LIBTORCH_VERSION VERSION_EQUAL LIBTORCH_VERSION_WANTED)
  message(FATAL_ERROR "The torch wheel in ${LIBTORCH_DIR} is ${LIBTORCH_VERSION}, expected ${LIBTORCH_VERSION_WANTED}: "
                      "run scripts/setup to install the pinned version.")
endif()
message(STATUS "LibTorch ${LIBTORCH_VERSION}: ${LIBTORCH_DIR}")

get_filename_component(LIBTORCH_SITE_PACKAGES "${LIBTORCH_DIR}" DIRECTORY)
set(LIBTORCH_NVIDIA_DIR "${LIBTORCH_SITE_PACKAGES}/nvidia")
file(GLOB _libgomp "${LIBTORCH_DIR}/lib/libgomp*.so*")
if(NOT _libgomp)
  message(FATAL_ERROR "${LIBTORCH_DIR}/lib holds no libgomp: expected the OpenMP runtime of the wheel; reinstall torch.")
endif()
list(GET _libgomp 0 _libgomp)

add_library(LibTorch::c10 SHARED IMPORTED)
set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION "${LIBTORCH_DIR}/lib/libc10.so")

add_library(LibTorch::cpu SHARED IMPORTED)
set_target_properties(LibTorch::cpu PROPERTIES IMPORTED_LOCATION "${LIBTORCH_DIR}/lib/libtorch_cpu.so")
target_include_directories(LibTorch::cpu SYSTEM INTERFACE "${LIBTORCH_DIR}/include"
                                                          "${LIBTORCH_DIR}/include/torch/csrc/api/include")
# Compiling with -fopenmp but linking the wheel's own libgomp keeps a single OpenMP runtime in the process.
target_compile_options(LibTorch::cpu INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
# libtorch_cpu needs CUDA libraries that it finds through its own RPATH; the linker need not resolve them again.
target_link_libraries(LibTorch::cpu INTERFACE LibTorch::c10 "${_libgomp}" "-Wl,--allow-shlib-undefined")

if(CMAKE_CUDA_COMPILER)
  file(GLOB _cudart "${LIBTORCH_NVIDIA_DIR}/cu13/lib/libcudart.so.*")
  if(NOT _cudart)
    message(FATAL_ERROR "${LIBTORCH_NVIDIA_DIR}/cu13/lib holds no libcudart: expected the one that torch was installed with; "
                        "reinstall torch, or pass -DCLOVER_CUDA=OFF.")
  endif()
  list(GET _cudart 0 _cudart)
  add_library(LibTorch::c10_cuda SHARED IMPORTED)
  set_target_properties(LibTorch::c10_cuda PROPERTIES IMPORTED_LOCATION "${LIBTORCH_DIR}/lib/libc10_cuda.so")
  target_include_directories(LibTorch::c10_cuda SYSTEM INTERFACE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  target_link_libraries(LibTorch::c10_cuda INTERFACE LibTorch::c10 "${_cudart}")

  set(_nccl "${LIBTORCH_NVIDIA_DIR}/nccl")
  if(NOT EXISTS "${_nccl}/lib/libnccl.so.2")
    message(FATAL_ERROR "${_nccl} holds no libnccl.so.2: expected the one that torch was installed with; reinstall torch, or pass "
                        "-DCLOVER_CUDA=OFF.")
  endif()
  add_library(LibTorch::nccl SHARED IMPORTED)
  set_target_properties(LibTorch::nccl PROPERTIES IMPORTED_LOCATION "${_nccl}/lib/libnccl.so.2")
  target_include_directories(LibTorch::nccl SYSTEM INTERFACE "${_nccl}/include")
endif()

set(CMAKE_BUILD_RPATH "${LIBTORCH_DIR}/lib;${LIBTORCH_NVIDIA_DIR}/nccl/lib;${LIBTORCH_NVIDIA_DIR}/cu13/lib")
set(LibTorch_FOUND TRUE)
