#!/usr/bin/env bash
# From a fresh clone to a streamed generation: installs missing Debian packages, builds lowkey,
# serves the demo model and continues a story with it. The server then stays until Ctrl-C.
#
#   deploy/demo.sh [--once] [--port N]
#
#   --once    stop the server after the generation (so it does when there is no terminal)
#   --port N  serve on this port [50051]
set -euo pipefail
cd "$(dirname "$0")/.."
source deploy/setup.sh

once=false port=50051 prompt='There was once a king who had three daughters'
while [ $# -gt 0 ]; do
  case $1 in
    --once) once=true ;;
    --port) port=${2:-}; shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "unknown argument $1 (deploy/demo.sh --help)" ;;
  esac
  shift || fail "--port: no value, expected a number"
done
[[ $port =~ ^[0-9]{1,5}$ ]] || fail "--port: \"$port\", expected a number"
[ -t 1 ] || once=true

server=
stop_server() {
  [ -n "$server" ] && kill -TERM "$server" 2>/dev/null && wait "$server" || true
  server=
}
trap stop_server EXIT
trap 'exit 130' INT TERM

install_packages "${BUILD_PACKAGES[@]}"
say "building with $(build_jobs) compilers"
quietly cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DLOWKEY_TESTS=OFF
build build lowkey || fail "the build failed"

lowkey=build/lowkey
address=127.0.0.1:$port
"$lowkey" serve --model models/tales --port "$port" >build/serve.log 2>&1 </dev/null &
server=$!
for _ in $(seq 200); do
  kill -0 "$server" 2>/dev/null || { cat build/serve.log >&2; fail "the server ended"; }
  ! grep -q '^ready' build/serve.log || break
  sleep 0.05
done
"$lowkey" health --server "$address" >&2 || { cat build/serve.log >&2; fail "no server"; }
sed -n 's/^ready/serving/p' build/serve.log >&2
say "set-up took $SECONDS s; now the model continues a story:"
say ""
[ -t 1 ] || printf '%s' "$prompt"
"$lowkey" generate --server "$address" --temperature 0.6 --top-p 0.9 --seed 1 \
  --max-new-tokens 160 "$prompt"
$once && exit 0

[ "$port" = 50051 ] && to= || to="--server $address "
say "
The server goes on until Ctrl-C. In another terminal:
  $lowkey generate $to\"The old king\"
  $lowkey generate $to--attention atp --rank 1/4 --block 128 --max-new-tokens 1500 \"The old king\"
  $lowkey --help"
wait "$server"
