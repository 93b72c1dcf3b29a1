"""The hand-written yardstick kernels, launched through the driver, for compare.py.

A folder holds cubins and `meta.json`: a list of objects with `name D M N threads smem
causal sched` and, for kernels that take clusters, `mcast`.  Each cubin has one entry `attn`:
bf16 forward without shared KV heads, parameters as in `Kernel.bind`, one persistent CTA a
multiprocessor.  Tiles are walked in sections of `hs` heads, so that the keys of a section
stay in the L2 cache.
"""
import ctypes as C
import json
import math
import os

import torch

BFLOAT16, SWIZZLE_128B, L2_128B = 9, 3, 2  # of cuda.h's enums
DYNAMIC_SHARED = 8                         # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
SECTION_BYTES = 32 << 20                   # K and V of a section of heads, causal


class Kernel:
    """One cubin of the folder."""

    def __init__(self, folder, meta):
        if meta.get("mcast", 1) > 1:
            raise RuntimeError(f"{meta['name']}: takes clusters of {meta['mcast']} CTAs, and "
                               "this launches single ones")
        self.cuda = C.CDLL("libcuda.so.1")
        self.meta = meta
        with open(os.path.join(folder, meta["name"] + ".cubin"), "rb") as f:
            image = f.read()
        self.module, self.function = C.c_void_p(), C.c_void_p()
        self.check(self.cuda.cuModuleLoadData(C.byref(self.module), image))
        self.check(self.cuda.cuModuleGetFunction(C.byref(self.function), self.module, b"attn"))
        self.check(self.cuda.cuFuncSetAttribute(self.function, DYNAMIC_SHARED, meta["smem"]))
        self.counter = torch.zeros(8, dtype=torch.int64, device="cuda")

    def check(self, code):
        if code:
            text = C.c_char_p()
            self.cuda.cuGetErrorString(code, C.byref(text))
            raise RuntimeError(f"{self.meta['name']}: {text.value}")

    def tensor_map(self, t, rows):
        """5-D {64, S, D/64, H, B} with a box of `rows` rows; (buffer, its address)."""
        buffer = C.create_string_buffer(128 + 64)
        address = (C.addressof(buffer) + 63) & ~63
        B, H, S, D = t.shape
        dims = (C.c_uint64 * 5)(64, S, D // 64, H, B)
        strides = (C.c_uint64 * 4)(t.stride(2) * 2, 128, t.stride(1) * 2, t.stride(0) * 2)
        box = (C.c_uint32 * 5)(64, rows, D // 64, 1, 1)
        steps = (C.c_uint32 * 5)(1, 1, 1, 1, 1)
        self.check(self.cuda.cuTensorMapEncodeTiled(
            C.c_void_p(address), BFLOAT16, 5, C.c_void_p(t.data_ptr()), dims, strides, box,
            steps, 0, SWIZZLE_128B, L2_128B, 0))
        return buffer, address

    def bind(self, q, k, v, o, lse):
        """A function that launches on the current stream."""
        B, H, S, D = q.shape
        m, heads = self.meta, B * H
        q_tiles, blocks = -(-S // m["M"]), -(-S // m["N"])
        section = min(heads, max(1, SECTION_BYTES // (S * D * 4))) if m["causal"] else 1
        while heads % section:
            section -= 1
        maps = [self.tensor_map(t, rows) for t, rows in ((q, 64), (k, m["N"]), (v, m["N"]))]
        values = [C.c_uint64(t.data_ptr()) for t in (o, lse, self.counter)]
        values += [C.c_uint32(x) for x in (S, H, q_tiles, blocks, q_tiles * heads, section)]
        values += [C.c_uint64(o.stride(axis) * 2) for axis in (2, 1, 0)]
        values += [C.c_float(math.log2(math.e) / math.sqrt(D))]
        pointers = [address for _, address in maps] + [C.addressof(x) for x in values]
        params = (C.c_void_p * len(pointers))(*pointers)
        grid = min(torch.cuda.get_device_properties(0).multi_processor_count, q_tiles * heads)

        def launch():
            stream = C.c_void_p(torch.cuda.current_stream().cuda_stream)
            self.check(self.cuda.cuLaunchKernel(self.function, grid, 1, 1, m["threads"], 1, 1,
                                                m["smem"], stream, params, None))
        launch.keep = maps, values
        return launch


def metas(folder, head_dim, causal):
    """Of the kernels for this head dimension and mask."""
    with open(os.path.join(folder, "meta.json")) as f:
        return [meta for meta in json.load(f)
                if meta["D"] == head_dim and bool(meta["causal"]) == causal]
