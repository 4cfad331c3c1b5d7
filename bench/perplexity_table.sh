#!/usr/bin/env bash
# The table of docs/perplexity.md: SmolLM2 on a text, by rank, block, basis and window of atp.
#
#   bench/perplexity_table.sh TEXT TABLE.csv
#   python3 bench/perplexity_report.py TABLE.csv docs/perplexity.svg    prints it, and plots it
set -euo pipefail
cd "$(dirname "$0")/.."
text=${1:?TEXT} table=${2:?TABLE.csv}
part=$(mktemp)
trap 'rm -f "$part"' EXIT

trials=(--try standard)
for basis in layer kv; do
  for block in 128 256 512 1024; do
    for rank in 4 8 16 32 64; do
      trials+=(--try "atp --rank $rank --block $block --basis $basis --window 0")
    done
  done
  trials+=(--try "atp --rank 16 --block 256 --basis $basis --window 1"
    --try "atp --rank 64 --block 512 --basis $basis --window 1")
done

# measure CONTEXT WINDOWS: as many tokens are scored at each context.
measure() {
  build/lowkey eval perplexity "$text" --model "$(deploy/fetch_smollm2.sh)" --context "$1" \
    --windows "$2" "${trials[@]}" --csv "$part"
}
measure 2048 4
cat "$part" >"$table"
measure 8192 1
tail -n +2 "$part" >>"$table"
