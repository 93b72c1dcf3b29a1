# attnc explain: plan, account, launch, block map; text and JSON.
. "$ROOT/tests/cli/lib.sh"
specs=$ROOT/specs

run explain "$specs/causal.attn" --target sm_80 --schedule 'tile 128, 64; stages 2' --q-len 512
status_is 0
err_is_empty
out_has "plan for sm_80"
out_has "128 query rows, 64 keys a block"
out_has "2 stages x (K 16384 + V 16384)"
# 2 * 128 * 64 * (128 + 128) FLOP over 2048 a cycle
out_has "4194304 FLOP"
out_has "2048 cycles"
out_has "<- bound"
out_has "per pair: score 0 operations"
out_has "u64 q, s64 q.stride[0]"
out_has "        0  ++......"
out_has "      128  ##++...."
out_has "      384  ######++"
out_has "tiles: 12 skipped (37.5 %), 8 partial (25.0 %), 12 whole (37.5 %)"
out_has "pairs: 131328 of 262144 attend (50.1 %)"
out_has "O            stored by the lanes that computed it"
out_lacks ".visible .entry"

# Two buffers of Q: O goes out by way of one of them; with one the lanes store it.
run explain "$specs/causal.attn" --target sm_90a --schedule 'tile 128, 128; stages 2'
status_is 0
out_has "2 x Q 32768"
out_has "O            by TMA, out of the shared memory of its tile's Q"
out_has "tensor map of o"
run explain "$specs/causal.attn" --target sm_90a --schedule 'tile 128, 176; stages 2'
status_is 0
out_has "shared       Q 32768"
out_has "O            stored by the lanes that computed it"
out_lacks "tensor map of o"

# The short tiles of a window have a third one where it fits.
cat >window.attn <<'EOF'
attention window { dtype bf16; head_dim 64; mask kv <= q && q - kv < 128; }
EOF
run explain window.attn --target sm_90a
status_is 0
out_has "3 x Q 32768"

run explain "$specs/causal.attn" --target sm_80 --ptx
status_is 0
out_has ".entry causal"

run explain "$specs/document.attn"
status_is 0
out_has "block map of the mask: needs --tensor doc=FILE.npy or --tensor doc=random:LO..HI"

printf 'attention a { dtype bf16; head_dim 64; param cap: f32; param n: i32; score cap * tanh(s / cap); mask kv < n; }\n' >a.attn
run explain a.attn
status_is 0
out_has "block map of the mask: needs --param cap=VALUE"
out_has "score 3 operations, 3 of them MUFU"
run explain a.attn --param cap=2 --param n=100 --kv-len 200 --q-len 10 --json
status_is 0
json 'd["block_map"]["kept_pairs"] == 1000 and d["sizes"]["kv_len"] == 200'
json 'sum(map(len, d["block_map"]["map"])) == d["block_map"]["rows"] * d["block_map"]["columns"]'
json 'd["plan"]["tile_m"] % 16 == 0 and d["kernel"] and d["account"]["bound"] in d["account"]'

run explain "$specs/causal.attn" --q-len 2000000000
status_is 0
out_has "more than 2^31 pairs"
run explain "$specs/causal.attn" --schedule 'tile 128, 128; stages 8'
status_is 1
err_has "shared"
finish
