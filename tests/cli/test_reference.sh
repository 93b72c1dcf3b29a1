# attnc run --device reference: sizes, parameters, tensors, figures.
. "$ROOT/tests/cli/lib.sh"
specs=$ROOT/specs

run run "$specs/causal.attn" --device reference --check
status_is 0
out_has "causal on reference (fp64): bf16, head_dim 128, batch 1, heads 1, kv_heads 1, q_len 128, kv_len 128"
out_has "8256 of 16384 pairs attend (50.4 %)"
out_has "check: passed"
out_has "(bound 5.0e-03)"

run run "$specs/sliding_window.attn" --device reference --param window=16 --q-len 100 \
    --kv-len 130 --batch 2 --heads 6 --kv-heads 3 --check --json
status_is 0
json 'd["kept_pairs"] == 12 * sum(min(q, 129) - max(q - 15, 0) + 1 for q in range(100))'
json 'd["sizes"] == {"batch": 2, "heads": 6, "kv_heads": 3, "q_len": 100, "kv_len": 130}'
json 'd["check"]["passed"] and d["check"]["o_error"] < d["check"]["o_bound"] == 5e-3'

disagrees() { # disagrees TEXT ARGS...
    text=$1
    shift
    run run --device reference "$@"
    status_is 1
    err_has "attnc: error: "
    err_has "$text"
    out_is_empty
}
disagrees "no param of that name; did you mean 'window'?" "$specs/sliding_window.attn" --param windw=3
disagrees "'1.5' is no i32 value" "$specs/sliding_window.attn" --param window=1.5
disagrees "'3000000000' is no i32 value" "$specs/sliding_window.attn" --param window=3000000000
disagrees "'1e39' is no f32 value" "$specs/softcap.attn" --param cap=1e39
disagrees "tensor 'doc' is missing" "$specs/document.attn"
disagrees "no tensor of that name" "$specs/causal.attn" --tensor doc=random
disagrees "heads must be a multiple of kv_heads" "$specs/causal.attn" --heads 3 --kv-heads 2
disagrees "an i32 tensor needs a range" "$specs/document.attn" --tensor doc=random
disagrees "cannot open" "$specs/document.attn" --tensor doc=missing.npy
disagrees "cannot open 'missing.attn'" missing.attn

printf 'attention a { dtype f16; head_dim 64; group 4; param n: i32; mask kv < n; }\n' >group.attn
disagrees "param 'n' has no default: give it with --param n=VALUE" group.attn
disagrees "heads must be 4 times kv_heads" group.attn --param n=3 --heads 6 --kv-heads 3
run run group.attn --device reference --param n=3 --kv-heads 2 --json
json 'd["sizes"]["heads"] == 8'
run run group.attn --device reference --param n=3 --heads 8 --json
json 'd["sizes"]["kv_heads"] == 2'
run run group.attn --device reference --param n=0 --q-len 5 --check
status_is 0
out_has "20 empty (exact)"

printf 'attention a { dtype bf16; head_dim 64; tensor t: f32[q_len - 9]; score s + t[q]; }\n' >extent.attn
disagrees "tensor 't': extent 0 (" extent.attn --q-len 9 --tensor t=random

# Without a model an extern function cannot be evaluated here.
printf 'extern "C" __device__ float decay(int d) { return -0.1f * d; }\n' >decay.cu
printf 'extern "decay.cu" fn decay(d: i32) -> f32;\nattention a { dtype bf16; head_dim 64; score s + decay(q - kv); }\n' >extern.attn
disagrees "cannot evaluate extern fn 'decay': it has no model" extern.attn
sed 's/-> f32;/-> f32 = -0.1 * f32(d);/' extern.attn >model.attn
run run model.attn --device reference --check
status_is 0

# The same seed gives the same data, another seed does not.
run run "$specs/full.attn" --device reference --q-len 4 --o a.npy --seed 7
run run "$specs/full.attn" --device reference --q-len 4 --o b.npy --seed 7
run run "$specs/full.attn" --device reference --q-len 4 --o c.npy --seed 8
holds "equal seeds agree" cmp a.npy b.npy
holds "other seeds differ" sh -c '! cmp a.npy c.npy'
finish
