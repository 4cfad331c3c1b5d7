#!/usr/bin/env bash
# Installs what is needed and runs the tests.
#
#   tests/run.sh [STEP...]
#
#   format    clang-format 14 over all C++ sources; skipped where there is no clang-format-14
#   release   optimized build; architecture tests, integration tests over a socket, unit tests of
#             what asan does not cover
#   smollm2   fetches a public checkpoint and compares tokens with transformers' (after release)
#   asan      what reads strangers' bytes, converts or has threads, under AddressSanitizer and
#             UndefinedBehaviorSanitizer
#
# Without a step: these four, in this order. Only when they are named:
#
#   release-all  every test of the optimized build
#   asan-all  every test under those sanitizers
#   tsan      the tests in which threads meet, under ThreadSanitizer
#   devices   every mechanism and engine test on the emulated device (release samples them)
#   arm64     the unit tests for 64-bit Arm: cross-compiled, run under qemu-user; of what computes
#             much every eighth case
#   clang     the release tests, built by clang
#   interop   official gRPC clients in Python, fetched from PyPI, and client/python, against the
#             release build's server
#   clients   openai, LangChain, LiteLLM and lm-evaluation-harness, likewise; pydantic's models with
#             SmolLM2's answers
#   kubernetes  the manifests of deploy/kubernetes, built by kubectl and checked without a cluster
#   ray       deploy/ray on two Ray nodes in this machine, and a rolling restart behind haproxy
#   page      the page at `/` in Debian's Chromium, against the release build's server and a mock;
#             skipped where there is no chromium
#
# tests/README.md says where the time goes.
set -euo pipefail
cd "$(dirname "$0")/.."
source deploy/setup.sh

run_format() {
  local files
  if ! try_package clang-format-14; then
    results+=("format: skipped, there is no clang-format-14 here")
    return
  fi
  mapfile -t files < <(find bench client engine server tests tokenizer tools \
    -name '*.cc' -o -name '*.cu' -o -name '*.h' | sort)
  [ "${#files[@]}" -gt 0 ] || fail "format: no sources found"
  clang-format-14 --dry-run --Werror "${files[@]}" || fail "format: see above (clang-format-14 -i)"
  results+=("format: ${#files[@]} files follow .clang-format")
}

# build_suite PRESET FOLDER [TARGET...]: configures and builds.
build_suite() {
  local began=$SECONDS
  say "$1: building with $(build_jobs) compilers"
  quietly cmake --preset "$1" -DLOWKEY_TESTS=ON
  build "$2" "${@:3}" || fail "$1: the build failed"
  results+=("$1: built in $((SECONDS - began)) s")
}

# test_suite NAME FOLDER [OPTION...]: ctest with further options; keeps its closing lines.
test_suite() {
  local name=$1 folder=$2 log=$2/ctest.log began=$SECONDS
  shift 2
  say "$name: testing"
  ctest --test-dir "$folder" --output-on-failure --no-tests=error "$@" >"$log" 2>&1 </dev/null || {
    cat "$log" >&2
    fail "$name: tests failed"
  }
  results+=("$name: tested in $((SECONDS - began)) s"
    "$(grep -E '^[0-9]+% tests passed' "$log" | sed 's/^/  /')")
}

# test_all NAME FOLDER [OPTION...]: what starts servers runs one after another, after the rest:
# several at once would share two cores and test less.
test_all() {
  local servers='^(integration|server_front)_'
  test_suite "$1" "$2" --exclude-regex "$servers" --parallel "$(nproc)" "${@:3}"
  test_suite "$1, servers" "$2" --tests-regex "$servers" "${@:3}"
}

# The tests in which threads meet. Where the kernel lays memory out too randomly for the sanitizer
# ("unexpected memory mapping"): sysctl vm.mmap_rnd_bits=28, or setarch -R before this script.
TSAN_TESTS=(base_thread_pool_test scheduler_test scheduler_random_test engine_test
  engine_isolation_test engine_exception_test engine_prefix_files_test engine_stress_test
  server_metrics_metrics_test
  server_api_request_link_test server_front_ops_test server_front_server_test
  server_trace_otlp_exporter_test
  server_net_event_loop_test server_net_listener_test server_net_worker_pool_test
  integration_concurrency_test integration_drain_test integration_bad_requests_test
  integration_credentials_test integration_killed_clients_test)

run_tsan() {
  local pattern
  pattern="^($(IFS='|'; echo "${TSAN_TESTS[*]}")|planted_race_is_caught|guarded_race_is_none)\$"
  build_suite tsan build-tsan planted_fault "${TSAN_TESTS[@]}"
  test_suite tsan build-tsan --tests-regex "$pattern"
}

run_smollm2() {
  local model began
  model=$(deploy/fetch_smollm2.sh)
  [ -f build/build.ninja ] || quietly cmake --preset release -DLOWKEY_TESTS=ON
  build build integration_smollm2_test || fail "smollm2: the build failed"
  began=$SECONDS
  say "smollm2: testing"
  LOWKEY_SMOLLM2=$model quietly build/tests/integration/integration_smollm2_test
  results+=("smollm2: greedy tokens of 12 prompts equal transformers', $((SECONDS - began)) s")
}

# Clients and stubs are in build/interop, and nothing is installed elsewhere.
run_interop() {
  local began=$SECONDS folder=$PWD/build/interop python=$PWD/build/interop/venv/bin/python
  install_packages python3-venv openssl
  [ -f build/build.ninja ] || quietly cmake --preset release -DLOWKEY_TESTS=ON
  build build lowkey || fail "interop: the build failed"
  say "interop: fetching clients"
  quietly python3 -m venv "$folder/venv"
  quietly "$python" -m pip install --requirement tests/interop/requirements.txt
  # Our own package brings the stubs of lowkey.v1. The package called grpc is the library's.
  quietly "$python" -m pip install --force-reinstall --no-deps --no-build-isolation ./client/python
  rm -rf "$folder/stubs" && mkdir "$folder/stubs"
  quietly "$python" -m grpc_tools.protoc "--python_out=$folder/stubs" \
    "--grpc_python_out=$folder/stubs" --proto_path=proto/grpc \
    proto/grpc/reflection/v1/reflection.proto
  say "interop: testing"
  INTEROP_SERVER=$PWD/build/lowkey PYTHONPATH=$folder/stubs quietly timeout 1800 \
    "$python" -B -m unittest discover --verbose --start-directory tests/interop
  results+=("interop: clients of tests/interop/requirements.txt and client/python, $((SECONDS - began)) s")
}

# python_suite NAME [REQUIREMENTS [SECONDS]]: installs REQUIREMENTS (those of tests/NAME unless it is
# given) into build/NAME, and nowhere else, builds the server and runs tests/NAME, which finds it in
# NAME_SERVER.
python_suite() {
  local name=$1 requirements=${2:-tests/$1/requirements.txt} seconds=${3:-1800} python=$PWD/build/$1/venv/bin/python
  install_packages python3-venv
  [ -f build/build.ninja ] || quietly cmake --preset release -DLOWKEY_TESTS=ON
  build build lowkey || fail "$name: the build failed"
  say "$name: fetching its packages"
  quietly python3 -m venv "build/$name/venv"
  quietly "$python" -m pip install --requirement "$requirements"
  say "$name: testing"
  export "${name^^}_SERVER=$PWD/build/lowkey"
  quietly timeout "$seconds" \
    "$python" -B -m unittest discover --verbose --start-directory "tests/$name"
}

# Debian 12's kubectl is too old to build the manifests.
run_kubernetes() {
  local began=$SECONDS minor
  command -v kubectl >/dev/null || install_packages kubernetes-client
  minor=$(kubectl version --client -o json 2>/dev/null | sed -n 's/.*"minor": *"\([0-9]*\).*/\1/p' | head -n 1)
  if [ "${minor:-0}" -lt 27 ]; then
    results+=("kubernetes: skipped, kubectl is older than 1.27")
    return
  fi
  python_suite kubernetes
  results+=("kubernetes: the manifests are valid, $((SECONDS - began)) s")
}

run_ray() {
  local began=$SECONDS
  install_packages haproxy
  python_suite ray deploy/ray/requirements.txt 7200
  results+=("ray: two nodes, $((SECONDS - began)) s")
}

run_clients() {
  local began=$SECONDS model
  model=$(deploy/fetch_smollm2.sh)
  CLIENTS_SMOLLM2=$model python_suite clients
  results+=("clients: those of tests/clients/requirements.txt, $((SECONDS - began)) s")
}

# Pictures of what the browser saw are in build/page/pictures.
run_page() {
  local began=$SECONDS
  if ! try_package chromium; then
    results+=("page: skipped, there is no chromium here")
    return
  fi
  python_suite page
  results+=("page: driven in $(chromium --version | cut -d ' ' -f 1-2), $((SECONDS - began)) s")
}

# The libraries of an arm64 system are unpacked in build-arm64, and none of them is installed.
run_arm64() {
  local sysroot=$PWD/build-arm64/sysroot name
  local libraries=(libc6-dev "libstdc++-$(g++ -dumpversion)-dev")
  for name in "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"; do
    [[ $name != *-dev ]] || libraries+=("$name")
  done
  install_packages mmdebstrap qemu-user g++-aarch64-linux-gnu
  if [ ! -e "$sysroot/.complete" ]; then
    say "arm64: unpacking an arm64 system"
    rm -rf "$sysroot" && mkdir -p build-arm64
    quietly mmdebstrap --variant=extract --architectures=arm64 \
      --include="$(IFS=,; echo "${libraries[*]}")" \
      "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$sysroot"
    # update-alternatives would make these links, but no package is configured here.
    ln -s lapack/liblapack.so.3 blas/libblas.so.3 "$sysroot/usr/lib/aarch64-linux-gnu/"
    touch "$sysroot/.complete"
  fi
  LOWKEY_SYSROOT=$sysroot build_suite arm64 build-arm64
  # Servers and timing-bound tests say nothing under emulation, which is twenty times as slow.
  test_suite arm64 build-arm64 --parallel "$(nproc)" --timeout 1800 --label-exclude 'gpu|slow' \
    --exclude-regex '^(integration|server_front)_|forced_answers|_on_device|^cuda_'
}

run_step() {
  case $1 in
    format) run_format ;;
    release)
      build_suite release build release_tests
      test_all release build --label-exclude sanitized
      ;;
    release-all)
      build_suite release build
      test_all release-all build
      ;;
    smollm2) run_smollm2 ;;
    asan)
      build_suite asan build-asan asan_tests
      test_all asan build-asan --label-regex asan
      ;;
    asan-all)
      build_suite asan build-asan
      test_all asan-all build-asan
      ;;
    tsan) run_tsan ;;
    devices)
      build_suite release build release_tests
      test_suite devices build --build-config devices --tests-regex '^cuda_|_on_device|_whole$' \
        --parallel "$(nproc)"
      ;;
    arm64) run_arm64 ;;
    clang)
      install_packages clang-14
      build_suite clang build-clang
      test_all clang build-clang
      ;;
    interop) run_interop ;;
    kubernetes) run_kubernetes ;;
    clients) run_clients ;;
    page) run_page ;;
    ray) run_ray ;;
  esac
}

steps=("$@")
[ "${#steps[@]}" -gt 0 ] || steps=(format release smollm2 asan)
for step in "${steps[@]}"; do
  case $step in
    format | release | smollm2 | asan | release-all | asan-all | tsan | devices | arm64) ;;
    clang | interop | clients | kubernetes | page | ray) ;;
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "unknown step $step (tests/run.sh --help)" ;;
  esac
done

export UBSAN_OPTIONS=print_stacktrace=1
results=()
install_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
results+=("packages: $SECONDS s")
for step in "${steps[@]}"; do run_step "$step"; done
printf '%s\n' "${results[@]}"
printf 'passed: %s (%d s)\n' "${steps[*]}" "$SECONDS"
