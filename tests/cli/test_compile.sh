# attnc FILE: outputs by extension, stages, dumps, several targets, modules.
. "$ROOT/tests/cli/lib.sh"
causal=$ROOT/specs/causal.attn

run "$causal" -o causal.ptx --target sm_80 -v
status_is 0
out_is_empty
err_has "causal for sm_80 in "
holds "PTX for sm_80" grep -q '^\.target sm_80' causal.ptx
run "$causal" --emit=ptx --target sm_80
status_is 0
holds "--emit=ptx is the same" cmp stdout causal.ptx
run "$causal" --emit=ptx -o - --target sm_80
holds "-o - is the same" cmp stdout causal.ptx
run_input "$causal" - --emit=ptx --target sm_80
status_is 0
out_has ".target sm_80"

for stage in attn mask-blocks tile online-softmax fold-scale pipeline; do
    run "$causal" --emit=$stage
    status_is 0
    out_has "module"
    err_is_empty
done
run "$causal" --emit=pipeline --target sm_80 -o pipeline.mlir
run "$causal" --target sm_80 -o last.mlir
holds ".mlir is the module after the last pass" cmp pipeline.mlir last.mlir

# A spec without targets is compiled for sm_90a (docs/language.md, Targets).
run "$causal" --emit=ptx
status_is 0
out_has ".target sm_90a"

run "$causal" --dump-all dumps --target sm_80
status_is 0
holds "the first stage" test -s dumps/00-attn.mlir
holds "the PTX" cmp dumps/*-ptx.ptx causal.ptx
holds "the last pass" cmp dumps/*-pipeline.mlir last.mlir
run "$causal" --dump-all dumps/no/such
status_is 1
err_has "cannot make the folder 'dumps/no/such'"

# A dump is read back, passes run on it, and PTX comes out.
run --list-passes
status_is 0
out_has "online-softmax"
run dumps/*-fold-scale.mlir --run-pass=rescale,pipeline -o again.mlir
status_is 0
holds "a module continues where it stopped" grep -q attn.copy_async again.mlir
run last.mlir -o again.ptx
status_is 0
holds "PTX from a module" grep -q '^\.target sm_80' again.ptx
run last.mlir --run-pass=cse,canonicalize
status_is 0
out_has "module"
run last.mlir --run-pass=cze
status_is 2
err_has "unknown pass 'cze' of --run-pass"
run last.mlir -o x.cubin
status_is 2
run last.mlir --target sm_80 -o x.ptx
status_is 2
err_has "--target has no meaning for the module"
printf 'module { nonsense }\n' >bad.mlir
run bad.mlir --run-pass=cse
status_is 1
err_has "bad.mlir"

# One file per target.
sed 's/head_dim/target sm_80;\n    head_dim/' "$causal" >one.attn
run one.attn -o one.ptx
status_is 0
holds "one target, one name" test -s one.ptx
run "$causal" --schedule 'tile 128, 128; stages 8' -o x.ptx
status_is 1
holds "nothing is written after an error" test ! -e x.ptx
run "$causal" -o /nonexistent/x.ptx
status_is 1
err_has "cannot open '/nonexistent/x.ptx': No such file or directory"
run "$ROOT/tests/cli/missing.attn" -o x.ptx
status_is 1
err_has "cannot open"

# Cubin and header where the machine can assemble; otherwise it says what is missing.
run "$causal" -o causal.cubin --target sm_80
if [ "$status" = 3 ]; then
    err_has "attnc: error: "
    skip "no nvJitLink and no ptxas"
else
    status_is 0
    holds "the cubin is an ELF file" sh -c 'head -c 4 causal.cubin | grep -q ELF'
    run "$causal" -o causal.h --target sm_80
    status_is 0
    holds "the header compiles" sh -c 'test ! -e /usr/local/cuda/include/cuda.h ||
        echo "#include \"causal.h\"" | ${CC:-cc} -std=c99 -fsyntax-only -I. -I/usr/local/cuda/include -x c -'
fi
finish
