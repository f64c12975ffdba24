#!/bin/sh
# Runs the GPU tests on a machine with a GPU that has libtorch 2.11 (the torch wheel for CUDA 13) and little else.
#
#   tools/gpu_check.sh pack          where strake is built: makes build/gpu_package, which needs nothing but torch
#   tools/gpu_check.sh run [ARGS]    on the GPU machine, in the same folder: runs it; ARGS go to GoogleTest
#   tools/gpu_check.sh train         there: tests/gpu/program_test.py with the whole program; needs pytest and pyarrow
#   tools/gpu_check.sh score         there: tests/gpu/score_test.py, predict, evaluate and worker; needs the same
#   tools/gpu_check.sh ranks         there: tests/gpu/ranks_test.py, ranks over NCCL, processes also where there is one GPU
#   tools/gpu_check.sh bench         there: steps of full-sized models beside Transformers', as a table
#   tools/gpu_check.sh bench_score   there: strake predict beside Transformers' forward pass, as a table
#   tools/gpu_check.sh sanitize TOOL the kernels' tests under compute-sanitizer: memcheck, racecheck, initcheck, synccheck
set -eu
cd "$(dirname "$0")/.."
package=build/gpu_package

pack() {
  cmake --build build --target strake_gpu_tests strake_cuda program
  rm -rf "$package" && mkdir -p "$package"
  cp build/tests/gpu/strake_gpu_tests build/libstrake_cuda.so "$package"
  strip --strip-debug "$package/strake_gpu_tests"
  # Libraries of the distribution that another one may lack or have in another version.
  ldd "$package/strake_gpu_tests" | awk '/lib(fmt|spdlog)\./ {print $3}' | xargs -I{} cp -L {} "$package"
  # The whole program with its libraries, but for those of libtorch and of every Linux.
  mkdir "$package/program"
  cp build/strake "$package/program" && strip "$package/program/strake"
  ldd build/strake | awk '$3 ~ /^\// {print $3}' |
    grep -vE '/(libc|libm|libpthread|librt|libdl|libutil|libstdc\+\+|libgcc_s)\.so|/(torch|nvidia)/' |
    xargs -I{} cp -L {} "$package/program"
  tar -C "$package" -c program | xz -T0 -3 >"$package/program.tar.xz" && rm -r "$package/program"
  du -sh "$package"
}

environment() {
  torch=$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))')
  python3 -c 'import torch; print("torch", torch.__version__, "with", torch.cuda.device_count(), "GPUs:", torch.cuda.get_device_name(0))'
  # torch/lib finds the rest, CUDA's runtime too, by its own RPATH.
  export LD_LIBRARY_PATH="$PWD/$package:$torch/lib:$(echo "$torch"/../nvidia/*/lib | tr ' ' :)"
  export STRAKE_CUDA_LIBRARY="$PWD/$package/libstrake_cuda.so" STRAKE_REQUIRE_GPU=1
  export CUDA_MODULE_LOADING=EAGER  # as strake sets it: kernels that are loaded late wait for those of other ranks
}

unpack_program() {
  environment
  program=$(mktemp -d)
  xz -dc "$package/program.tar.xz" | tar -C "$program" -x
  export LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$program/program" STRAKE_BINARY="$program/program/strake"
}

# The tests of a file of tests/gpu, with the whole program.
test_program() {
  unpack_program
  exec python3 -m pytest -q -p no:cacheprovider "tests/gpu/$1"
}

case "${1:-}" in
  pack) pack ;;
  run) shift; environment; exec "$package/strake_gpu_tests" "$@" ;;
  train) test_program program_test.py ;;
  score) test_program score_test.py ;;
  ranks) test_program ranks_test.py ;;
  bench)
    environment
    times=$(mktemp)
    "$package/strake_gpu_tests" --gtest_filter='*GpuStepTime*' >"$times" || { cat "$times"; exit 1; }
    python3 benchmarks/gpu_peers.py "$times"
    ;;
  bench_score) unpack_program; exec python3 benchmarks/gpu_scoring.py "$STRAKE_BINARY" ;;
  sanitize)
    environment
    exec compute-sanitizer --tool "${2:-memcheck}" --error-exitcode 1 "$package/strake_gpu_tests" \
      --gtest_filter='CudaKernels*' ;;
  *) sed -n 2,11p "$0"; exit 2 ;;
esac
