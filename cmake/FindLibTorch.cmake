# libtorch from the pip wheel of the project's virtual environment: imported target LibTorch::cpu.
# find_package(Torch) is not used: with the CUDA wheel it insists on a CUDA toolkit.
file(GLOB _site "${STRAKE_VENV}/lib/python3*/site-packages")
find_path(LibTorch_ROOT NAMES lib/libtorch_cpu.so PATHS ${_site}/torch NO_DEFAULT_PATH)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_ROOT)
if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
  add_library(LibTorch::c10 SHARED IMPORTED)
  set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION ${LibTorch_ROOT}/lib/libc10.so)
  add_library(LibTorch::cpu SHARED IMPORTED)
  set_target_properties(LibTorch::cpu PROPERTIES IMPORTED_LOCATION ${LibTorch_ROOT}/lib/libtorch_cpu.so)
  # After the system's directories: the wheel also carries headers of fmt and others, in versions of its own.
  target_compile_options(LibTorch::cpu INTERFACE "SHELL:-idirafter \"${LibTorch_ROOT}/include\""
                         "SHELL:-idirafter \"${LibTorch_ROOT}/include/torch/csrc/api/include\"")
  target_compile_definitions(LibTorch::cpu INTERFACE _GLIBCXX_USE_CXX11_ABI=1 AT_PER_OPERATOR_HEADERS)
  target_link_libraries(LibTorch::cpu INTERFACE LibTorch::c10 strake_openmp)
  # libtorch_cpu.so itself needs libcudart and libcupti; it finds them by its own RPATH.
  target_link_options(LibTorch::cpu INTERFACE -Wl,--allow-shlib-undefined)
endif()
