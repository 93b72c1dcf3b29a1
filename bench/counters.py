#!/usr/bin/env python3
"""What bounds our kernels: counters of a launch (ncu), and the power and clock of many.

    python3 bench/counters.py --out bench/results/counters.json
                              [--target sm_90a] [--only NAME,...] [--size B,S,H,D]...
                              [--schedule '...']... [--library PATH]... [--quick]
                              [--ncu PATH]

The cases are those of compare.py's set flex (B2 S8192 H16 D128; window 128: H32 D64), or
of other sizes.  Several sizes, schedules ('' is the planner's own) and libraries are
counted against each other.  ncu runs this script again and counts launches of the kernel
that does the work, with the clock left as it is; the middle one of each counter:

    cycles         from the launch to the end of the last multiprocessor
    busy           mean over multiprocessors of the cycles in which it had a CTA, of those
    tensor         cycles in which the tensor pipe works, of all
    issue          issue slots taken while a multiprocessor is busy
    L2, DRAM       bytes to and from the L2 cache, and to and from memory
    stalls         what warps wait for, in warps for each instruction issued, the four largest

Then the launches run back to back for a second without ncu, their time, the SM clock and
the board's power being read meanwhile (nvidia-smi).  --quick: cycles, busy and the time
of the counted launches only, a fraction of a second for each variant.
"""
import argparse
import csv
import io
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import attn  # noqa: E402
import compare  # noqa: E402
import torch  # noqa: E402

SIZES = {name: [2, 8192, 16, 128] for name in compare.SPECS}
SIZES["window128"] = [2, 8192, 32, 64]
STALLS = ["barrier", "branch_resolving", "dispatch_stall", "long_scoreboard",
          "math_pipe_throttle", "mio_throttle", "no_instruction", "not_selected",
          "short_scoreboard", "wait"]
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
QUICK = {"cycles": "sm__cycles_elapsed.max", "active": "sm__cycles_active.avg",
         "us": "gpu__time_duration.sum"}
METRICS = {**QUICK,
           "tensor": "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_elapsed",
           "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
           "l2": "lts__t_bytes.sum", "read": "dram__bytes_read.sum",
           "write": "dram__bytes_write.sum",
           **{"stall_" + name: STALL.format(name) for name in STALLS}}
LAUNCHES = 5
POWER = "clocks.sm,power.draw.instant"


def variants(args):
    """[(case, size, schedule, library)]; None: the default."""
    names = args.only.split(",") if args.only else list(SIZES)
    return [(name, size or SIZES[name], schedule or None, library)
            for name in names
            for size, schedule, library in itertools.product(
                args.size or [None], args.schedule or [None], args.libattn or [None])]


def call_of(variant, args):
    name, size, schedule, library = variant
    options = argparse.Namespace(target=args.target, schedule=schedule)
    _, call, _ = compare.ours(attn.Library(library), compare.Case(name, *size), options)
    return call


def probe(args):
    """What ncu watches; `ours` has launched once."""
    for variant in variants(args):
        call = call_of(variant, args)
        for _ in range(LAUNCHES - 1):
            call()
        torch.cuda.synchronize()


def count(args):
    """Of each variant {short name: the middle value}, kernel included."""
    metrics = QUICK if args.quick else METRICS
    names = "|".join(sorted({variant[0] for variant in variants(args)}))
    command = [args.ncu, "--csv", "--print-units", "base", "--clock-control", "none",
               "--kernel-name-base", "function", "-k", f"regex:^({names})(.tile.*)?$",
               "--metrics", ",".join(metrics.values()),
               sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--probe"]
    out = subprocess.run(command, capture_output=True, text=True).stdout
    rows = list(csv.reader(io.StringIO(out[out.find('"ID"'):])))
    launches = {}
    if len(rows) > 1:
        at = {title: i for i, title in enumerate(rows[0])}
        for row in rows[1:]:
            launch = launches.setdefault(int(row[at["ID"]]), {})
            launch["kernel"] = row[at["Kernel Name"]]
            launch[row[at["Metric Name"]]] = float(row[at["Metric Value"]].replace(",", ""))
    counted = [launches[i] for i in sorted(launches)]
    if len(counted) != LAUNCHES * len(variants(args)):
        sys.exit(f"counters.py: ncu counted {len(counted)} launches, not {LAUNCHES} of each "
                 f"of {len(variants(args))} variants; it said:\n{out[-2000:]}")
    found = []
    for i in range(0, len(counted), LAUNCHES):
        group = counted[i:i + LAUNCHES]
        middle = {short: statistics.median(launch[metric] for launch in group)
                  for short, metric in metrics.items()}
        found.append({**middle, "kernel": group[0]["kernel"]})
    return found


def sustained(variant, args):
    """Microseconds of a launch, MHz and W while they run back to back."""
    graph = compare.graph_of(call_of(variant, args))
    compare.loop_ms(graph, 0.3)
    samples, times = [], []

    def sample():
        for _ in range(5):
            line = subprocess.run(["nvidia-smi", "--query-gpu=" + POWER,
                                   "--format=csv,noheader,nounits"],
                                  capture_output=True, text=True, check=True).stdout
            samples.append([float(word) for word in line.splitlines()[0].split(",")])
    reader = threading.Thread(target=sample)
    reader.start()
    while reader.is_alive() or len(times) < 5:
        times.append(compare.loop_ms(graph, 0.1) / compare.GRAPH_LAUNCHES)
    reader.join()
    clock, power = (statistics.median(column) for column in zip(*samples))
    return {"us": round(1e3 * statistics.median(times), 1), "mhz": clock, "watt": power}


def counted_row(variant, found):
    name, size, schedule, library = variant
    row = {"case": name, "size": size}
    if schedule:
        row["schedule"] = schedule
    if library:
        row["library"] = library
    return {**row, "kernel": found["kernel"], "cycles": int(found["cycles"]),
            "busy_pct": round(100 * found["active"] / found["cycles"], 1),
            "us": round(found["us"] / 1e3, 1)}


def add_rest(row, found, back):
    stalls = {key[6:]: round(value, 2) for key, value in found.items()
              if key.startswith("stall_")}
    top = sorted(stalls, key=stalls.get, reverse=True)[:4]
    row.update({"tensor_pct": round(found["tensor"], 1), "issue_pct": round(found["issue"], 1),
                "l2_mb": round(found["l2"] / 1e6), "dram_read_mb": round(found["read"] / 1e6),
                "dram_write_mb": round(found["write"] / 1e6),
                "stalls": {key: stalls[key] for key in top}, "sustained": back})


def show(row):
    text = (f"{row['case']:16} {'x'.join(map(str, row['size'])):14} {row['kernel'][:34]:34} "
            f"{row.get('schedule', ''):34} {row.get('library', ''):20} "
            f"{row['cycles']:8} cycles  busy {row['busy_pct']:5} %  {row['us']:7} us")
    if "sustained" in row:
        back = row["sustained"]
        text += (f"  tensor {row['tensor_pct']:5} %  issue {row['issue_pct']:5} %  "
                 f"L2 {row['l2_mb']:5} MB  "
                 f"DRAM {row['dram_read_mb']} + {row['dram_write_mb']} MB  back to back "
                 f"{back['us']:7} us at {back['mhz']:.0f} MHz {back['watt']:.0f} W  "
                 + " ".join(f"{key} {value}" for key, value in row["stalls"].items()))
    print(text, flush=True)


def size(text):
    words = text.split(",")
    if len(words) != 4 or not all(word.isdigit() and int(word) > 0 for word in words):
        raise argparse.ArgumentTypeError(f"'{text}': must be B,S,H,D, four numbers")
    return [int(word) for word in words]


def find_ncu():
    found = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    return found if os.path.exists(found) else None


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out")
    ap.add_argument("--target", default="sm_90a")
    ap.add_argument("--only", help="names of cases, comma separated")
    ap.add_argument("--size", type=size, metavar="B,S,H,D", action="append",
                    help="of every case")
    ap.add_argument("--schedule", action="append")
    ap.add_argument("--library", dest="libattn", action="append", help="path of libattn.so")
    ap.add_argument("--quick", action="store_true", help="cycles only")
    ap.add_argument("--ncu", default=find_ncu(), help="path of Nsight Compute's ncu")
    ap.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    args = ap.parse_args()
    for name in args.only.split(",") if args.only else []:
        if name not in SIZES:
            ap.error(f"no case {name}; there are {', '.join(SIZES)}")
    if args.probe:
        return probe(args)
    if not args.ncu:
        ap.error("no ncu on the path; give --ncu PATH")
    rows = []
    for variant, found in zip(variants(args), count(args)):
        row = counted_row(variant, found)
        if not args.quick:
            add_rest(row, found, sustained(variant, args))
        show(row)
        rows.append(row)
    if args.out:
        with open(args.out, "w") as f:
            json.dump({"machine": compare.machine(),
                       "attn": attn.Library().version(), "rows": rows}, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
