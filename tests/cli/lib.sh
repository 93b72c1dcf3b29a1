# Helpers of the script tests.  A test runs attnc with `run`, then states what it
# expects; every failure shows the command and what was found.
checks=0
failures=0
skips=
command=

# run ARGS...: runs attnc; status in $status, outputs in ./stdout and ./stderr.
run() {
    command="attnc $*"
    "$ATTNC" "$@" >stdout 2>stderr </dev/null
    status=$?
}

# run_input FILE ARGS...: the same with FILE as standard input.
run_input() {
    input=$1
    shift
    command="attnc $* <$input"
    "$ATTNC" "$@" >stdout 2>stderr <"$input"
    status=$?
}

fail() {
    failures=$((failures + 1))
    echo "FAIL $(basename "$0" .sh): $command: $1"
    sed 's/^/    stdout: /' stdout | head -n 12
    sed 's/^/    stderr: /' stderr | head -n 12
}

# The exit status.
status_is() {
    checks=$((checks + 1))
    [ "$status" = "$1" ] || fail "exit status $status, expected $1"
}

# A fixed text somewhere in standard output or standard error, or nowhere.
out_has() {
    checks=$((checks + 1))
    grep -qF -e "$1" stdout || fail "standard output lacks '$1'"
}
err_has() {
    checks=$((checks + 1))
    grep -qF -e "$1" stderr || fail "standard error lacks '$1'"
}
out_lacks() {
    checks=$((checks + 1))
    ! grep -qF -e "$1" stdout || fail "standard output has '$1'"
}
err_lacks() {
    checks=$((checks + 1))
    ! grep -qF -e "$1" stderr || fail "standard error has '$1'"
}

# Nothing at all on a stream.
out_is_empty() {
    checks=$((checks + 1))
    [ ! -s stdout ] || fail "standard output is not empty"
}
err_is_empty() {
    checks=$((checks + 1))
    [ ! -s stderr ] || fail "standard error is not empty"
}

# true COMMAND...: any other condition, with what it means.
holds() {
    meaning=$1
    shift
    checks=$((checks + 1))
    "$@" >/dev/null 2>&1 || fail "$meaning"
}

# json EXPRESSION: a Python condition over the JSON of standard output, called `d`.
json() {
    command -v python3 >/dev/null || { skip "no python3"; return; }
    checks=$((checks + 1))
    python3 -c "import json, sys
d = json.load(open('stdout'))
sys.exit(0 if ($1) else 1)" 2>/dev/null || fail "the JSON does not satisfy: $1"
}

skip() {
    skips=" (skipped: $1)"
}

# The last line of every test.
finish() {
    [ $failures = 0 ] || { echo "FAIL $(basename "$0" .sh): $failures of $checks checks"; exit 1; }
    echo "ok   $(basename "$0" .sh): $checks checks$skips"
}
