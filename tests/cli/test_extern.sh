# extern fns: CUDA C++ compiled by NVRTC, linked by nvJitLink, and their models.
. "$ROOT/tests/cli/lib.sh"

cat >decay.cu <<'CUDA'
extern "C" __device__ float decay(int d) { return -0.125f * (d < 0 ? -d : d); }
CUDA
cat >decay.attn <<'SPEC'
extern "decay.cu" fn decay(d: i32) -> f32 = -0.125 * f32(abs(d));
attention a { dtype bf16; head_dim 64; target sm_80; score s + decay(q - kv); }
SPEC
run decay.attn --emit=ptx
status_is 0
out_has ".extern .func"
out_has "decay"

run decay.attn -o decay.cubin
if [ "$status" = 3 ]; then
    err_has "attnc: error: "
    skip "no NVRTC or no nvJitLink"
    finish
    exit 0
fi
status_is 0
holds "a cubin comes out" test -s decay.cubin
run run decay.attn --device cpu --q-len 20 --check
status_is 0
out_has "check: passed"

# A model that says something else is found by --check.
sed 's/-0.125 \*/-0.25 */' decay.attn >wrong.attn
run run wrong.attn --device cpu --q-len 20 --check
status_is 1
out_has "check: FAILED"

# NVRTC's errors carry the lines of the CUDA file.
printf 'extern "C" __device__ float decay(int d) {\n    return undeclared;\n}\n' >decay.cu
run decay.attn -o bad.cubin
status_is 1
err_has "decay.cu(2)"
err_has "undeclared"
holds "nothing is written" test ! -e bad.cubin
finish
