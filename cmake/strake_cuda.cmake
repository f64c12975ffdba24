# libstrake_cuda.so: strake's own CUDA kernels, opened at run time by --device cuda. Built where there is nvcc; without,
# the program is the same and says what it lacks when it is asked for a GPU.
set(STRAKE_CUDA_ARCHITECTURES "80;90" CACHE STRING "Compute capabilities that libstrake_cuda.so is built for")
option(STRAKE_BUILD_CUDA "Build libstrake_cuda.so where nvcc is found" ON)

if(STRAKE_BUILD_CUDA)
  find_program(STRAKE_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda/bin)
endif()
set(why_not "there is no nvcc")
file(GLOB torch_version "${STRAKE_VENV}/lib/python3*/site-packages/torch/version.py")
if(STRAKE_NVCC AND torch_version)
  # Its runtime must be the one that the wheel's libtorch has.
  execute_process(COMMAND ${STRAKE_NVCC} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
  string(REGEX MATCH "release [0-9]+" nvcc_major "${nvcc_version}")
  file(STRINGS ${torch_version} torch_cuda REGEX "^cuda")
  string(REGEX MATCH "'[0-9]+" torch_major "${torch_cuda}")
  string(REPLACE "release " "" nvcc_major "${nvcc_major}")
  string(REPLACE "'" "" torch_major "${torch_major}")
  if(NOT nvcc_major STREQUAL torch_major)
    set(why_not "${STRAKE_NVCC} is of CUDA ${nvcc_major}, and torch of '${torch_major}'")
    set(STRAKE_NVCC "")
  endif()
endif()
if(NOT STRAKE_BUILD_CUDA OR NOT STRAKE_NVCC)
  message(STATUS "GPU kernels (libstrake_cuda.so): not built, ${why_not}; --device cuda will be refused")
endif()

# strake_cuda_library(<sources>...): by plain commands, as CMake's own CUDA language tests the compiler on every fresh
# configuration and has to know its version.
function(strake_cuda_library)
  if(NOT STRAKE_BUILD_CUDA OR NOT STRAKE_NVCC)
    return()
  endif()
  message(STATUS "GPU kernels (libstrake_cuda.so): ${STRAKE_NVCC} for sm_${STRAKE_CUDA_ARCHITECTURES}")
  set(options -std=c++20 -O3 --expt-relaxed-constexpr -I${PROJECT_SOURCE_DIR}
              -I${PROJECT_SOURCE_DIR}/strake/kernels/cuda/nvcc -Werror=all-warnings
              # Products and sums are fused only where the source says so, as on the CPU.
              -fmad=false
              -Xcompiler=-fPIC,-Wall,-Wextra,-fvisibility=hidden)
  foreach(architecture IN LISTS STRAKE_CUDA_ARCHITECTURES)
    list(APPEND options -gencode arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  list(GET STRAKE_CUDA_ARCHITECTURES -1 newest)  # later devices compile this at start
  list(APPEND options -gencode arch=compute_${newest},code=compute_${newest})
  set(objects)
  foreach(source IN LISTS ARGN)
    cmake_path(GET source STEM stem)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/cuda/${stem}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/cuda
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${STRAKE_NVCC} ${options} -MD -MF ${object}.d
              -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source} DEPFILE ${object}.d VERBATIM
      COMMENT "Building CUDA object ${stem}.o")
    list(APPEND objects ${object})
  endforeach()
  # The CUDA runtime is shared: it must be the one that libtorch has, so that both have one current device.
  set(library ${PROJECT_BINARY_DIR}/libstrake_cuda.so)
  add_custom_command(OUTPUT ${library}
    COMMAND ${STRAKE_NVCC} -shared -cudart=shared ${objects} -o ${library} -Xlinker=--no-undefined
    DEPENDS ${objects} VERBATIM COMMENT "Linking libstrake_cuda.so")
  add_custom_target(strake_cuda ALL DEPENDS ${library})
endfunction()
