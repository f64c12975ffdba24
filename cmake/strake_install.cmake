# cmake --install: the program, and what a C++ program needs that scores with strake::inference.
include(CMakePackageConfigHelpers)

set(modules core tokenizers kernels tensors models inference)
set(targets ${modules})
list(TRANSFORM targets PREPEND strake_)
install(TARGETS ${targets} strake_openmp EXPORT strakeTargets ARCHIVE DESTINATION lib)
install(EXPORT strakeTargets NAMESPACE strake:: DESTINATION lib/cmake/strake)
foreach(module IN LISTS modules)
  set_target_properties(strake_${module} PROPERTIES EXPORT_NAME ${module})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/strake/${module}/ DESTINATION include/strake/${module}
          FILES_MATCHING PATTERN "*.h" PATTERN "test_*.h" EXCLUDE)
endforeach()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/strakeConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/package/strakeConfig.cmake
                              INSTALL_DESTINATION lib/cmake/strake)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/strakeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/strakeConfig.cmake
              ${PROJECT_BINARY_DIR}/package/strakeConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake
        DESTINATION lib/cmake/strake)

# The wheels stay where they are, and what is inside the project is in no RPATH of its own accord.
set_target_properties(strake PROPERTIES
  INSTALL_RPATH "$<TARGET_FILE_DIR:ArrowWheel::arrow>;$<TARGET_FILE_DIR:LibTorch::cpu>" INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS strake RUNTIME DESTINATION bin)
if(TARGET strake_cuda)  # which the program looks for beside itself
  install(FILES ${PROJECT_BINARY_DIR}/libstrake_cuda.so DESTINATION bin)
endif()
