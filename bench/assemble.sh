#!/bin/sh
# Where a cold start goes, without a GPU: seconds on one core from spec to PTX and, for each
# kernel of the program alone (as the runtime does) and for all, from PTX to
# cubin.  The best of five runs each.
#
#     bench/assemble.sh [BUILD] >bench/results/assemble.json
set -eu
build=${1:-build}
ptxas=${CUDA_HOME:-/usr/local/cuda}/bin/ptxas
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)

# Seconds of a command, the best of five.
best() {
    for run in 1 2 3 4 5; do
        start=$(date +%s%N)
        taskset -c 0 "$@" >/dev/null 2>&1
        end=$(date +%s%N)
        echo $((end - start))
    done | sort -n | awk 'NR == 1 {printf "%.3f", $1 / 1e9}'
}

printf '{"machine": "%s", "date": "%s", "attnc": "%s", "ptxas": "%s",\n' "$cpu" "$(date -I)" \
    "$("$build/attnc" --version | head -1)" "$("$ptxas" --version | sed -n 's/.*, V//p')"
printf ' "command": "bench/assemble.sh",\n "rows": ['
sep=
for spec in full causal sliding_window document alibi; do
    for target in sm_80 sm_90a; do
        ptx=$dir/$spec.ptx
        emit=$(best "$build/attnc" "specs/$spec.attn" --target $target -o "$ptx")
        all=$(best "$ptxas" -arch=$target "$ptx" -o "$dir/cubin")
        printf '%s\n  {"spec": "%s", "target": "%s", "ptx_s": %s, "cubin_s": %s, "kernels": {' \
            "$sep" "$spec" "$target" "$emit" "$all"
        sep=, comma=
        for kernel in $(sed -n 's/^\.visible \.entry \([^(]*\)(.*/\1/p' "$ptx"); do
            printf '%s"%s": %s' "$comma" "$kernel" \
                "$(best "$ptxas" -arch=$target -e "$kernel" "$ptx" -o "$dir/cubin")"
            comma=', '
        done
        printf '}}'
    done
done
printf '\n]}\n'
