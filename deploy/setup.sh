# Functions for the scripts that set up a machine; to be sourced by bash.
# Progress goes to standard error; commands stay quiet unless they fail.

BUILD_PACKAGES=(g++ cmake ninja-build pkg-config libgrpc++-dev protobuf-compiler-grpc
  libprotobuf-dev libabsl-dev libssl-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev
  prometheus-cpp-dev libedit-dev libnghttp2-dev libboost-dev libcurl4-openssl-dev)
TEST_PACKAGES=(libgtest-dev libgmock-dev libboost-context-dev liblapacke-dev
  libsentencepiece-dev python3)

say() { printf '%s\n' "$*" >&2; }

fail() {
  say "error: $*"
  exit 1
}

# Runs a command without its output, which is shown when it fails.
quietly() {
  local log
  log=$(mktemp)
  if "$@" >"$log" 2>&1 </dev/null; then
    rm -f "$log"
    return
  fi
  tail -n 60 "$log" >&2
  rm -f "$log"
  fail "failed: $*"
}

is_installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# install_packages NAME...: those that are missing, with apt-get, through sudo unless root.
install_packages() {
  local missing=() name as_root=()
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    fail "this script installs Debian packages, and there is no apt-get; lowkey needs the" \
      "equivalents of: $*"
  for name in "$@"; do
    is_installed "$name" || missing+=("$name")
  done
  [ "${#missing[@]}" -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      fail "not root and no sudo; as root run: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  as_root+=(env DEBIAN_FRONTEND=noninteractive)
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  # sudo may have to ask for a password, so it is not silenced.
  [ "${as_root[0]}" = env ] || sudo -v || fail "sudo was refused"
  quietly "${as_root[@]}" apt-get update -q
  quietly "${as_root[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}"
}

# try_package NAME: installs a package where the distribution has one of that name; fails elsewhere.
try_package() {
  is_installed "$1" && return
  apt-cache show "$1" >/dev/null 2>&1 || return
  install_packages "$1"
}

# runtime_packages PROGRAM...: prints the Debian packages whose shared libraries the programs load,
# which have other names in every release of Debian.
runtime_packages() {
  local library
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u | while read -r library; do
    dpkg-query -S "*/$(basename "${library%/*}")/${library##*/}" | cut -d : -f 1
  done | sort -u
}

# One compiler per core, and no more than memory allows: the largest files take about 1.5 GB.
build_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ {print int($2 / 1500000)}' /proc/meminfo)
  [ "$memory" -ge 1 ] || memory=1
  echo $((cores < memory ? cores : memory))
}

# Passes on what ninja says, but of its steps only every tenth part. (Not with awk: Debian's waits
# for whole blocks of input.)
show_tenths() {
  local line tenth shown=0
  while IFS= read -r line; do
    if [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\  ]]; then
      tenth=$((10 * BASH_REMATCH[1] / BASH_REMATCH[2]))
      [ "$tenth" -gt "$shown" ] || continue
      shown=$tenth
      line="  step ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]}"
    fi
    say "$line"
  done
}

# build FOLDER TARGET...: ninja, with less to read when not on a terminal.
build() {
  local folder=$1 ninja
  shift
  ninja=(ninja -C "$folder" -j "$(build_jobs)" "$@")
  if [ -t 2 ]; then
    NINJA_STATUS='[%f/%t, %e s] ' "${ninja[@]}" >&2
  else
    local -
    set -o pipefail  # ninja's status, not what shows it
    NINJA_STATUS='[%f/%t] ' "${ninja[@]}" 2>&1 | show_tenths
  fi
}
