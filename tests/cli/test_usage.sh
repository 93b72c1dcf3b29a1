# Exit status 2, and a message that names the option, for everything that is wrong
# with the command line itself.
. "$ROOT/tests/cli/lib.sh"
causal=$ROOT/specs/causal.attn

usage() { # usage TEXT ARGS...
    text=$1
    shift
    run "$@"
    status_is 2
    err_has "attnc: error: "
    err_has "$text"
    out_is_empty
}

usage "no input file"
usage "nothing to do" "$causal"
usage "unknown option '--frobnicate'" "$causal" --frobnicate
usage "did you mean '--kv-len'?" run "$causal" --kv-length 3
usage "unknown option '--batch'" "$causal" --batch 2 -o x.ptx
usage "unknown option '--emit' of 'attnc run'" run "$causal" --emit=ptx
usage "--q-len needs a whole number from 1" run "$causal" --q-len 0
usage "--kv-len needs a whole number from 1" run "$causal" --kv-len 1e3
usage "--batch needs N" run "$causal" --batch
usage "unknown target 'sm_81'" run "$causal" --target sm_81
usage "unknown value of --device 'npu'" run "$causal" --device npu
usage "--param w is given twice" run "$causal" --param w=1 --param w=2
usage "--tensor t is given twice" run "$causal" --tensor t=a --tensor t=b
usage "neither a number" run "$causal" --param w=wide
usage "two outputs to standard output" run "$causal" --o - --lse -
usage "two outputs to standard output" run "$causal" --o - --json
usage "has no meaning there" run "$causal" --device reference --schedule 'tile 64, 64'
usage "cannot tell from 'x.o'" "$causal" -o x.o
usage "unknown stage 'tiel' of --emit; did you mean 'tile'?" "$causal" --emit=tiel
usage "writes text" "$causal" --emit=tile -o x.cubin
usage "--run-pass works on a .mlir file" "$causal" --run-pass=cse
usage "holds no attention 'casual'; did you mean 'causal'?" run "$causal" --entry casual
usage "exclude each other" fmt -i --check "$causal"
usage "several files need -i or --check" fmt "$causal" "$causal"
usage "unknown warning 'unused'" check "$causal" -Wno-unused

# An unknown schedule key is a usage error too, whatever the command.
for command_line in "check" "run --device cpu" "explain"; do
    # shellcheck disable=SC2086
    run $command_line "$causal" --schedule 'tiel 64, 64'
    status_is 2
    err_has "tiel"
    err_has "tile"
done

printf 'attention a { dtype bf16; head_dim 64; }\nattention other { dtype f16; head_dim 64; }\n' >two.attn
usage "holds several attentions, choose one with --entry: a, other" run two.attn
run run two.attn --entry other --device reference --q-len 3
status_is 0
out_has "other on reference (fp64): f16"

run --version
status_is 0
out_has "attnc "
for word in "" check fmt explain run bench; do
    run $word --help
    status_is 0
    out_has "usage: attnc $word"
    err_is_empty
done
run fmt --help
out_lacks "--target"

# A full disk is noticed, whatever is written.
if [ -w /dev/full ]; then
    for arguments in "--version" "run --help" "$causal --emit=ptx" "explain $causal" \
        "run $causal --device reference --q-len 3" \
        "run $causal --device reference --q-len 3 --o -"; do
        command="attnc $arguments >/dev/full"
        # shellcheck disable=SC2086
        "$ATTNC" $arguments >/dev/full 2>stderr
        status=$?
        : >stdout
        status_is 1
        err_has "cannot write"
    done
fi
finish
