#!/bin/sh
# What `make demo` shows: one spec compiled to PTX and to a cubin, run, and
# compared with the fp64 reference.
set -eu
build=${1:-build}
spec=specs/sliding_window.attn
out=$build/demo
mkdir -p "$out"

find_ptxas() {
    for d in "${CUDA_HOME:-}" /usr/local/cuda; do
        if [ -n "$d" ] && [ -x "$d/bin/ptxas" ]; then return 0; fi
    done
    command -v ptxas >/dev/null 2>&1
}

echo "== $spec -> PTX"
"$build/attnc" "$spec" --target sm_80 -o "$out/sliding_window.ptx"
echo "   $(wc -l <"$out/sliding_window.ptx") lines in $out/sliding_window.ptx"

if find_ptxas; then
    echo "== $spec -> cubin"
    "$build/attnc" "$spec" --target sm_80 -o "$out/sliding_window.cubin"
    echo "   $(wc -c <"$out/sliding_window.cubin") bytes in $out/sliding_window.cubin"
else
    echo "== cubin skipped: no CUDA toolkit (\$CUDA_HOME, /usr/local/cuda, ptxas on PATH)"
fi

# Without --device, run takes the GPU when there is one, else the emulator.
echo "== run and compare with the fp64 reference"
exec "$build/attnc" run "$spec" --q-len 200 --heads 2 --param window=64 --check -v
