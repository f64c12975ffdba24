#!/usr/bin/env bash
# Installs what a build needs: Debian packages, and a virtual environment with pinned, hashed Python packages.
# Usage: tools/setup.sh GROUP...   with GROUP one of build, test, demo, lint, bench.
# Finished steps leave a stamp that names their inputs, so a second run takes a moment.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${STRAKE_VENV:-.venv}"
stamps="$venv/.strake"

packages="build-essential cmake ninja-build ccache mold python3-venv
  libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev libgtest-dev libgmock-dev libbenchmark-dev
  mpich libmpich-dev lz4"

missing_packages() {
  for package in $packages; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
  done
}

install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "setup: not a Debian system; please install the equivalents of:" $packages >&2
    return
  fi
  local missing
  missing=$(missing_packages | tr '\n' ' ')
  [ -n "${missing// /}" ] || return 0
  local command="apt-get install -y --no-install-recommends $missing"
  if [ "$(id -u)" = 0 ]; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive $command >&2
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    local kept="sudo --preserve-env=http_proxy,https_proxy,no_proxy"  # as pip has them
    $kept apt-get update -qq && $kept DEBIAN_FRONTEND=noninteractive $command >&2
  else
    echo "setup: please run:  sudo $command" >&2
    exit 4
  fi
}

has_gpu() { [ -e /dev/nvidiactl ] || command -v nvidia-smi >/dev/null 2>&1; }

# Every package is listed with its hash, so --no-deps loses nothing; it keeps torch from pulling its GPU libraries.
install_requirements() {
  local file="tools/requirements/$1.txt"
  local stamp="$stamps/$1"
  shift
  [ -f "$stamp" ] && cmp -s "$file" "$stamp" && return
  echo "setup: installing $file" >&2
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes "$@" -r "$file"
  cp "$file" "$stamp"
}

# Also what test and bench stand on: torch is in it.
install_build() {
  install_requirements build
  if has_gpu; then install_requirements gpu; fi
}

# The Python side of the parity tests imports torch, which without a GPU lacks libraries it never calls.
install_stand_ins() {
  has_gpu && return
  local out="$stamps/cuda_stand_ins"
  [ -f "$stamps/stand_ins_done" ] && cmp -s tools/requirements/build.txt "$stamps/stand_ins_done" && return
  "$venv/bin/python" tools/make_cuda_stand_ins.py "$out"
  cp tools/requirements/build.txt "$stamps/stand_ins_done"
}

# Peers compile code against Python's headers when they run.
[[ " $* " != *" bench "* ]] || packages="$packages python3-dev"
install_packages
[ -x "$venv/bin/pip" ] || python3 -m venv "$venv"
mkdir -p "$stamps"
for group in "$@"; do
  case "$group" in
    build) install_build ;;
    test)
      install_build
      install_requirements test
      install_stand_ins
      ;;
    bench)
      install_build
      install_requirements bench
      DS_ACCELERATOR=cpu install_requirements deepspeed --no-build-isolation
      ;;
    demo | lint) install_requirements "$group" ;;
    *) echo "setup: unknown group '$group'" >&2; exit 2 ;;
  esac
done
