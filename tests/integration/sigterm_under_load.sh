#!/usr/bin/env bash
# sigterm_under_load.sh N [BUILD]: SIGTERM to a server under full load, N times; how often every
# admitted stream came whole and the server exited with 0.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:?usage: sigterm_under_load.sh N [BUILD]}
test=${2:-build}/tests/integration/integration_drain_test
[ -x "$test" ] || { echo "$test: not built" >&2; exit 1; }
whole=0
for ((i = 1; i <= rounds; ++i)); do
  if "$test" --gtest_filter=SignalTest.SigtermUnderLoadLosesNothing >/dev/null 2>&1; then
    whole=$((whole + 1))
  fi
  printf '\r%d of %d' "$i" "$rounds" >&2
done
printf '\n' >&2
echo "SIGTERM under 48 streams, $rounds times: $whole with every stream whole and exit code 0"
[ "$whole" -eq "$rounds" ]
