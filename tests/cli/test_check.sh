# attnc check: diagnostics, several files, warnings, JSON.
. "$ROOT/tests/cli/lib.sh"

run check "$ROOT"/specs/*.attn
status_is 0
out_is_empty
err_is_empty

cat >bad.attn <<'SPEC'
attention a {
    dtype bf16;
    head_dim 64;
    param unused: i32 = 3;
    mask q;
    score t;
}
SPEC
run check bad.attn
status_is 1
err_has "bad.attn:5:10: error: "
err_has "bad.attn:6:11: error: "
err_has "    mask q;"
out_is_empty

# Goes on after a file that cannot be read.
run check missing.attn bad.attn
status_is 1
err_has "attnc: error: cannot open 'missing.attn': No such file or directory"
err_has "bad.attn:5:10: error: "

printf 'attention a { dtype bf16; head_dim 64; param p: i32 = 3; }\n' >warn.attn
run check warn.attn
status_is 0
err_has "warn.attn:1:46: warning: "
err_has "[unused-param]"
run check warn.attn -Wno-unused-param
status_is 0
err_is_empty
run check warn.attn -v
err_has "warn.attn: 1 attentions, no errors"

run check --color=always bad.attn
err_has "$(printf '\033[')"
run check --color=never bad.attn
err_lacks "$(printf '\033[')"

run check --json bad.attn warn.attn missing.attn
status_is 1
err_is_empty
json 'len(d) == 3 and [f["ok"] for f in d] == [False, True, False]'
json 'd[0]["diagnostics"][0]["line"] == 5 and d[0]["diagnostics"][0]["column"] == 10'
json 'd[1]["diagnostics"][0]["warning"] == "unused-param" and d[1]["attentions"] == ["a"]'
json '"cannot open" in d[2]["diagnostics"][0]["message"]'

# A schedule that does not fit is found by check, with the numbers.
run check "$ROOT/specs/causal.attn" --schedule 'tile 128, 128; stages 8'
status_is 1
err_has "shared"
run check "$ROOT/specs/causal.attn" --schedule 'stages 0'
status_is 2

# Imports: next to the file, then -I.
mkdir lib
printf 'fn causal(q: i32, kv: i32) -> bool = kv <= q;\n' >lib/masks.attn
printf 'import "masks.attn";\nattention a { dtype bf16; head_dim 64; mask causal(q, kv); }\n' >user.attn
run check user.attn
status_is 1
err_has "masks.attn"
run check user.attn -I lib
status_is 0
run check user.attn --include lib
status_is 0

# A library is accepted, but there is nothing to run in it.
run check lib/masks.attn
status_is 0
run run lib/masks.attn
status_is 1
err_has "is a library"

# Standard input.
run_input "$ROOT/specs/causal.attn" check -
status_is 0
finish
