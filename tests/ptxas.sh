#!/bin/sh
# Assembles every spec of the pattern library, as ptxas sees it: sm_80 code for 8.0 and
# for 9.0, sm_90a code whole.
# usage: ptxas.sh BUILD
#
# Fails when ptxas refuses something, serialises wgmma or ignores setmaxnreg (C7504 to
# C7514), or when a kernel spills more than SPILL_LIMIT bytes a thread (0; docs/ptx.md,
# "Registers needed").
set -u
build=${1:?usage: ptxas.sh BUILD}
limit=${SPILL_LIMIT:-0}
cd "$(dirname "$0")/.." || exit 2
ptxas=
for d in "${CUDA_HOME:-}" /usr/local/cuda; do
    [ -n "$d" ] && [ -x "$d/bin/ptxas" ] && ptxas=$d/bin/ptxas && break
done
[ -n "$ptxas" ] || ptxas=$(command -v ptxas) || {
    echo "ptxas: not found, assembling the pattern library is skipped"
    exit 0
}
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT

# One spec: a line "FAIL ..." or "spill ..." for each finding.
cat >"$scratch/one" <<'END'
file=$1 build=$2 ptxas=$3 limit=$4 scratch=$5
for name in $(sed -n 's/^attention \([a-z_0-9]*\).*/\1/p' "$file"); do
    for pair in sm_80:sm_80 sm_80:sm_90 sm_90a:sm_90a; do
        target=${pair%:*} arch=${pair#*:} out=$scratch/$name.$arch
        "$build/attnc" "$file" --entry "$name" --target "$target" -o "$out.ptx" 2>"$out.err" || {
            echo "FAIL $name $target: $(head -1 "$out.err")"; continue; }
        "$ptxas" -v -arch="$arch" "$out.ptx" -o "$out.cubin" >"$out.log" 2>&1 || {
            echo "FAIL $name $arch: $(grep -m1 -E 'error|fatal' "$out.log")"; continue; }
        if grep -qE 'C75(0[4-9]|1[0-4])' "$out.log"; then
            echo "FAIL $name $arch: $(grep -m1 -E 'C75(0[4-9]|1[0-4])' "$out.log")"
        fi
        bytes=$(sed -n 's/.*, \([0-9]*\) bytes spill stores.*/\1/p' "$out.log" | sort -n | tail -1)
        if [ "${bytes:-0}" -gt "$limit" ]; then
            echo "FAIL $name $arch: spills $bytes bytes, limit $limit"
        elif [ "${bytes:-0}" -gt 0 ]; then
            echo "spill $name $arch $bytes"
        fi
        rm -f "$out".*
    done
done
END
ls specs/*.attn | xargs -P 2 -I{} sh "$scratch/one" {} "$build" "$ptxas" "$limit" "$scratch" \
    >"$scratch/found"
sort "$scratch/found"
count=$(ls specs/*.attn | wc -l)
if grep -q '^FAIL' "$scratch/found"; then exit 1; fi
echo "ptxas: $count specs assembled for sm_80, sm_90, sm_90a; $(grep -c '^spill' "$scratch/found") small spills"
