# attnc fmt: to standard output, in place, only checked.
. "$ROOT/tests/cli/lib.sh"

printf 'attention   a{dtype bf16;head_dim 64; // dim\nmask kv<=q;}' >a.attn
run fmt a.attn
status_is 0
out_has "attention a {"
out_has "// dim"
holds "the file is untouched" grep -q '^attention   a{dtype' a.attn
cp stdout canonical.attn

run fmt --check a.attn canonical.attn
status_is 1
out_has "a.attn: not in canonical form"
out_lacks "canonical.attn"

chmod 640 a.attn
ln -s a.attn link.attn
run fmt -i link.attn -v
status_is 0
err_has "link.attn: rewritten"
holds "in place gives what standard output gave" cmp a.attn canonical.attn
holds "the mode is kept" test "$(stat -c %a a.attn)" = 640
holds "the link is kept" test -L link.attn
run fmt -i a.attn -v
err_has "a.attn: unchanged"
run fmt --check a.attn
status_is 0
out_is_empty

printf 'attention   a{dtype bf16;' >broken.attn
cp broken.attn before.attn
run fmt -i broken.attn a.attn
status_is 1
err_has "broken.attn:1:"
holds "a file with errors is left alone" cmp broken.attn before.attn
run fmt -i missing.attn
status_is 1
err_has "cannot open 'missing.attn'"
run_input before.attn fmt -i -
status_is 2
run_input canonical.attn fmt -
status_is 0
holds "standard input is formatted" cmp stdout canonical.attn
finish
