#!/usr/bin/env bash
# Runs parsers under libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer, one after another:
#
#   tests/fuzz/run.sh SECONDS [NAME...]     (NAME: the X of X_fuzz.cc; without one, all)
#
# Needs clang 14 with its runtime (clang-14, libclang-rt-14-dev) beside what the build needs.
# build-fuzz/corpus/NAME/ keeps the inputs that reached something new, for the next run, and
# build-fuzz/NAME.log what libFuzzer said. An input that fails stays in build-fuzz/NAME-failed-*.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:?SECONDS}
names=("${@:2}")
if [ "${#names[@]}" -eq 0 ]; then
  names=(bundle calibration chat_template config_json gguf gguf_vocabulary http1 http2 kserve openai rpc_message
    safetensors schema token_table tokenizer tokenizer_json tool_parser)
fi

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target "${names[@]/%/_fuzz}"
python3 tests/fuzz/seeds.py build-fuzz/seeds
for name in "${names[@]}"; do
  mkdir -p "build-fuzz/corpus/$name"
  echo "$name: $seconds s"
  "build-fuzz/tests/fuzz/${name}_fuzz" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="build-fuzz/$name-failed-" \
    "build-fuzz/corpus/$name" "build-fuzz/seeds/$name" >"build-fuzz/$name.log" 2>&1 ||
    { tail -n 40 "build-fuzz/$name.log"; exit 1; }
  grep -E 'cov:' "build-fuzz/$name.log" | tail -n 1
  grep -E '^stat::' "build-fuzz/$name.log"
done
