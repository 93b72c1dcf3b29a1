#!/usr/bin/env python3
"""What bounds our kernels: counters of one launch (ncu), and the power and clock of many.

    python3 bench/counters.py --out bench/results/counters.json
                             [--target sm_90a] [--schedule '...'] [--only NAME,...]
                             [--size B,S,H,D] [--library PATH] [--ncu PATH]

The cases are those of compare.py's set flex (B2 S8192 H16 D128; window 128: H32 D64), or
of another size.  ncu runs this script again and counts a launch of the kernel that does the work,
after two that are not counted, with the clock left as it is:

    cycles         from the launch to the end of the last multiprocessor
    busy           mean over multiprocessors of the cycles in which it had a CTA, of those
    tensor         cycles in which the tensor pipe works, of all
    issue          issue slots taken while a multiprocessor is busy
    L2, DRAM       bytes to and from the L2 cache, and to and from memory
    stalls         what warps wait for, in warps for each instruction issued, the four largest

Then the launches run back to back for a second without ncu, their time, the SM clock and
the board's power being read meanwhile (nvidia-smi).
"""
import argparse
import csv
import io
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

SIZES = {name: (2, 8192, 16, 128) for name in compare.SPECS}
SIZES["window128"] = (2, 8192, 32, 64)
STALLS = ["barrier", "branch_resolving", "dispatch_stall", "long_scoreboard",
          "math_pipe_throttle", "mio_throttle", "no_instruction", "not_selected",
          "short_scoreboard", "wait"]
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
METRICS = {"cycles": "sm__cycles_elapsed.max", "active": "sm__cycles_active.avg",
           "us": "gpu__time_duration.sum",
           "tensor": "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_elapsed",
           "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
           "l2": "lts__t_bytes.sum", "read": "dram__bytes_read.sum",
           "write": "dram__bytes_write.sum"}
METRICS.update({"stall_" + name: STALL.format(name) for name in STALLS})
LAUNCHES = 3
POWER = "clocks.sm,power.draw.instant"


def call_of(name, args):
    case = compare.Case(name, *(args.size or SIZES[name]))
    _, call, _ = compare.ours(attn.Library(args.libattn), case, args)
    return call


def probe(args):
    """What ncu watches: `ours` has launched once."""
    call = call_of(args.probe, args)
    for _ in range(LAUNCHES - 1):
        call()
    torch.cuda.synchronize()


def counters(name, args):
    """{short name: value} of the last launch of the case's kernel."""
    command = [args.ncu, "--csv", "--print-units", "base", "--clock-control", "none",
               "--kernel-name-base", "function", "-k", f"regex:^{name}(.tile.*)?$",
               "--launch-skip", str(LAUNCHES - 1), "--metrics", ",".join(METRICS.values()),
               sys.executable, os.path.abspath(__file__), "--probe", name]
    for option, value in (("--target", args.target), ("--schedule", args.schedule),
                          ("--library", args.libattn),
                          ("--size", args.size and ",".join(map(str, args.size)))):
        if value:
            command += [option, value]
    out = subprocess.run(command, capture_output=True, text=True).stdout
    rows = list(csv.reader(io.StringIO(out[out.find('"ID"'):])))
    if len(rows) < 2:
        sys.exit(f"counters.py: ncu counted no launch of {name}; it said:\n{out[-2000:]}")
    name_at, value_at = rows[0].index("Metric Name"), rows[0].index("Metric Value")
    kernel_at = rows[0].index("Kernel Name")
    values = {row[name_at]: float(row[value_at].replace(",", "")) for row in rows[1:]}
    found = {short: values[metric] for short, metric in METRICS.items()}
    found["kernel"] = rows[-1][kernel_at]
    return found


def sustained(name, args):
    """Microseconds of a launch, MHz and W while they run back to back."""
    graph = compare.graph_of(call_of(name, args))
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


def profile(name, args):
    found = counters(name, args)
    stalls = {key[6:]: round(value, 2) for key, value in found.items()
              if key.startswith("stall_")}
    top = sorted(stalls, key=stalls.get, reverse=True)[:4]
    row = {"case": name, "size": args.size or SIZES[name], "kernel": found["kernel"], "cycles": int(found["cycles"]),
           "busy_pct": round(100 * found["active"] / found["cycles"], 1),
           "tensor_pct": round(found["tensor"], 1), "issue_pct": round(found["issue"], 1),
           "us": round(found["us"] / 1e3, 1), "l2_mb": round(found["l2"] / 1e6),
           "dram_read_mb": round(found["read"] / 1e6),
           "dram_write_mb": round(found["write"] / 1e6),
           "stalls": {key: stalls[key] for key in top}, "sustained": sustained(name, args)}
    back = row["sustained"]
    print(f"{name:16} {row['cycles']:8} cycles  busy {row['busy_pct']:5} %  "
          f"tensor {row['tensor_pct']:5} %  issue {row['issue_pct']:5} %  "
          f"L2 {row['l2_mb']:5} MB  DRAM {row['dram_read_mb']} + {row['dram_write_mb']} MB  "
          f"{row['us']:7} us, back to back {back['us']:7} us at {back['mhz']:.0f} MHz "
          f"{back['watt']:.0f} W  " + " ".join(f"{k} {v}" for k, v in row["stalls"].items()),
          flush=True)
    return row


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
    ap.add_argument("--schedule")
    ap.add_argument("--only", help="names of cases, comma separated")
    ap.add_argument("--size", type=size, metavar="B,S,H,D", help="of every case")
    ap.add_argument("--library", dest="libattn", help="path of libattn.so")
    ap.add_argument("--ncu", default=find_ncu(), help="path of Nsight Compute's ncu")
    ap.add_argument("--probe", help=argparse.SUPPRESS)
    args = ap.parse_args()
    if args.probe:
        return probe(args)
    if not args.ncu:
        ap.error("no ncu on the path; give --ncu PATH")
    names = args.only.split(",") if args.only else list(SIZES)
    for name in names:
        if name not in SIZES:
            ap.error(f"no case {name}; there are {', '.join(SIZES)}")
    rows = [profile(name, args) for name in names]
    if args.out:
        with open(args.out, "w") as f:
            json.dump({"machine": compare.machine(),
                       "attn": attn.Library(args.libattn).version(), "rows": rows},
                      f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
