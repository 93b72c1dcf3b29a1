# attnc run --device gpu and bench: on a GPU, or exit 3 saying what is missing.
. "$ROOT/tests/cli/lib.sh"
specs=$ROOT/specs

run run "$specs/causal.attn" --device gpu --q-len 100 --check
if [ "$status" = 3 ]; then
    err_has "attnc: error: "
    out_is_empty
    run bench "$specs/causal.attn" --json
    status_is 3
    skip "no GPU"
    finish
    exit 0
fi
status_is 0
out_has "check: passed"
run run "$specs/document.attn" --device gpu --q-len 300 --tensor doc=random:0..3 --heads 4 --kv-heads 2 --layout bshd --check --json
status_is 0
json 'd["check"]["passed"] and d["run"]["gpu"]'
run bench "$specs/causal.attn" "$specs/full.attn" --q-len 1024 --heads 4 --seconds 0.1 --json
status_is 0
json 'len(d) == 2 and d[0]["tflops"] > 0 and d[0]["kept_pairs"] == 4 * 1024 * 1025 / 2'
json 'd[0]["fastest_seconds"] <= d[0]["median_seconds"] <= d[0]["slowest_seconds"]'
run run "$specs/causal.attn" --device gpu --target sm_100a
status_is 1
finish
