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
    strake_test_program(${name}_tests strake::${name} ${arg_PRIVATE_LINKS})
    target_sources(${name}_tests PRIVATE ${arg_TESTS})
    foreach(test IN LISTS arg_TESTS)
      cmake_path(GET test STEM stem)
      cmake_path(GET test FILENAME file)
      strake_unit_test(${name}.${stem} ${name}_tests --source=${file})
    endforeach()
  endif()
endfunction()

# Seconds, against tests that hang: the longest takes 100 on an idle machine, and instrumented code is slow.
set(STRAKE_UNIT_TIMEOUT 600)
if(STRAKE_SANITIZE)
  set(STRAKE_UNIT_TIMEOUT 1500)
endif()

# strake_compile_quickly(<target>): of tests, which are compiled more often than they run; what they test has the flags
# of a release. GCC 12 takes moved std::optionals for uninitialized where it optimizes less.
function(strake_compile_quickly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1 -Wno-maybe-uninitialized>)
endfunction()

# strake_test_program(<target> libs...): a GoogleTest executable, whose sources are to be added.
function(strake_test_program target)
  add_executable(${target})
  strake_compile_quickly(${target})
  target_link_libraries(${target} PRIVATE ${ARGN} strake_warnings strake_test_main)
  target_compile_definitions(${target} PRIVATE STRAKE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endfunction()

# strake_unit_test(<name> command...)
function(strake_unit_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS unit TIMEOUT ${STRAKE_UNIT_TIMEOUT}
                       SKIP_REGULAR_EXPRESSION "\\[  PASSED  \\] 0 tests")  # all were skipped
endfunction()

# strake_test(<group> <source> libs...): a test with a program of its own, registered as "<group>.<stem>".
function(strake_test group source)
  cmake_path(GET source STEM stem)
  strake_test_program(${group}_${stem} ${ARGN})
  target_sources(${group}_${stem} PRIVATE ${source})
  set_target_properties(${group}_${stem} PROPERTIES UNITY_BUILD OFF)
  strake_unit_test(${group}.${stem} ${group}_${stem})
endfunction()
