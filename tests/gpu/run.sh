#!/usr/bin/env bash
# Builds CUDA's device and runs the tests that need a GPU, on a machine that has one.
#
#   tests/gpu/run.sh [--results FILE]   all tests that ctest labels gpu, and the kernels' tests under
#                                       compute-sanitizer where that is found; default results.json
#   tests/gpu/run.sh --pack FOLDER [ARCHITECTURES]
#                                       for a machine without compilers or Debian's libraries: builds
#                                       here, gathers in FOLDER what FOLDER/run.py needs there, and
#                                       makes FOLDER.tar.xz of it; ARCHITECTURES as CMake writes
#                                       them, default 90-real (H100, H200)
#
# Ends with an error when a test fails or is skipped. Needs about 2 minutes beside the build.
set -euo pipefail
cd "$(dirname "$0")/../.."
source deploy/setup.sh

results=results.json
pack=
# Here the tests run on this machine's GPU; elsewhere on one that is not known.
architectures=native
flags=-lineinfo  # compute-sanitizer names lines; twice the size
case ${1:-} in
  '') ;;
  --results) results=${2:?a file} ;;
  --pack) pack=${2:?a folder} architectures=${3:-90-real} flags=-Xfatbin=-compress-all ;;
  -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) fail "unknown option $1 (tests/gpu/run.sh --help)" ;;
esac

quietly cmake --preset cuda -DLOWKEY_TESTS=ON "-DLOWKEY_CUDA_ARCHITECTURES=$architectures" \
  "-DCMAKE_CUDA_FLAGS=$flags"
say "building with $(build_jobs) compilers"
build build-cuda gpu_tests || fail "the build failed"
if [ -n "$pack" ]; then
  build build-cuda lowkey device_bench || fail "the build failed"
  tests/gpu/run.py --build build-cuda --pack "$pack"
else
  tests/gpu/run.py --build build-cuda --results "$results"
fi
