#!/usr/bin/env python3
"""Time our kernels and PyTorch's side by side, in one process on one GPU.

    python3 bench/compare.py --out bench/results/compare.json
                             [--set fwd,flex,gqa,packed,tiles,start]
                             [--target sm_80] [--schedule '...'] [--only NAME,...]

Sets: fwd    full and causal against SDPA's FlashAttention-2 and cuDNN back ends, and
             with --yardstick against hand-written kernels (yardstick.py)
      flex   masks and scores against FlexAttention (torch.compile), B2 S8192 H16 D128
             (window 128: H32 D64)
      gqa    causal with 32 heads over 8 and 64 over 8 against the same without sharing
      packed few queries of 64 heads over 8: heads packed into tiles against one head a
             tile and SDPA
      tiles  the planner's schedule against --schedule, the masks and scores of flex at
             head dimensions 128 and 64
      start  spec text to the loaded kernel of a call (B2 S8192 H16) in a fresh process on
             one core, cold and from the disk cache; CPU time of a launch (through ctypes,
             which costs some of it)

A power-limited card slows down under load, so only ratios inside one run
count: contestants run in turn, several rounds over, and each one's figure is
the median of its rounds.  A turn is --warm-up seconds back to back, untimed,
so that the clock is the contestant's own and not what the one before left
(it takes some 100 ms to settle), then --slice seconds, timed.  Every second
round goes backwards: nobody shall always run behind the same neighbour.
PyTorch's kernels write no log-sum-exp under no_grad, so ours are given none to
write either; the hand-written kernels write it, and beside them ours do too.
FLOPs are 4*B*H*Sq*Skv*D times the share of pairs that the mask keeps.
Outputs are compared with the peer's before anything is timed.
"""
import argparse
import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import attn  # noqa: E402
import yardstick  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402

DEV = "cuda"
GRAPH_LAUNCHES = 20

# name: (score lines, mask lines, declarations)
SPECS = {
    "full": "",
    "causal": "mask kv <= q;",
    "window1024": "mask kv <= q && q - kv < 1024;",
    "document_causal": "tensor doc: i32[q_len]; mask kv <= q; mask doc[q] == doc[kv];",
    "prefix2048": "mask kv <= q || kv < 2048;",
    "softcap_causal": "score 30.0 * tanh(s / 30.0); mask kv <= q;",
    "alibi_causal": "tensor slope: f32[heads]; score s + slope[h] * (kv - q); mask kv <= q;",
    "relbias": "tensor bias: bf16[heads, 2 * q_len]; score s + bias[h, q - kv + q_len];",
    "block_random15": "tensor keep: bool[(q_len + 127) / 128, (kv_len + 127) / 128];"
                      " mask keep[q / 128, kv / 128];",
    "sinkwindow": "mask kv <= q && (q - kv < 1024 || kv < 64);",
    "window128": "mask kv <= q && q - kv < 128;",
    "dilated4": "mask kv <= q && (q - kv) % 4 == 0;",
}


def spec_text(name, head_dim, dtype="bf16", group="any"):
    return (f"attention {name} {{ dtype {dtype}; head_dim {head_dim}; group {group}; "
            f"{SPECS[name]} }}\n")


class Case:
    """One problem: inputs, captured tensors and FlexAttention's way to say it."""

    def __init__(self, name, B, S, H, D, H_kv=None, q_len=None):
        self.name, self.B, self.S, self.H, self.D = name, B, S, H, D
        self.H_kv, self.q_len = H_kv or H, q_len or S
        g = torch.Generator(device=DEV).manual_seed(0)

        def randn(heads, length):
            return torch.randn(B, heads, length, D, device=DEV, dtype=torch.bfloat16,
                               generator=g)
        self.q = randn(H, self.q_len)
        self.k, self.v = randn(self.H_kv, S), randn(self.H_kv, S)
        self.tensors, self.score_mod, self.mask_mod = {}, None, None
        self.describe(g)

    def describe(self, g):
        S, H = self.S, self.H
        causal = lambda b, h, q, k: q >= k  # noqa: E731
        if self.name == "causal":
            self.mask_mod = causal
        elif self.name == "window1024":
            self.mask_mod = lambda b, h, q, k: (q >= k) & (q - k < 1024)
        elif self.name == "window128":
            self.mask_mod = lambda b, h, q, k: (q >= k) & (q - k < 128)
        elif self.name == "document_causal":
            docs = torch.sort(torch.randint(0, 12, (S,), device=DEV, generator=g)).values
            self.tensors["doc"] = docs.int()
            self.mask_mod = lambda b, h, q, k: (q >= k) & (docs[q] == docs[k])
        elif self.name == "prefix2048":
            self.mask_mod = lambda b, h, q, k: (q >= k) | (k < 2048)
        elif self.name == "softcap_causal":
            self.score_mod = lambda s, b, h, q, k: 30.0 * torch.tanh(s / 30.0)
            self.mask_mod = causal
        elif self.name == "alibi_causal":
            slopes = torch.exp2(-8.0 * torch.arange(1, H + 1, device=DEV) / H).float()
            self.tensors["slope"] = slopes
            self.score_mod = lambda s, b, h, q, k: s + slopes[h] * (k - q)
            self.mask_mod = causal
        elif self.name == "relbias":
            bias = torch.randn(H, 2 * S, device=DEV, dtype=torch.bfloat16, generator=g)
            self.tensors["bias"] = bias
            self.score_mod = lambda s, b, h, q, k: s + bias[h, q - k + S]
        elif self.name == "block_random15":
            n = (S + 127) // 128
            keep = torch.rand(n, n, device=DEV, generator=g) < 0.15
            keep |= torch.eye(n, device=DEV, dtype=torch.bool)
            self.tensors["keep"] = keep
            self.mask_mod = lambda b, h, q, k: keep[q // 128, k // 128]
        elif self.name == "sinkwindow":
            self.mask_mod = lambda b, h, q, k: (q >= k) & ((q - k < 1024) | (k < 64))
        elif self.name == "dilated4":
            self.mask_mod = lambda b, h, q, k: (q >= k) & ((q - k) % 4 == 0)

    def density(self):
        if self.mask_mod is None:
            return 1.0
        qi = torch.arange(self.S, device=DEV)[:, None]
        ki = torch.arange(self.S, device=DEV)[None, :]
        zero = torch.zeros((), device=DEV, dtype=torch.int64)
        kept = sum(self.mask_mod(zero, zero, qi[i:i + 1024], ki).sum().item()
                   for i in range(0, self.S, 1024))
        return kept / self.S ** 2

    def flops(self):
        return 4 * self.B * self.H * self.q_len * self.S * self.D * self.density()


def ours(library, case, args, group="any", with_lse=False):
    """(label, function, output) of our kernel."""
    program = library.compile(spec_text(case.name, case.D, group=group), target=args.target,
                              schedule=args.schedule, name=case.name + ".attn")
    o = torch.full_like(case.q, float("nan"))
    lse = torch.empty(case.q.shape[:3], device=DEV) if with_lse else None
    plan = program.load().bind(case.q, case.k, case.v, o, lse, case.tensors)
    plan.launch()
    torch.cuda.synchronize()
    return "attn", plan.launch, o


SDPA_BACKENDS = {"flash2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def sdpa(case, label, backend):
    causal = case.name == "causal"

    def call():
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(case.q, case.k, case.v, is_causal=causal,
                                                  enable_gqa=case.H_kv != case.H)
    with torch.no_grad():
        return label, call, call()


def flex(case):
    torch._dynamo.reset()
    mask = None
    if case.mask_mod is not None:
        mask = create_block_mask(case.mask_mod, None, None, case.S, case.S, device=DEV)
    compiled = torch.compile(flex_attention)

    def call():
        return compiled(case.q, case.k, case.v, score_mod=case.score_mod, block_mask=mask,
                        enable_gqa=case.H_kv != case.H)
    with torch.no_grad():
        return "flex", call, call()


def yardsticks(case, folder):
    """Contestants of the hand-written kernels in `folder`."""
    def start(meta):
        kernel = yardstick.Kernel(folder, meta)
        o, lse = torch.empty_like(case.q), torch.empty(case.q.shape[:3], device=DEV)
        call = kernel.bind(case.q, case.k, case.v, o, lse)
        call()
        torch.cuda.synchronize()
        return kernel.meta["name"], call, o
    return [lambda meta=meta: start(meta)
            for meta in yardstick.metas(folder, case.D, case.name == "causal")]


def loop_ms(call, seconds):
    """Mean time of a launch, back to back for about `seconds`."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    stop.record()
    torch.cuda.synchronize()
    n = max(3, min(2000, int(seconds * 1e3 / max(start.elapsed_time(stop), 1e-3))))
    start.record()
    for _ in range(n):
        call()
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop) / n


def graph_of(call):
    """Launches as one CUDA graph, so that short kernels are not timed as host calls."""
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        call()
        torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(GRAPH_LAUNCHES):
            call()
    return graph.replay


def contest(contestants, args):
    """Median milliseconds per label."""
    times = {label: [] for label, _, _ in contestants}
    with torch.no_grad():
        calls = [(label, call, loop_ms(call, args.warm_up)) for label, call, _ in contestants]
        if min(ms for _, _, ms in calls) < 0.1:
            calls = [(label, graph_of(call), ms) for label, call, ms in calls]
            repeat = GRAPH_LAUNCHES
        else:
            repeat = 1
        for n in range(args.rounds):
            for label, call, _ in calls if n % 2 == 0 else calls[::-1]:
                loop_ms(call, args.warm_up)
                times[label].append(loop_ms(call, args.slice) / repeat)
    return {label: statistics.median(t) for label, t in times.items()}


def gather(makers):
    """Contestants, and the texts of those that refuse."""
    contestants, errors = [], {}
    for make in makers:
        try:
            contestants.append(make())
        except Exception as e:  # a peer that refuses a case is a fact to report
            errors[str(len(errors))] = str(e)[:300]
    return contestants, errors


def sdpa_peers(case, args):
    return [lambda label=label: sdpa(case, label, SDPA_BACKENDS[label])
            for label in args.peers.split(",") if label]


def compare(library, case, peers, args, rows):
    contestants, errors = gather(
        [lambda: ours(library, case, args, with_lse=bool(args.yardstick))] + peers)
    row = {"case": case.name, "B": case.B, "S": case.S, "H": case.H, "H_kv": case.H_kv,
           "D": case.D, "density": round(case.density(), 5), "errors": errors}
    out = {label: o for label, _, o in contestants}
    if "attn" in out:
        a = out["attn"].double()
        for label, o in out.items():
            if label != "attn":
                b = o.double()
                row["diff_" + label] = float((a - b).norm() / b.norm())
    ms = contest(contestants, args)
    for label, t in ms.items():
        row["ms_" + label] = round(t, 5)
        row["tflops_" + label] = round(case.flops() / t / 1e9, 1)
    if "attn" in ms:
        row["ratio"] = {label: round(t / ms["attn"], 4) for label, t in ms.items()
                        if label != "attn"}
    rows.append(row)
    print(f"{case.name:16} B{case.B} S{case.S} H{case.H} D{case.D}: " + "  ".join(
        f"{label} {row['tflops_' + label]}" for label in ms) + f"  {row.get('ratio')} "
        + " ".join(f"{k}={v:.2e}" for k, v in row.items() if k.startswith("diff_"))
        + (f"  errors {errors}" if errors else ""), flush=True)


def compare_tiles(library, case, args, rows):
    """What the planner gains over one schedule for all."""
    planned = argparse.Namespace(target=args.target, schedule=None)
    contestants, errors = gather([
        lambda: ("planner", *ours(library, case, planned)[1:]),
        lambda: ("pinned", *ours(library, case, args)[1:])])
    ms = contest(contestants, args)
    row = {"case": case.name, "H": case.H, "D": case.D, "errors": errors,
           "ms": {label: round(t, 5) for label, t in ms.items()}}
    if not errors:
        row["ratio"] = round(ms["pinned"] / ms["planner"], 4)
    rows.append(row)
    print(row, flush=True)


def compare_groups(library, heads, kv_heads, args, rows):
    """Causal with and without shared KV heads: what sharing costs or gains."""
    cases = {n: Case("causal", 2, 8192, heads, 128, n) for n in (heads, kv_heads)}
    contestants = [(str(n), *ours(library, case, args)[1:]) for n, case in cases.items()]
    ms = contest(contestants, args)
    ratio = ms[str(heads)] / ms[str(kv_heads)]
    row = {"case": "gqa", "H": heads, "H_kv": kv_heads, "ms": round(ms[str(kv_heads)], 5),
           "tflops": round(cases[kv_heads].flops() / ms[str(kv_heads)] / 1e9, 1),
           "speed_over_mha": round(ratio, 4)}
    rows.append(row)
    print(row, flush=True)


def start_probe(folder, target, library_path):
    """In a fresh process on one core: seconds from spec text to the loaded kernel that
    a call of B2 S8192 H16 runs, twice."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
    # The CUDA context and torch's own kernels are not ours to time.
    torch.zeros(1, dtype=torch.uint8, device=DEV)
    q, k, v, o = (torch.zeros(2, 16, 8192, 128, dtype=torch.bfloat16, device=DEV)
                  for _ in range(4))
    torch.cuda.synchronize()
    seconds, cached = [], []
    for _ in range(2):
        t0 = time.perf_counter()
        program = attn.Library(library_path, attn.CACHE_DISK, folder).compile(
            spec_text("causal", 128), target=target)
        program.load().bind(q, k, v, o)
        seconds.append(time.perf_counter() - t0)
        cached.append(program.from_cache())
    print(json.dumps({"seconds": seconds, "cached": cached, "target": program.target()}))


def start_times(library_path, args, rows):
    """Cold and cached start of a causal D128 kernel, CPU time of a launch."""
    cold, warm, target = [], [], None
    environment = dict(os.environ, CUDA_CACHE_DISABLE="1")
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, os.path.abspath(__file__), "--start-probe", folder]
            for option, value in (("--target", args.target), ("--library", args.libattn)):
                if value:
                    command += [option, value]
            child = subprocess.run(command, capture_output=True, text=True, check=True,
                                   env=environment)
            probe = json.loads(child.stdout.splitlines()[-1])
            assert probe["cached"] == [False, True], probe
            cold.append(probe["seconds"][0])
            warm.append(probe["seconds"][1])
            target = probe["target"]
    case = Case("causal", 1, 256, 2, 128)
    o = torch.empty_like(case.q)
    lse = torch.empty(1, 2, 256, device=DEV, dtype=torch.float32)
    kernel = attn.Library(library_path).compile(spec_text("causal", 128),
                                                target=args.target).load()
    plan = kernel.bind(case.q, case.k, case.v, o, lse)
    stream = torch.cuda.current_stream().cuda_stream
    launch = {}
    for label, call in (("plan", lambda: plan.launch(stream)),
                        ("checked", lambda: plan.launch_checked(stream))):
        samples = []
        for _ in range(20):
            torch.cuda.synchronize()
            t0 = time.perf_counter()
            for _ in range(50):
                call()
            samples.append((time.perf_counter() - t0) / 50)
        launch[label] = statistics.median(samples) * 1e6
    row = {"case": "start", "target": target, "cold_s": round(statistics.median(cold), 4),
           "cached_s": round(statistics.median(warm), 5),
           "launch_us_plan": round(launch["plan"], 2),
           "launch_us_checked": round(launch["checked"], 2)}
    rows.append(row)
    print(row, flush=True)


def compare_packed(library, q_len, args, rows):
    """Few queries of 64 heads over 8 on 4096 keys: heads packed into tiles (`group 8`)
    against one head a tile (`group any`) and PyTorch's kernels; GB/s of K and V."""
    case = Case("full", 64, 4096, 64, 128, 8, q_len)
    contestants = [("packed", *ours(library, case, args, group=8)[1:]),
                   ("single", *ours(library, case, args)[1:])]
    peers, errors = gather(sdpa_peers(case, args))
    contestants += peers
    expected = contestants[1][2].double()
    diff = {label: float((o.double() - expected).norm() / expected.norm())
            for label, _, o in contestants}
    assert max(diff.values()) < 0.02, diff
    ms = contest(contestants, args)
    row = {"case": "packed", "B": case.B, "H": case.H, "H_kv": case.H_kv, "q_len": q_len,
           "kv_len": case.S, "D": case.D, "diff": diff, "errors": errors}
    for label, t in ms.items():
        row["ms_" + label] = round(t, 5)
        row["gbs_" + label] = round(2 * case.k.numel() * 2 / t / 1e6, 1)
    row["ratio"] = {label: round(t / ms["packed"], 4) for label, t in ms.items()
                    if label != "packed"}
    rows.append(row)
    print(row, flush=True)


def machine():
    driver = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version",
                             "--format=csv,noheader"], capture_output=True, text=True).stdout
    return {"gpu": torch.cuda.get_device_name(0), "driver": driver.strip(),
            "torch": torch.__version__, "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(), "python": platform.python_version(),
            "date": datetime.date.today().isoformat(),
            "command": "python3 " + " ".join(sys.argv)}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out")
    ap.add_argument("--set", default="fwd,flex,start")
    ap.add_argument("--only", help="names of cases, comma separated")
    ap.add_argument("--target")
    ap.add_argument("--schedule")
    ap.add_argument("--library", dest="libattn", help="path of libattn.so")
    ap.add_argument("--slice", type=float, default=0.15, help="seconds timed a turn")
    ap.add_argument("--warm-up", type=float, default=0.1, help="seconds before them")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--peers", default="flash2,cudnn", help="of the set fwd")
    ap.add_argument("--yardstick", metavar="DIR",
                    help="of the set fwd: cubins and meta.json of hand-written kernels")
    ap.add_argument("--shapes", default="2x8192", help="BxS of the set fwd")
    ap.add_argument("--start-probe", help=argparse.SUPPRESS)
    ap.add_argument("--head-dims", default="128", help="of the set fwd")
    args = ap.parse_args()
    if args.start_probe:
        start_probe(args.start_probe, args.target, args.libattn)
        return
    sets, rows = args.set.split(","), []
    only = args.only.split(",") if args.only else None
    library = attn.Library(args.libattn)
    for D in [int(x) for x in args.head_dims.split(",")] if "fwd" in sets else []:
        for shape in args.shapes.split(","):
            B, S = map(int, shape.split("x"))
            for name in ("full", "causal"):
                case = Case(name, B, S, 2048 // D, D)
                peers = sdpa_peers(case, args)
                if args.yardstick:
                    peers += yardsticks(case, args.yardstick)
                compare(library, case, peers, args, rows)
    if "flex" in sets:
        for name in SPECS:
            if only is None or name in only:
                wide = name != "window128"
                case = Case(name, 2, 8192, 16 if wide else 32, 128 if wide else 64)
                compare(library, case, [lambda: flex(case)], args, rows)
    if "tiles" in sets:
        if not args.schedule:
            ap.error("the set tiles needs --schedule, what to compare with")
        for D in (128, 64):
            for name in SPECS:
                if only is None or name in only:
                    compare_tiles(library, Case(name, 2, 8192, 2048 // D, D), args, rows)
    if "gqa" in sets:
        for heads, kv_heads in ((32, 8), (64, 8)):
            compare_groups(library, heads, kv_heads, args, rows)
    if "packed" in sets:
        for q_len in (1, 4, 16, 64):
            compare_packed(library, q_len, args, rows)
    if "start" in sets:
        start_times(args.libattn, args, rows)
    result = {"machine": machine(), "attn": library.version(),
              "options": {k: v for k, v in vars(args).items() if k != "out"}, "rows": rows}
    if args.out:
        with open(args.out, "w") as f:
            json.dump(result, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
