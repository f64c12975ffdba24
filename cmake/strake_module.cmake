# strake_module(<name> SOURCES ... [TESTS ...] [DEPENDS modules...] [LINKS libs...] [PRIVATE_LINKS libs...])
# One folder = one static library strake::<name> = one entry in the dependency graph that tools/check_layers.py checks.
# The TESTS are one program, <name>_tests; foo_test.cpp becomes the ctest "<name>.foo_test".
function(strake_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;TESTS;DEPENDS;LINKS;PRIVATE_LINKS")
  add_library(strake_${name} STATIC ${arg_SOURCES})
  add_library(strake::${name} ALIAS strake_${name})
  list(TRANSFORM arg_DEPENDS PREPEND strake::)
  target_include_directories(strake_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                             $<INSTALL_INTERFACE:include>)
  target_compile_features(strake_${name} PUBLIC cxx_std_20)
  target_link_libraries(strake_${name} PUBLIC ${arg_DEPENDS} ${arg_LINKS} PRIVATE $<BUILD_INTERFACE:strake_warnings>
                        ${arg_PRIVATE_LINKS})
  if(STRAKE_BUILD_TESTS AND arg_TESTS)
    add_executable(${name}_tests ${arg_TESTS})
    target_link_libraries(${name}_tests PRIVATE strake::${name} ${arg_PRIVATE_LINKS} strake_warnings strake_test_main)
    target_compile_definitions(${name}_tests PRIVATE STRAKE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    foreach(test IN LISTS arg_TESTS)
      cmake_path(GET test STEM stem)
      cmake_path(GET test FILENAME file)
      add_test(NAME ${name}.${stem} COMMAND ${name}_tests --source=${file})
      set_tests_properties(${name}.${stem} PROPERTIES LABELS unit TIMEOUT ${STRAKE_UNIT_TIMEOUT})
    endforeach()
  endif()
endfunction()

# Seconds, against tests that hang: the longest takes 100 on an idle machine, and instrumented code is slow.
set(STRAKE_UNIT_TIMEOUT 600)
if(STRAKE_SANITIZE)
  set(STRAKE_UNIT_TIMEOUT 1500)
endif()

# strake_test(<group> <source> libs...): a test with a program of its own, registered as "<group>.<stem>".
function(strake_test group source)
  cmake_path(GET source STEM stem)
  add_executable(${group}_${stem} ${source})
  target_link_libraries(${group}_${stem} PRIVATE ${ARGN} strake_warnings GTest::gtest GTest::gmock GTest::gtest_main)
  set_target_properties(${group}_${stem} PROPERTIES UNITY_BUILD OFF)
  target_compile_definitions(${group}_${stem} PRIVATE STRAKE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${group}.${stem} COMMAND ${group}_${stem})
  set_tests_properties(${group}.${stem} PROPERTIES LABELS unit TIMEOUT ${STRAKE_UNIT_TIMEOUT})
endfunction()
