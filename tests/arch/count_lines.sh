#!/usr/bin/env bash
# Counts the lines of the product's sources by folder: tests/arch/count_lines.sh [COMMIT]
# Without a commit it counts the working tree's tracked files.
set -euo pipefail
cd "$(dirname "$0")/../.."
commit=${1:-}
folders=(engine server client tools tokenizer)
{
  if [[ -n $commit ]]; then
    git grep -c '' "$commit" -- "${folders[@]}" | sed "s|^$commit:||"
  else
    git grep -c '' -- "${folders[@]}"
  fi
} | awk -F: '
  $1 !~ /\.(cc|h|cu)$/ { next }
  {
    n_parts = split($1, parts, "/")
    room = n_parts > 2 ? parts[1] "/" parts[2] : parts[1]
    lines[room] += $2; files[room]++; all_lines += $2; all_files++
  }
  END {
    for (room in lines) printf "%-24s %6d %8d\n", room, files[room], lines[room] | "sort"
    close("sort")
    printf "%-24s %6d %8d\n", "all", all_files, all_lines
  }' | { printf '%-24s %6s %8s\n' folder files lines; cat; }
