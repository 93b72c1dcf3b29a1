#!/bin/sh
# Golden tests of diagnostics.
# usage: run.sh [--bless] ATTNC
#
# For each NAME.attn, `attnc check` must print exactly NAME.err on stderr and
# exit 1 if that holds an error, else 0.  A first line `// flags: ...` gives
# options.  Inputs too large to keep are made here (see the end).
# --bless writes the .err files instead of comparing.
bless=0
if [ "$1" = --bless ]; then bless=1; shift; fi
[ $# = 1 ] || { echo "usage: run.sh [--bless] ATTNC" >&2; exit 2; }
case $1 in /*) attnc=$1 ;; *) attnc=$PWD/$1 ;; esac
cd "$(dirname "$0")" || exit 2
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
failed=0 count=0

fail() { echo "errors: FAIL $1"; failed=$((failed + 1)); }

for file in *.attn; do
    name=${file%.attn}
    count=$((count + 1))
    flags=$(sed -n '1s,^// flags: ,,p' "$file" | tr -d '\000')
    # shellcheck disable=SC2086
    "$attnc" check $flags "$file" >"$scratch/out" 2>"$scratch/err"
    status=$?
    if [ $bless = 1 ]; then cp "$scratch/err" "$name.err"; fi
    expected=0
    if grep -q 'error: ' "$name.err"; then expected=1; fi
    cmp -s "$scratch/err" "$name.err" || {
        fail "$name"
        diff -u "$name.err" "$scratch/err"
    }
    [ $status = $expected ] || fail "$name: exit status $status, expected $expected"
    if [ -s "$scratch/out" ] && [ $expected = 1 ]; then fail "$name: text on stdout"; fi
done

# ---- inputs that are made here: NAME, a string that must be in the message ----
repeat() { head -c "$2" /dev/zero | tr '\0' "$1"; }
head='attention a { dtype bf16; head_dim 64; mask '

generated() {
    count=$((count + 1))
    timeout 60 "$attnc" check "$scratch/$1.attn" 2>"$scratch/err" >/dev/null
    status=$?
    [ $status = 1 ] || fail "$1: exit status $status, expected 1"
    grep -q -F -e "$2" "$scratch/err" || {
        fail "$1: no '$2' in"
        head -c 2000 "$scratch/err"
    }
    [ "$(wc -c <"$scratch/err")" -lt 100000 ] || fail "$1: message too long"
}

{ printf '%s' "$head"; repeat '(' 100000; printf q; repeat ')' 100000; echo ' < 3; }'; } \
    >"$scratch/parentheses.attn"
generated parentheses 'nesting deeper than 256 levels'
{ printf '%s' "$head"; repeat '(' 257; printf q; repeat ')' 257; echo ' < 3; }'; } \
    >"$scratch/parentheses-257.attn"
generated parentheses-257 'nesting deeper than 256 levels'
{ printf '%s' "$head"; repeat '!' 100000; echo 'true; }'; } >"$scratch/prefixes.attn"
generated prefixes 'nesting deeper than 256 levels'
{ printf '%s' "$head"; repeat a 10000000; echo ' < 3; }'; } >"$scratch/long-name.attn"
generated long-name 'has 10000000 bytes, the limit is 255'
{ printf '%s' "$head"; repeat 1 10000000; echo ' < q; }'; } >"$scratch/long-number.attn"
generated long-number 'integer does not fit in i32'
repeat '"' 1000001 >"$scratch/quotes.attn"
generated quotes 'string does not end on its line'
repeat '{' 1000000 >"$scratch/braces.attn"
generated braces 'expected attention, fn, const, import or extern'
head -c 1000000 /dev/zero >"$scratch/zeros.attn"
generated zeros 'NUL character in the text'
"$attnc" --version >/dev/null 2>&1
head -c 300000 "$attnc" >"$scratch/binary.attn"
generated binary 'error: '
repeat a 17000000 >"$scratch/huge.attn"
generated huge "File too large"
printf '%s q < kv' "$head" >"$scratch/truncated.attn"
generated truncated "missing '}' at the end of the file"
awk 'BEGIN { for (i = 0; i < 5000; i++) printf "const c%d = c%d;\n", i, i + 1
    print "const c5000 = 1;" }' >"$scratch/forward.attn"
generated forward 'definitions that use each other are nested too deeply'
awk -v head="$head" 'BEGIN { print head "true;"
    for (i = 0; i < 50000; i++) print "mask q < kv;"; print "}" }' >"$scratch/lines.attn"
generated lines 'the attention has more than 100000 operations'
awk -v dir="$scratch" 'BEGIN { for (i = 0; i < 70; i++) {
    file = sprintf("%s/import%d.attn", dir, i)
    printf "import \"import%d.attn\";\n", i + 1 > file; close(file) }
    print "const X = 1;" > (dir "/import70.attn") }'
generated import0 'imports are nested deeper than 64 files'
{ printf '%s' "$head"; repeat '(' 256; printf q; repeat ')' 256; echo ' < 3; }'; } \
    >"$scratch/parentheses-256.attn"
count=$((count + 1))
"$attnc" check "$scratch/parentheses-256.attn" || fail "256 parentheses are legal"

[ $failed = 0 ] || { echo "errors: $failed of $count failed"; exit 1; }
echo "errors: $count cases passed"
