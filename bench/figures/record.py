# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the commands whose figures documents print, and records their results."""
import json, os, pathlib, re, statistics, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORDED = ROOT / "bench" / "figures" / "results"
LONGHAUL = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "longhaul"
SEVEN = ["reno", "hstcp", "scalable", "fast", "bic", "htcp", "cubic"]
ALL = "|".join(SEVEN)

# Scenarios: the arguments of `longhaul lab run`, and the metrics that documents print.
LAB = {
    "today-fast": ("today-fast", ["goodput_bps"]),
    "jgn2-single": (f"jgn2-single --simulate --filter control={ALL}",
                    ["to_90_percent_s", "utilisation_ratio", "second_half_bps", "retransmits"]),
    "jgn2-rtt-fairness": (f"jgn2-rtt-fairness --simulate --filter control={ALL}", ["rtt_gain_ratio"]),
    "jgn2-delay-switch": (f"jgn2-delay-switch --simulate --filter control={ALL}", ["switched_bps"]),
    "jgn2-rate-switch": (f"jgn2-rate-switch --simulate --filter control={ALL}", ["to_return_s"]),
    "jgn2-coexistence-180ms": (
        f"jgn2-coexistence --simulate --set delay=90ms --set queue=0.1bdp --set duration=120s "
        f"--filter first={ALL} --filter second={ALL}", ["goodput_bps"]),
    "reservoir-spacing": ("reservoir-spacing --simulate", ["goodput_bps", "slow_start_peak_bytes"]),
}

# Scenarios on real traffic. They need root and a machine with no other work.
MEASURED = {
    "demo": ("demo --repetitions 3", ["goodput_bps", "dvd_s"]),
    "nec-dvd": ("nec-dvd", ["goodput_bps"]),
    "nec-clients": ("nec-clients", ["goodput_bps"]),
    "relay-objects": ("relay-objects --filter access=1ms", ["first_byte_s", "download_s"]),
    "whole-path": ("whole-path", ["goodput_bps"]),
    "link-long-fat": ("link-long-fat --filter load=true", ["goodput_bps"]),
}

PLAN_CONTROLS = ["reno", "cubic", "hstcp", "scalable", "htcp", "bic"]
PLAN_RTTS = ["10ms", "50ms", "180ms"]
PLAN_LOSSES = ["0.001%", "0.01%", "0.1%", "1%"]
CC_ALONE = ["reno", "cubic", "lh_hstcp", "lh_scalable", "lh_htcp", "lh_bic", "lh_bic_linux", "lh_fast", "lh_trc"]
# The share of a link's rate that is TCP payload.
PAYLOAD = 1448 / 1500


def load(name):
    return json.loads((RECORDED / f"{name}.json").read_text())


def fail(text):
    sys.exit(f"bench/figures: {text}")


def longhaul(*arguments):
    return subprocess.run([LONGHAUL, *arguments], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def lab(name):
    """Runs a scenario and returns what is recorded of it."""
    arguments, metrics = (LAB | MEASURED)[name]
    with tempfile.TemporaryDirectory() as directory:
        command = [LONGHAUL, "lab", "run", *arguments.split(), "--json", "--out", directory]
        process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # Exit code 1 is a failed check, 4 an undecided one. Both have results.
    if process.returncode not in (0, 1, 4):
        fail(f"{arguments}: {process.stderr.strip().splitlines()[-1]}")
    result = json.loads(process.stdout)
    # A scenario that measures the emulator itself has no retries: its lateness is part of the measurement.
    retries_allowed = result["resolved"]["max_retries"] > 0
    cells = [lab_cell(name, cell, metrics, retries_allowed) for cell in result["cells"]]
    return {"command": f"longhaul lab run {arguments}", "cells": cells}


def lab_cell(name, cell, metrics, retries_allowed):
    """Returns the parameters and the medians of a cell, and the ranges if it is measured."""
    parameters, is_measured = cell["parameters"], name in MEASURED
    if any("failed" in run for run in cell["runs"]):
        fail(f"{name}: a run of {parameters} failed")
    if not is_measured and not cell.get("simulated"):
        fail(f"{name}: {parameters} is not simulated")
    runs = [run for run in cell["runs"] if not (is_measured and retries_allowed and run.get("overload"))]
    if len(runs) < min(2, len(cell["runs"])):
        fail(f"{name}: the emulator was late in {parameters}: run it again")
    values = {metric: [run[metric] for run in runs if metric in run] for metric in metrics}
    values = {metric: list_ for metric, list_ in values.items() if list_}
    medians = {metric: statistics.median(list_) for metric, list_ in values.items()}
    ranges = {"ranges": {metric: [min(list_), max(list_)] for metric, list_ in values.items()}} if is_measured else {}
    return {"parameters": parameters, "runs": len(runs), "medians": medians, **ranges}


def plan():
    cells = []
    for rtt in PLAN_RTTS:
        for loss in PLAN_LOSSES:
            result = json.loads(longhaul("plan", "path", "--rate", "1gbit", "--rtt", rtt, "--loss", loss,
                                         "--cc", ",".join(PLAN_CONTROLS), "--json"))
            for prediction in result["predictions"]:
                error = prediction["formula"]["goodput_bps"] / prediction["goodput_bps"] - 1
                cells.append({"parameters": {"rtt": rtt, "loss": loss, "control": prediction["cc"]}, "runs": 1,
                              "medians": {"error_ratio": error}})
    return {"command": "longhaul plan path --rate 1gbit --rtt RTT --loss LOSS --json", "cells": cells}


def simulate_flow(control, mbit, rtt, seconds, *flags):
    """Simulates one flow by `longhaul cc simulate`, as bench/simulate/run.py does."""
    output = longhaul("cc", "simulate", "--cc", control, "--rate", f"{mbit}mbit", "--rtt", rtt, "--queue", "1bdp",
                      "--duration", f"{seconds}s", "--json", *flags)
    records = [json.loads(line) for line in output.splitlines()]
    shares = [record["goodput_bps"] / (mbit * 1e6 * PAYLOAD) for record in records if record["record"] == "flow"]
    medians = {"to_90_s": next((n + 1 for n, share in enumerate(shares) if share >= 0.9), None),
               "utilisation_ratio": statistics.mean(shares), "peak_ratio": max(shares),
               "stable_ratio": statistics.median(shares[len(shares) // 2:]),
               "backoffs": sum(record["record"] == "backoff" for record in records)}
    return {"parameters": {"control": control}, "runs": 1, "medians": medians}


def cc_alone():
    return {"command": "longhaul cc simulate --rate 1000mbit --rtt 180ms --queue 1bdp --duration 120s --cc CONTROL",
            "cells": [simulate_flow(control, 1000, "180ms", 120) for control in CC_ALONE]}


def cc_shift():
    flags = ("--ack-ratio", "1", "--gro", "0ms")
    return {"command": "longhaul cc simulate --rate 100mbit --rtt 200ms --queue 1bdp --duration 40s --ack-ratio 1 "
                       "--gro 0ms --cc lh_bic:ack_shift=N",
            "cells": [simulate_flow(f"lh_bic:ack_shift={n}", 100, "200ms", 40, *flags) for n in range(1, 7)]}


DECP_LINE = re.compile(r"(\d+) Mbit/s +(\d+) (reno|cubic) +([0-9.]+) BDP (without|default) +utilisation ([0-9.]+) "
                       r"Jain ([0-9.]+) slowest/fastest ([0-9.]+) lost (\d+)")


def decp():
    """Runs a test and reads the figures that it prints. Takes two minutes, and the build of the test."""
    command = ["scripts/cargo", "test", "--locked", "-p", "longhaul-tuning", "--test", "tuning", "decp_streams", "--", "--nocapture"]
    process = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    cells = []
    for rate, streams, control, queue, mode, *found in DECP_LINE.findall(process.stdout):
        medians = dict(zip(("utilisation_ratio", "jain_ratio", "slowest_ratio", "lost"), map(float, found)))
        parameters = {"rate": int(rate), "control": control, "streams": int(streams), "queue": float(queue), "decp": mode}
        cells.append({"parameters": parameters, "runs": 3 if rate == "200" else 2, "medians": medians})
    cells.sort(key=lambda cell: json.dumps(cell["parameters"]))
    return {"command": "cargo test -p longhaul-tuning --test tuning decp_streams -- --nocapture", "cells": cells}


SIMULATED = {name: lambda name=name: lab(name) for name in LAB}
SIMULATED |= {"plan-path": plan, "cc-alone": cc_alone, "cc-ack-shift": cc_shift, "decp-streams": decp}
RUNS = SIMULATED | {name: lambda name=name: lab(name) for name in MEASURED}


def round_medians(result):
    for cell in result["cells"]:
        cell["medians"] = {name: value if value is None else float(f"{value:.6g}") for name, value in cell["medians"].items()}
    return result


def run_again(names, is_recorded):
    """Runs commands again, all simulated ones by default. Compares their results with the recorded ones, or records them."""
    differ = []
    for name in names or SIMULATED:
        if name in MEASURED and not is_recorded:
            fail(f"{name} is measured, and no two runs are the same: --record records a new one")
        result = round_medians(RUNS[name]())
        if is_recorded:
            lines = ",\n".join("  " + json.dumps(cell) for cell in result["cells"])
            (RECORDED / f"{name}.json").write_text(f'{{"command": {json.dumps(result["command"])}, "cells": [\n{lines}\n]}}\n')
        elif load(name) != result:
            differ.append(name)
        print(f"{name}: {'recorded' if is_recorded else 'differs' if name in differ else 'the same'}", flush=True)
    if differ:
        fail(f"differs from the recorded result: {', '.join(differ)} (--record records the new one; change the documents, too)")
