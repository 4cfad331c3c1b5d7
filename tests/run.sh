#!/usr/bin/env bash
# Installs what is needed and runs every test.
#
#   tests/run.sh [STEP...]
#
#   format    clang-format over all C++ sources
#   release   optimized build; unit, integration (over a socket) and architecture tests
#   smollm2   fetches a public checkpoint and compares tokens with transformers' (after release)
#   asan      the release tests again under AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan      those with threads in them under ThreadSanitizer (only when it is named)
#
# Without a step: all of the others, in this order.
set -euo pipefail
cd "$(dirname "$0")/.."
source deploy/setup.sh

run_format() {
  local files
  mapfile -t files < <(find bench client engine server tests tokenizer tools -name '*.cc' -o -name '*.cu' -o -name '*.h' | sort)
  [ "${#files[@]}" -gt 0 ] || fail "format: no sources found"
  clang-format-14 --dry-run --Werror "${files[@]}" || fail "format: see above (clang-format-14 -i)"
  say "format: ${#files[@]} files follow .clang-format"
}

# run_suite PRESET FOLDER: configure, build, ctest; keeps the closing lines for the end.
run_suite() {
  say "$1: building with $(build_jobs) compilers"
  quietly cmake --preset "$1" -DLOWKEY_TESTS=ON
  build "$2" || fail "$1: the build failed"
  # What starts servers runs one after another: several at once would share two cores and test less.
  local servers='^(integration|server)_'
  test_suite "$1" "$2" --exclude-regex "$servers" --parallel "$(nproc)"
  test_suite "$1, servers" "$2" --tests-regex "$servers"
}

# test_suite PRESET FOLDER [OPTION...]: ctest with further options.
test_suite() {
  local name=$1 folder=$2 log=$2/ctest.log
  shift 2
  say "$name: testing"
  ctest --test-dir "$folder" --output-on-failure --no-tests=error "$@" >"$log" 2>&1 </dev/null || {
    cat "$log" >&2
    fail "$name: tests failed"
  }
  results+=("$name:" "$(tail -n 3 "$log" | sed '/^$/d; s/^/  /')")
}

# The tests in which threads meet. Where the kernel lays memory out too randomly for the sanitizer
# ("unexpected memory mapping"): sysctl vm.mmap_rnd_bits=28, or setarch -R before this script.
TSAN_TESTS=(base_thread_pool_test scheduler_test scheduler_random_test engine_test
  engine_isolation_test engine_exception_test engine_stress_test server_metrics_metrics_test
  server_metrics_http_server_test server_grpc_request_link_test server_grpc_server_test
  integration_concurrency_test integration_drain_test integration_bad_requests_test
  integration_credentials_test integration_killed_clients_test)

run_tsan() {
  local pattern
  pattern="^($(IFS='|'; echo "${TSAN_TESTS[*]}")|planted_race_is_caught|guarded_race_is_none)\$"
  say "tsan: building with $(build_jobs) compilers"
  quietly cmake --preset tsan -DLOWKEY_TESTS=ON
  build build-tsan planted_fault "${TSAN_TESTS[@]}" || fail "tsan: the build failed"
  test_suite tsan build-tsan --tests-regex "$pattern"
}

run_smollm2() {
  local model
  model=$(deploy/fetch_smollm2.sh)
  say "smollm2: testing"
  [ -f build/build.ninja ] || quietly cmake --preset release -DLOWKEY_TESTS=ON
  build build integration_smollm2_test || fail "smollm2: the build failed"
  LOWKEY_SMOLLM2=$model quietly build/tests/integration/integration_smollm2_test
  results+=("smollm2: greedy tokens of 12 prompts equal transformers'")
}

run_step() {
  case $1 in
    format) run_format ;;
    release) run_suite release build ;;
    smollm2)
      run_smollm2
      ;;
    asan)
      export UBSAN_OPTIONS=print_stacktrace=1
      run_suite asan build-asan
      ;;
    tsan) run_tsan ;;
  esac
}

steps=("$@")
[ "${#steps[@]}" -gt 0 ] || steps=(format release smollm2 asan)
for step in "${steps[@]}"; do
  case $step in
    format | release | smollm2 | asan | tsan) ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "unknown step $step (tests/run.sh --help)" ;;
  esac
done

results=()
install_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
for step in "${steps[@]}"; do run_step "$step"; done
[ "${#results[@]}" -eq 0 ] || printf '%s\n' "${results[@]}"
printf 'passed: %s (%d s)\n' "${steps[*]}" "$SECONDS"
