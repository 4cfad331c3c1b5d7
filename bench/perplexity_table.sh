#!/usr/bin/env bash
# A table of docs/perplexity.md: SmolLM2 on a text, by rank, block, basis and window of
# atp, and other settings.
#
#   bench/perplexity_table.sh TEXT CONTEXT WINDOWS TABLE.csv
#   python3 bench/perplexity_report.py PAGE.html TABLE.csv...   prints the tables and plots them
#
# RANKS and BLOCKS in the environment make it smaller: RANKS="16 64" BLOCKS="256 1024".
set -euo pipefail
cd "$(dirname "$0")/.."
text=${1:?TEXT} context=${2:?CONTEXT} windows=${3:?WINDOWS} table=${4:?TABLE.csv}

trials=(--try standard)
for basis in layer kv; do
  for block in ${BLOCKS:-128 256 512 1024}; do
    for rank in ${RANKS:-4 8 16 32 64}; do
      trials+=(--try "atp --rank $rank --block $block --basis $basis --window 0")
    done
  done
  for rank in 16 64; do
    trials+=(--try "atp --rank $rank --block 256 --basis $basis --window 1")
  done
done
trials+=(
  --try "atp --rank 32 --block 512 --window 1 --refine 64"
  --try "atp --rank 64 --block 512 --window 0 --refine 64"
  --try "atp --rank 8 --block 128 --basis kv --window 0 --refine 64"
  --try "atp --rank 64 --block 512 --window 1 --basis-storage int4"
  --try "atp --rank 64 --block 512 --basis input --window 0"
  --try "atp --rank 32 --block 512 --window 0 --readout linear --merge"
  --try "standard --cache-storage int8"
  --try "standard --cache-storage int4"
)
build/lowkey eval perplexity "$text" --model "$(deploy/fetch_smollm2.sh)" --context "$context" \
  --windows "$windows" "${trials[@]}" --csv "$table"
