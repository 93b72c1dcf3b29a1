#!/bin/sh
# Runs the script tests of the command line: tests/cli/run.sh BUILD [NAME...]
# Each test_NAME.sh runs in a folder of its own; one line a test, details on failure.
set -u
build=${1:-build}
[ $# -gt 0 ] && shift
root=$(cd "$(dirname "$0")/../.." && pwd)
case $build in /*) ;; *) build=$root/$build ;; esac
[ -x "$build/attnc" ] || { echo "tests/cli: $build/attnc is missing" >&2; exit 1; }
[ $# -gt 0 ] || set -- $(cd "$root/tests/cli" && ls test_*.sh | sed 's/^test_//; s/\.sh$//')
failed=0
for name in "$@"; do
    folder=$(mktemp -d)
    if (cd "$folder" && ROOT=$root ATTNC=${ATTNC:-$build/attnc} XDG_CACHE_HOME=$folder/cache \
            NO_COLOR= TERM=dumb sh "$root/tests/cli/test_$name.sh"); then
        :
    else
        failed=$((failed + 1))
    fi
    rm -rf "$folder"
done
[ $failed = 0 ] || { echo "tests/cli: $failed of $# failed"; exit 1; }
