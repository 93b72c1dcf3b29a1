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

# Every type and shape: no parameters, row, column and pair arguments, more of
# them than an instruction has operands, bools in and out, a function of the score.
cat >shapes.cu <<'CUDA'
extern "C" __device__ float quarter() { return 0.25f; }
extern "C" __device__ bool even(int x) { return (x & 1) == 0; }
extern "C" __device__ bool differ(bool x, bool y) { return x != y; }
extern "C" __device__ bool near_to(int x, int y, bool wide) {
    return (x > y ? x - y : y - x) < (wide ? 40 : 20);
}
extern "C" __device__ float bend(float s, int h, float slope) {
    return s > 0.5f ? s * 0.5f + slope * h : s;
}
extern "C" __device__ int mix(int x, int y, int z, int u, float f, bool add) {
    return add ? x + 2 * y - z + 3 * u + (int)f : x - y;
}
CUDA
cat >shapes.attn <<'SPEC'
extern "shapes.cu" fn quarter() -> f32 = 0.25;
extern "shapes.cu" fn even(x: i32) -> bool = x % 2 == 0;
extern "shapes.cu" fn differ(x: bool, y: bool) -> bool = x != y;
extern "shapes.cu" fn near_to(x: i32, y: i32, wide: bool) -> bool = abs(x - y) < (wide ? 40 : 20);
extern "shapes.cu" fn bend(s: f32, h: i32, slope: f32) -> f32 = s > 0.5 ? s * 0.5 + slope * f32(h) : s;
extern "shapes.cu" fn mix(x: i32, y: i32, z: i32, u: i32, f: f32, add: bool) -> i32
    = add ? x + 2 * y - z + 3 * u + i32(f) : x - y;
attention shapes {
    dtype bf16;
    head_dim 64;
    param slope: f32;
    param wide: bool;
    score bend(s, h, slope) + quarter() + 0.01 * f32(mix(q, kv, h, kv % 5, f32(q), even(kv)));
    mask near_to(q, kv, wide) || differ(even(q), even(h));
}
SPEC
for target in sm_80 sm_90a; do
    run run shapes.attn --target $target --device cpu --q-len 70 --heads 2 \
        --param slope=0.3 --param wide=true --check
    status_is 0
    out_has "check: passed"
    run shapes.attn --target $target -o shapes.cubin
    status_is 0
done
sed 's/wide ? 40 : 20/wide ? 20 : 40/' shapes.attn >wrong.attn
run run wrong.attn --target sm_80 --device cpu --q-len 70 --heads 2 \
    --param slope=0.3 --param wide=true --check
status_is 1
out_has "check: FAILED"

# PTX has one space of names: ours in the kernel do not hide the function's.
sed 's/decay/smem/g' decay.attn >smem.attn
sed 's/decay/smem/g' decay.cu >smem.cu
run smem.attn --emit=ptx
status_is 1
err_has "extern function 'smem': the PTX of kernel 'a' calls the shared memory so"

# NVRTC's errors carry the lines of the CUDA file.
printf 'extern "C" __device__ float decay(int d) {\n    return undeclared;\n}\n' >decay.cu
run decay.attn -o bad.cubin
status_is 1
err_has "decay.cu(2)"
err_has "undeclared"
holds "nothing is written" test ! -e bad.cubin
finish
