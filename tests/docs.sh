#!/bin/sh
# Runs the examples of the manual.
# usage: docs.sh ATTNC FILE.md...
#
# Fenced blocks and what is done with them:
#   ```attn               a file: `attnc check` accepts it without a word
#   ```attn items         items: the same inside of an attention
#   ```attn error         a file with faults: the next block, ```text, is the
#                         whole output of `attnc check example.attn`
#   ```LANG file=NAME     written as NAME for the blocks that follow
# Every file that is accepted must also be laid out as `attnc fmt` does it.
[ $# -ge 2 ] || { echo "usage: docs.sh ATTNC FILE.md..." >&2; exit 2; }
case $1 in /*) attnc=$1 ;; *) attnc=$PWD/$1 ;; esac
shift
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
failed=0 count=0

fail() { echo "docs: FAIL $1"; failed=$((failed + 1)); }

# Splits a manual into blocks N.LINE.body with their info strings in N.LINE.info.
split() {
    awk -v dir="$2" '
        !inside && /^```[a-z]/ { inside = 1; n++; name = sprintf("%s/%04d", dir, n)
            print substr($0, 4) > (name ".info"); print NR > (name ".line")
            printf "" > (name ".body"); next }
        inside && /^```$/ { inside = 0; close(name ".body"); next }
        inside { print > (name ".body") }' "$1"
}

accept() { # LABEL
    if ! (cd "$work" && "$attnc" check example.attn) >"$scratch/out" 2>&1 || [ -s "$scratch/out" ]; then
        fail "$1"
        cat "$scratch/out"
        return
    fi
    (cd "$work" && "$attnc" fmt example.attn) >"$scratch/formatted" 2>&1
    cmp -s "$scratch/formatted" "$work/example.attn" || {
        fail "$1: not laid out as attnc fmt does it"
        diff "$work/example.attn" "$scratch/formatted"
    }
}

refuse() { # LABEL EXPECTED
    if (cd "$work" && "$attnc" check example.attn) >"$scratch/out" 2>&1; then
        fail "$1: accepted"
    fi
    cmp -s "$scratch/out" "$2" || {
        fail "$1: other messages"
        diff "$2" "$scratch/out"
    }
}

for manual in "$@"; do
    work=$scratch/$(basename "$manual" .md)
    mkdir -p "$work/blocks"
    split "$manual" "$work/blocks"
    pending=
    for info in "$work"/blocks/*.info; do
        base=${info%.info}
        what=$(cat "$info")
        label="$manual:$(cat "$base.line")"
        case $what in
        *file=*) cp "$base.body" "$work/${what##*file=}" ;;
        text)
            if [ "$pending" ]; then refuse "$pending" "$base.body"; fi
            pending= ;;
        "attn error")
            cp "$base.body" "$work/example.attn"
            pending=$label count=$((count + 1)) ;;
        "attn items")
            { printf 'attention example {\n    dtype    bf16;\n    head_dim 64;\n'
              sed 's/^\(.\)/    \1/' "$base.body"
              echo '}'; } >"$work/example.attn"
            count=$((count + 1))
            accept "$label" ;;
        attn)
            cp "$base.body" "$work/example.attn"
            count=$((count + 1))
            accept "$label" ;;
        esac
    done
    [ -z "$pending" ] || fail "$pending: no message follows"
done

[ $failed = 0 ] || { echo "docs: $failed of $count examples failed"; exit 1; }
[ $count -gt 0 ] || { echo "docs: no examples found"; exit 1; }
echo "docs: $count examples passed"
