# Fails if an object file compiled for AVX2, AVX-512 or AMX defines a weak symbol: the linker could keep that copy of a
# shared inline function for the whole program, which would then crash on older processors.
# Usage: cmake -DNM=<nm> -DOBJECTS=<object files separated by |> -P check_isa_objects.cmake
string(REPLACE "|" ";" objects "${OBJECTS}")
list(FILTER objects INCLUDE REGEX "\\.dir/(\\./)?(avx[0-9]+|amx)/")  # not a folder above the build of that name
list(LENGTH objects count)
if(count EQUAL 0)
  message(FATAL_ERROR "no AVX2 or AVX-512 object files among: ${OBJECTS}")
endif()
foreach(object IN LISTS objects)
  execute_process(COMMAND ${NM} --defined-only --format=posix ${object}
    OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+ [WVu] [^\n]*" weak "${symbols}")
  if(weak)
    message(SEND_ERROR "${object} defines ${weak}")
  endif()
endforeach()
message("checked ${count} object files")
