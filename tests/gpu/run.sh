#!/bin/sh
# What is run on a machine with a GPU, in one call:
#
#     tests/gpu/run.sh OUT [spec]...
#
# Needs build/tests/e2e/run (self-contained, built elsewhere), a driver, and
# for the sanitizers compute-sanitizer (else they are skipped with a word).  Writes
# OUT/e2e-TARGET.json, OUT/sanitizer.txt and OUT/e2e-TARGET.txt; prints a short table last.
# TARGETS chooses targets (default: sm_80), LIMIT the seconds of one sanitizer run (of
# racecheck: of one spec; 124 in the table means that it ran out).
# Exit 1 if anything failed.
set -u
out=${1:?usage: tests/gpu/run.sh OUT [spec]...}
shift
only=$(IFS=,; echo "$*")
targets=${TARGETS:-sm_80}
limit=${LIMIT:-120}
e2e=build/tests/e2e/run
failed=0
mkdir -p "$out"

if ! nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null; then
    echo "no GPU: nothing was run"
    exit 3
fi

# Every spec, both types, all sizes, both memory orders; every head dimension; special data.
for target in $targets; do
    start=$(date +%s)
    "$e2e" --device gpu --target "$target" ${only:+--only "$only"} \
        --json "$out/e2e-$target.json" >"$out/e2e-$target.txt" 2>&1 || failed=1
    echo "== $target: $(($(date +%s) - start)) s"
    grep '^FAIL' "$out/e2e-$target.txt" | cut -c1-300 | head -40
done

# Sanitizers on a selection that covers: plain loop, window bounds, summaries and lists, runs,
# block table, score with a table, soft-cap with D 256, padded head dimension, Dqk != Dv.
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer \
    /usr/local/cuda*/compute-sanitizer/compute-sanitizer 2>/dev/null | head -1)
selection=causal,sliding_window,document,block_sparse,sink_window,relative_bias,gemma2_local,pair_bias,mla_prefill
: >"$out/sanitizer.txt"
if [ -n "$sanitizer" ]; then
    for target in $targets; do
        for tool in memcheck racecheck initcheck; do
            poison= parts=$selection
            [ "$tool" = initcheck ] && poison=--no-poison
            # One spec at a time, and one thread: racecheck loses track of launches from
            # several, and then waits for ever.
            threads=
            [ "$tool" = racecheck ] && parts=$(echo "$selection" | tr , ' ') threads='--threads 1'
            verdict=clean
            for part in $parts; do
                echo "== $tool $target $part" >>"$out/sanitizer.txt"
                timeout "$limit" "$sanitizer" --tool "$tool" --error-exitcode 9 "$e2e" \
                    --device gpu --suite gpu --small $poison $threads --only "$part" \
                    --target "$target" >"$out/tool.txt" 2>&1
                status=$?
                tail -30 "$out/tool.txt" >>"$out/sanitizer.txt"
                [ $status -eq 0 ] && continue
                [ "$verdict" = clean ] && verdict=failed
                verdict="$verdict, $part ($status)"
                failed=1
            done
            echo "sanitizer $tool $target: $verdict"
        done
    done
    rm -f "$out/tool.txt"
else
    echo "compute-sanitizer: not found, skipped"
fi

for target in $targets; do
    grep -v '^FAIL' "$out/e2e-$target.txt" | awk '$1 == "suite" || $4 > 0 || /comparisons/' |
        head -60
done
exit $failed
