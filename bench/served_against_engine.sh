#!/usr/bin/env bash
# served_against_engine.sh [ROUNDS] [BUILD] [CLIENTS] [MODEL]: prints output tokens/s of so many
# clients (16) over gRPC and of the same requests submitted to the engine directly, in turns, on a
# model (the random 110M model; models/tales is the demo model).
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3} build=${2:-build} clients=${3:-16} model=${4:-}
scratch=$(mktemp -d) server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$scratch"' EXIT
if [ -z "$model" ]; then
  model=$scratch/random_110m
  mkdir "$model"
  "$build/bench/random_110m" "$model" >/dev/null
  cp models/tales/tokenizer* "$model/"
fi
for ((i = 1; i <= rounds; ++i)); do
  direct=$("$build/bench/engine_bench" --model "$model" --closed_loop 96 --streams "$clients" |
    grep -o '[0-9.]* output' | cut -d' ' -f1)
  "$build/lowkey" serve --model "$model" --port 0 --prefix-cache off --json \
    >"$scratch/ready" 2>/dev/null &
  server=$!
  until grep -q ready_ms "$scratch/ready"; do sleep 0.2; done
  port=$(grep -o '"port": *[0-9]*' "$scratch/ready" | grep -o '[0-9]*$')
  served=$("$build/lowkey" bench --server "127.0.0.1:$port" --concurrency "$clients" --requests 96 \
    --warmup 0 --input-tokens 128 --output-tokens 64 --json |
    grep -o '"output_tokens_per_s": *[0-9.]*' | head -n 1 | grep -o '[0-9.]*$')
  kill "$server" && wait "$server" || true
  server=
  awk -v d="$direct" -v s="$served" \
    'BEGIN { printf "engine %.1f, served %.1f output tokens/s: %.1f%%\n", d, s, 100 * s / d }'
done
