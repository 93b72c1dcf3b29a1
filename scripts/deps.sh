#!/bin/sh
# Install from Debian, by name, what the build and the tests need and what is
# missing.  Does nothing (and needs no network) when all of it is there.
set -eu

packages="gcc g++ make binutils pkg-config xxd flex bison
libmlir-22-dev llvm-22-dev llvm-22-tools mlir-22-tools
libdlpack-dev libxxhash-dev libcriterion-dev zlib1g-dev libzstd-dev"

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "deps: not a Debian system; install these packages' equivalents by hand:" >&2
    echo "$packages" >&2
    exit 0
fi

missing=""
for p in $packages; do
    if [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null || true)" != installed ]; then
        missing="$missing $p"
    fi
done
[ -n "$missing" ] || exit 0

sudo=""
if [ "$(id -u)" -ne 0 ]; then
    sudo=$(command -v sudo) || {
        echo "deps: run as root or install sudo; missing:$missing" >&2
        exit 1
    }
fi
echo "deps: installing$missing"
$sudo apt-get update -qq
# shellcheck disable=SC2086 # a list of words
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
