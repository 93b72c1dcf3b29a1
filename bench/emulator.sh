#!/bin/sh
# Speed of the emulator on one core: 1 head, 256 queries and keys, D 64, causal, all checks.
#
#     bench/emulator.sh [BUILD] >bench/results/emulator.json
set -eu
build=${1:-build}
spec=$(mktemp)
trap 'rm -f "$spec"' EXIT
echo 'attention causal { dtype bf16; head_dim 64; group any; mask kv <= q; }' >"$spec"
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
printf '{"machine": "%s", "date": "%s", "attnc": "%s",\n "command": "bench/emulator.sh",\n' \
    "$cpu" "$(date -I)" "$("$build/attnc" --version | head -1)"
printf ' "problem": "batch 1, heads 1, q_len 256, kv_len 256, D 64, causal, bf16",\n "rows": [\n'
sep=
for target in sm_80 sm_90a; do
    # Five runs, the median.
    lines=
    for run in 1 2 3 4 5; do
        out=$(/usr/bin/env time -f '%M' taskset -c 0 "$build/attnc" run "$spec" --device cpu \
            --target "$target" --q-len 256 --kv-len 256 --check -v 2>&1)
        line=$(echo "$out" | sed -n 's/^attnc: emulated \([0-9]*\) warp instructions in \([0-9.]*\) s.*/\1 \2/p')
        lines="$lines$line $(echo "$out" | sed -n 's/^check: //p') $(echo "$out" | tail -1)
"
    done
    set -- $(printf '%s' "$lines" | sort -k2n | sed -n 3p)
    printf '%s  {"target": "%s", "warp_instructions": %s, "seconds": %s, "check": "%s", "peak_mib": %s}' \
        "$sep" "$target" "$1" "$2" "$3" "$(($4 / 1024))"
    sep=',
'
done
printf '\n]}\n'
