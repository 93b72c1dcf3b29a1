# attnc run --device cpu: the emulator on the very PTX, against the reference.
. "$ROOT/tests/cli/lib.sh"
specs=$ROOT/specs

run run "$specs/causal.attn" --device cpu --target sm_80 --q-len 17 --check
status_is 0
out_has "code for sm_80"
out_has "check: passed"
run run "$specs/sliding_window.attn" --device cpu --target sm_80 --param window=9 --q-len 70 \
    --kv-len 90 --heads 4 --kv-heads 2 --check --json --emulator-seed 11
status_is 0
json 'd["check"]["passed"] and d["check"]["o_error"] > 0 and d["target"] == "sm_80"'
json 'd["run"]["mma_flop"] > 0 and d["run"]["reports"] == []'
run run "$specs/document.attn" --device cpu --target sm_80 --q-len 40 --tensor doc=random:0..2 --check
status_is 0

# Both memory orders give the same numbers.
run run "$specs/softcap.attn" --device cpu --q-len 33 --heads 2 --layout bhsd --o a.npy --lse c.npy
status_is 0
run run "$specs/softcap.attn" --device cpu --q-len 33 --heads 2 --layout bshd --o b.npy --lse d.npy
status_is 0
holds "O does not depend on the layout" cmp a.npy b.npy
holds "LSE does not depend on the layout" cmp c.npy d.npy

# Rows without a key are exact.
printf 'attention a { dtype f16; head_dim 64; target sm_80; mask kv > q + 3; }\n' >a.attn
run run a.attn --device cpu --q-len 20 --check
status_is 0
out_has "4 empty (exact)"

run run "$specs/causal.attn" --device cpu --target sm_80 --q-len 17 --trace trace.json
status_is 0
holds "the trace is JSON" python3 -m json.tool trace.json
run run a.attn --device cpu --schedule 'tile 128, 128; stages 8'
status_is 1
finish
