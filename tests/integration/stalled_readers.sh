#!/usr/bin/env bash
# stalled_readers.sh [N] [TURNS] [BUILD]: what N streams that are never read (1000) cost 32 that
# are: the time between tokens without them and beside them, in turns (3).
set -euo pipefail
cd "$(dirname "$0")/../.."
stalled=${1:-1000}
turns=${2:-3}
build=${3:-build}
[ -x "$build/tests/integration/stalled_readers" ] || { echo "$build: not built" >&2; exit 1; }
folder=$(mktemp -d)
server='' readers=''
trap 'exec 3>&- || true; kill $readers $server 2>/dev/null || true; rm -rf "$folder"' EXIT
mkfifo "$folder/hold"

"$build/lowkey" serve --port 0 --metrics 127.0.0.1:0 --stall-timeout 1h --max-queued "$stalled" \
  --max-wait 1h --cache-bytes 4G --json >"$folder/ready" 2>"$folder/errors" &
server=$!
until grep -q '"ready"' "$folder/ready"; do
  kill -0 $server || { cat "$folder/errors" >&2; exit 1; }
  sleep 0.1
done
port=$(sed 's/.*"port":\([0-9]*\).*/\1/' "$folder/ready")
metrics_port=$(sed 's/.*"metrics_port":\([0-9]*\).*/\1/' "$folder/ready")

paused() {
  exec 4<>"/dev/tcp/127.0.0.1/$metrics_port"
  printf 'GET /metrics HTTP/1.0\r\n\r\n' >&4
  sed -n 's/^lowkey:num_streams_paused{.*} \([0-9]*\).*/\1/p' <&4
  exec 4>&-
}

# measure: p50 and p99 of the time between tokens of 32 streams, in ms.
measure() {
  "$build/lowkey" bench --server "127.0.0.1:$port" --concurrency 32 --requests 128 \
    --input-tokens 64 --output-tokens 128 --json >"$folder/report"
  grep -o '"itl_ms":{[^}]*}' "$folder/report" | head -n 1 |
    sed 's/.*"p50":\([0-9.]*\).*"p99":\([0-9.]*\).*/\1 \2/'
}

for ((turn = 1; turn <= turns; ++turn)); do
  echo "turn $turn: without: p50, p99 ms: $(measure)"
  "$build/tests/integration/stalled_readers" "127.0.0.1:$port" "$stalled" <"$folder/hold" &
  readers=$!
  exec 3>"$folder/hold"
  until [ "$(paused)" = "$stalled" ]; do sleep 1; done
  echo "turn $turn: beside $stalled stalled readers: p50, p99 ms: $(measure)"
  [ "$(paused)" = "$stalled" ] || echo "turn $turn: only $(paused) were still stalled at the end"
  exec 3>&-
  wait $readers
done
