#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the figures that README and docs print with the recorded results that they come from.

    bench/figures/run.py                   compare every figure with the recorded results: takes a second, needs nothing
    bench/figures/run.py --run [NAME …]    run the commands of simulated results again: the medians must be the same
    bench/figures/run.py --record [NAME …] run them again, measured ones as root, and record the results

A result is recorded as `results/NAME.json`: its command, and for each cell the parameters and the median of each metric
that a document prints. Simulated results are the same on every machine. Measured ones have minimum and maximum, too, and
run again only by name. Tables of tests are compared with the snapshots of the tests. Run `cargo build --release` before
--run or --record.
"""
import argparse, json, os, pathlib, re, statistics, subprocess, sys, tempfile

import picture

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORDED = ROOT / "bench" / "figures" / "results"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
LONGHAUL = TARGET / "longhaul"

PAPERS = "docs/experiments/papers.md"
SEVEN = ["reno", "hstcp", "scalable", "fast", "bic", "htcp", "cubic"]
ALL = "|".join(SEVEN)

# Simulated results: the arguments of `longhaul lab run`, and the metrics that documents print.
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

# Results on real traffic. They need root and a machine with no other work.
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

CC = "docs/congestion-controls.md"
CC_ALONE = ["reno", "cubic", "lh_hstcp", "lh_scalable", "lh_htcp", "lh_bic", "lh_bic_linux", "lh_fast", "lh_trc"]
# The share of a link's rate that is TCP payload.
PAYLOAD = 1448 / 1500


class FormatError(Exception):
    """A document or a result does not have the expected format, so its figures cannot be compared."""


# Running the commands.

def longhaul(arguments):
    return subprocess.run([LONGHAUL, *arguments], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def lab_result(arguments):
    """Runs a scenario and returns its result.json."""
    with tempfile.TemporaryDirectory() as directory:
        command = [LONGHAUL, "lab", "run", *arguments.split(), "--json", "--out", directory]
        # Exit code 1 is a failed check, 4 an undecided one. Both have results.
        process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if process.returncode not in (0, 1, 4):
        sys.exit(f"bench/figures: {arguments}: {process.stderr.strip().splitlines()[-1]}")
    result = json.loads(process.stdout)
    for cell in result["cells"]:
        if any("failed" in run for run in cell["runs"]):
            sys.exit(f"bench/figures: {arguments}: a run of {cell['parameters']} failed")
    return result


def values_of(runs, metrics):
    for metric in metrics:
        if values := [run[metric] for run in runs if metric in run]:
            yield metric, values


def lab(name):
    arguments, metrics = LAB[name]
    cells = []
    for cell in lab_result(arguments)["cells"]:
        if not cell.get("simulated"):
            sys.exit(f"bench/figures: {name}: {cell['parameters']} is not simulated")
        medians = {metric: statistics.median(values) for metric, values in values_of(cell["runs"], metrics)}
        cells.append({"parameters": cell["parameters"], "runs": len(cell["runs"]), "medians": medians})
    return {"command": f"longhaul lab run {arguments}", "cells": cells}


def measured(name):
    arguments, metrics = MEASURED[name]
    return {"command": f"longhaul lab run {arguments}", "cells": measured_cells(name, lab_result(arguments), metrics)}


def measured_cells(name, result, metrics):
    # A scenario that measures the emulator itself has no retries: its lateness is part of the measurement.
    retries_allowed = result["resolved"]["max_retries"] > 0
    cells = []
    for cell in result["cells"]:
        runs = [run for run in cell["runs"] if not (retries_allowed and run.get("overload"))]
        if len(runs) < min(2, len(cell["runs"])):
            sys.exit(f"bench/figures: {name}: the emulator was late in {cell['parameters']}: run it again")
        values = dict(values_of(runs, metrics))
        cells.append({"parameters": cell["parameters"], "runs": len(runs),
                      "medians": {metric: statistics.median(list_) for metric, list_ in values.items()},
                      "ranges": {metric: [min(list_), max(list_)] for metric, list_ in values.items()}})
    return cells


def plan():
    cells = []
    for rtt in PLAN_RTTS:
        for loss in PLAN_LOSSES:
            command = f"plan path --rate 1gbit --rtt {rtt} --loss {loss} --cc {','.join(PLAN_CONTROLS)} --json"
            result = json.loads(longhaul(command.split()).stdout)
            for prediction in result["predictions"]:
                error = prediction["formula"]["goodput_bps"] / prediction["goodput_bps"] - 1
                cells.append({"parameters": {"rtt": rtt, "loss": loss, "control": prediction["cc"]}, "runs": 1,
                              "medians": {"error_ratio": error}})
    return {"command": "longhaul plan path --rate 1gbit --rtt RTT --loss LOSS --json", "cells": cells}


def simulate_flow(control, mbit, rtt, seconds, quickack):
    """Simulates one flow by `longhaul cc simulate`, as bench/simulate/run.py does."""
    arguments = ["cc", "simulate", "--cc", control, "--rate", f"{mbit}mbit", "--rtt", rtt, "--queue", "1bdp",
                 "--duration", f"{seconds}s", "--json"] + (["--ack-ratio", "1", "--gro", "0ms"] if quickack else [])
    records = [json.loads(line) for line in longhaul(arguments).stdout.splitlines()]
    shares = [record["goodput_bps"] / (mbit * 1e6 * PAYLOAD) for record in records if record["record"] == "flow"]
    medians = {"to_90_s": next((n + 1 for n, share in enumerate(shares) if share >= 0.9), None),
               "utilisation_ratio": statistics.mean(shares), "peak_ratio": max(shares),
               "stable_ratio": statistics.median(shares[len(shares) // 2:]),
               "backoffs": sum(record["record"] == "backoff" for record in records)}
    return {"parameters": {"control": control}, "runs": 1, "medians": medians}


def cc_alone():
    return {"command": "longhaul cc simulate --rate 1000mbit --rtt 180ms --queue 1bdp --duration 120s --cc CONTROL",
            "cells": [simulate_flow(control, 1000, "180ms", 120, False) for control in CC_ALONE]}


def cc_shift():
    return {"command": "longhaul cc simulate --rate 100mbit --rtt 200ms --queue 1bdp --duration 40s --ack-ratio 1 "
                       "--gro 0ms --cc lh_bic:ack_shift=N",
            "cells": [simulate_flow(f"lh_bic:ack_shift={n}", 100, "200ms", 40, True) for n in range(1, 7)]}


DECP_LINE = re.compile(r"(\d+) Mbit/s +(\d+) (reno|cubic) +([0-9.]+) BDP (without|default) +utilisation ([0-9.]+) "
                       r"Jain ([0-9.]+) slowest/fastest ([0-9.]+) lost (\d+)")


def decp():
    """Runs a test and reads the figures that it prints. Takes two minutes, and the build of the test."""
    command = ["scripts/cargo", "test", "--locked", "-p", "longhaul-tuning", "--test", "tuning", "decp_streams", "--", "--nocapture"]
    process = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    cells = []
    for rate, streams, control, queue, decp_mode, *found in DECP_LINE.findall(process.stdout):
        medians = dict(zip(("utilisation_ratio", "jain_ratio", "slowest_ratio", "lost"), map(float, found)))
        cells.append({"parameters": {"rate": int(rate), "control": control, "streams": int(streams), "queue": float(queue),
                               "decp": decp_mode}, "runs": 3 if rate == "200" else 2, "medians": medians})
    cells.sort(key=lambda cell: json.dumps(cell["parameters"]))
    return {"command": "cargo test -p longhaul-tuning --test tuning decp_streams -- --nocapture", "cells": cells}


RUNS = {name: (lambda name=name: lab(name)) for name in LAB}
RUNS |= {"plan-path": plan, "cc-alone": cc_alone, "cc-ack-shift": cc_shift, "decp-streams": decp}


def round_medians(result):
    for cell in result["cells"]:
        cell["medians"] = {name: value if value is None else float(f"{value:.6g}")
                           for name, value in cell["medians"].items()}
    return result


def run_again(names, record):
    differ = []
    for name in names or RUNS:
        if name in MEASURED and not record:
            sys.exit(f"bench/figures: {name} is measured, and no two runs are the same: --record records a new one")
        run = RUNS.get(name) or (lambda: measured(name))
        result, file = round_medians(run()), RECORDED / f"{name}.json"
        if record:
            lines = ",\n".join("  " + json.dumps(cell) for cell in result["cells"])
            file.write_text(f'{{"command": {json.dumps(result["command"])}, "cells": [\n{lines}\n]}}\n')
        elif json.loads(file.read_text()) != result:
            differ.append(name)
        print(f"{name}: {'recorded' if record else 'differs' if name in differ else 'the same'}", flush=True)
    if differ:
        sys.exit(f"bench/figures: differs from the recorded result: {', '.join(differ)} (--record records the new one; change the documents, too)")


# Reading results and documents.

class Result:
    """A recorded result."""

    def __init__(self, name):
        file = RECORDED / f"{name}.json"
        if not file.exists():
            raise FormatError(f"no result of {name} is recorded: bench/figures/run.py --record {name}")
        self.name, self.cells = name, json.loads(file.read_text())["cells"]

    def median(self, metric, **parameters):
        found = [cell for cell in self.cells if all(cell["parameters"].get(key) == value for key, value in parameters.items())]
        if len(found) != 1:
            raise FormatError(f"{self.name}: {parameters} select {len(found)} cells")
        return found[0]["medians"].get(metric)


def lines_of(page):
    return (ROOT / page).read_text().splitlines()


def table(page, heading):
    """The cells of the table whose first line begins with `heading`."""
    lines = lines_of(page)
    begin = next((n for n, line in enumerate(lines) if line.startswith(heading)), None)
    if begin is None:
        raise FormatError(f"{page}: no table begins with {heading!r}")
    rows = []
    for line in lines[begin + 2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace("**", "").replace("`", "") for cell in line.strip().strip("|").split("|")])
    return rows


def sentence(page, pattern):
    """The groups of a pattern that occurs once on the page, with lines joined."""
    text = " ".join(lines_of(page))
    found = re.findall(pattern, text)
    if len(found) != 1:
        raise FormatError(f"{page}: {pattern!r} occurs {len(found)} times")
    return found[0] if isinstance(found[0], tuple) else (found[0],)


def in_brackets(text):
    found = re.findall(r"\(([^()]*)\)", text)
    if len(found) != 1:
        raise FormatError(f"{text!r} has {len(found)} pairs of brackets instead of one")
    return found[0].strip()


CHECKED, ERRORS = [], []


def check_figure(name, printed, value):
    """Checks that the printed figure is `value`, rounded to its digits."""
    CHECKED.append(name)
    if problem := difference(printed, value):
        ERRORS.append(f"{name}: {printed!r} {problem}")


def difference(printed, value):
    """Describes how a printed figure differs from `value`; None if it does not."""
    text = printed.replace(",", "").replace("−", "-").replace("+", "").replace("%", "").strip()
    if value is None or text in ("never", "–"):
        both = value is None and text in ("never", "–")
        return None if both else f"is printed, the result is {value}"
    try:
        number = float(text)
    except ValueError:
        return "is not a number"
    decimals = len(text.partition(".")[2])
    # Ties may round either way.
    is_equal = abs(number - value) <= 0.5 * 10 ** -decimals * (1 + 1e-6) + 1e-12
    return None if is_equal else f"is printed, the result is {value:.6g}"


# The page of benchmarks.

BENCHMARKS = "docs/benchmarks.md"


def table_row(beginning, file=BENCHMARKS):
    """The cells of the only table row that begins with this text, without the first."""
    rows = [line for line in lines_of(file) if line.startswith(f"| {beginning}")]
    if len(rows) != 1:
        raise FormatError(f"{file}: {len(rows)} rows begin with {beginning!r}")
    return [cell.strip().replace("**", "") for cell in rows[0].strip().strip("|").split("|")][1:]


SCALE = {"Gbit/s": 1e9, "Mbit/s": 1e6, "s": 1, "ms": 1e-3, "µs": 1, "": 1}


def check_with_unit(name, printed, value):
    """Checks a figure that is printed with a unit."""
    number, _, unit = printed.partition(" ")
    check_figure(name, number, value / SCALE[unit])


def check_gain(name, printed, slow, fast):
    """Checks `FIGURE (N×)` or `FIGURE`."""
    figure, _, gain = printed.partition(" (")
    check_with_unit(name, figure, fast)
    if gain:
        check_figure(f"{name}, gain", gain.removesuffix("×)"), max(slow, fast) / min(slow, fast))


def nec():
    dvd, clients = Result("nec-dvd"), Result("nec-clients")
    seconds = {relays: 1.5e9 * 8 / dvd.median("goodput_bps", relays=relays) for relays in (False, True)}
    row = table_row("download of 1.5 GB")
    check_with_unit("nec-dvd, without relays", row[1], seconds[False])
    check_gain("nec-dvd, with relays", row[2], seconds[False], seconds[True])
    legs = [("server", "relay2"), ("relay2", "relay1"), ("relay1", "client")]
    slowest = min(dvd.median("goodput_bps", **{"from": start, "to": end}) for start, end in legs)
    share = table_row("of what the slowest leg carries alone, the relays")[2].removesuffix(" %")
    check_figure("nec-dvd, share of the slowest leg", share, 100 * dvd.median("goodput_bps", relays=True) / slowest)
    for beginning, client in (("upload of a Linux client", "Linux"), ("upload of a client whose window", "Windows XP")):
        row = table_row(beginning)
        direct, relayed = (clients.median("goodput_bps", client=client, relays=relays) for relays in (False, True))
        check_with_unit(f"nec-clients, {client}, without relays", row[1], direct)
        check_gain(f"nec-clients, {client}, with relays", row[2], direct, relayed)


def demo():
    result = Result("demo")
    clients = {"the paper's client": "paper", "a client of Linux before 6.18": "default", "a tuned client": "tuned"}
    for loss, column in ((0.0, 0), (1e-05, 2)):
        for beginning, client in clients.items():
            row = table_row(beginning)
            direct, relayed = (result.median("dvd_s", loss=loss, client=client, relays=relays) for relays in (False, True))
            check_with_unit(f"demo, {client}, loss {loss}, without relays", row[column], direct)
            check_with_unit(f"demo, {client}, loss {loss}, with relays", row[column + 1], relayed)
    if picture.PICTURE.read_text() != picture.draw(json.loads(picture.RESULT.read_text())):
        ERRORS.append("docs/demo.svg differs from the recorded result: bench/figures/picture.py draws it")


def objects():
    result = Result("relay-objects")
    ways = {"direct |": "direct", "HAProxy at both ends": "HAProxy", "longhaul at both ends": "longhaul",
            "with pooled connections": "longhaul + pool", "and `initial_window": "longhaul + pool + window"}
    for beginning, way in ways.items():
        row = table_row(beginning)
        cell = {"access": "1ms", "way": way}
        check_with_unit(f"relay-objects, {way}, first byte", row[0], result.median("first_byte_s", size="10KB", **cell))
        for size, printed in zip(("10KB", "100KB", "1MB"), row[1:], strict=True):
            check_with_unit(f"relay-objects, {way}, {size}", printed, result.median("download_s", size=size, **cell))


def initial_window():
    result = Result("relay-objects")
    for beginning, way in (("10 (kernel)", "longhaul + pool"), ("32 |", "longhaul + pool + window")):
        row = table_row(beginning, "docs/relay.md")
        cell = {"access": "1ms", "way": way}
        check_with_unit(f"initial_window, {way}, first byte", row[0], result.median("first_byte_s", size="10KB", **cell))
        for size, printed in zip(("100KB", "1MB"), row[1:], strict=True):
            check_with_unit(f"initial_window, {way}, {size}", printed, result.median("download_s", size=size, **cell))


def papers_nec():
    result = Result("nec-clients")
    for beginning, client in (("Linux client, 1 Gbit/s", "Linux"), ("Windows XP's window (same)", "Windows XP")):
        row = table_row(beginning, "docs/experiments/papers.md")
        for relays, printed in ((False, row[0]), (True, row[2])):
            measured = result.median("goodput_bps", client=client, relays=relays)
            check_with_unit(f"papers, {client}, relays={relays}", printed, measured)


def readme_emulator():
    path, link = Result("whole-path"), Result("link-long-fat")
    row = table_row("one flow through three emulated links")
    for relays, printed in ((False, row[1]), (True, row[2])):
        check_with_unit(f"whole-path, relays={relays}", printed, path.median("goodput_bps", relays=relays))
    rates = (("1gbit", 1e9), ("5gbit", 5e9))
    for (rate, bps), printed in zip(rates, table_row("goodput over rate")[1].split(" and "), strict=True):
        check_figure(f"link-long-fat, {rate}", printed, link.median("goodput_bps", rate=rate, load=True) / bps)


# Pages of the documentation.

def today_fast():
    result = Result("today-fast")
    columns = [("10gbit", choice) for choice in ("cubic", "htcp", "bic", "relays + cubic")]
    columns += [("100gbit", choice) for choice in ("cubic", "relays + cubic")]
    losses = {"0": 0.0, "1e-6": 1e-6, "1e-5": 1e-5, "1e-4": 1e-4}
    rows = table(PAPERS, "| loss | cubic | H-TCP | BIC |")
    check_labels([row[0] for row in rows], losses, "today-fast")
    for row in rows:
        for (rate, choice), printed in zip(columns, row[1:], strict=True):
            value = result.median("goodput_bps", rate=rate, choice=choice, loss=losses[row[0]])
            check_figure(f"today-fast, loss {row[0]}, {rate}, {choice}", printed, value / 1e9)


def check_labels(found, expected, name):
    if sorted(found) != sorted(expected):
        raise FormatError(f"{name}: rows {found} instead of {list(expected)}")


def rows_of_controls(heading, extra=("bbr", "udt")):
    """Yields the rows of the seven controls. The rows of `extra`, which are not simulated, are ignored."""
    for row in table(PAPERS, heading):
        name = row[0].split(" ")[0]
        if name in SEVEN:
            yield name, row
        elif name not in extra:
            raise FormatError(f"{PAPERS}: {heading}: unknown control {row[0]!r}")


def jgn2_single():
    result = Result("jgn2-single")
    for name, row in rows_of_controls("| one flow, 180 ms, queue 0.25 BDP |"):
        for column, metric, unit in ((1, "to_90_percent_s", 1), (2, "utilisation_ratio", 1), (3, "second_half_bps", 1e6)):
            value = result.median(metric, control=name)
            printed = in_brackets(row[column])
            # A path that was never filled has the length of the run.
            if metric == "to_90_percent_s" and value >= 119:
                value = None
            check_figure(f"jgn2-single, {name}, {metric}", printed, value if value is None else value / unit)
    (retransmitted,) = sentence(PAPERS, r"overshoots, and retransmits ([0-9,]+) segments")
    value = result.median("retransmits", control="fast")
    # The page prints a round number.
    check_figure("jgn2-single, fast, retransmits", retransmitted, round(value, -5))


def jgn2_rtt_fairness():
    result = Result("jgn2-rtt-fairness")
    for name, row in rows_of_controls("| flow 1 over flow 2, whose round trip is |"):
        for ratio, printed in zip((1, 2, 4), row[1:], strict=True):
            value = result.median("rtt_gain_ratio", control=name, rtt_ratio=ratio)
            check_figure(f"jgn2-rtt-fairness, {name}, 1:{ratio}", in_brackets(printed), value)


def jgn2_switches():
    delay, rate = Result("jgn2-delay-switch"), Result("jgn2-rate-switch")
    for name, row in rows_of_controls("| 38 → 80 → 38 ms, Mbit/s | before |"):
        check_figure(f"jgn2-delay-switch, {name}", in_brackets(row[2]), delay.median("switched_bps", control=name) / 1e6)
        check_figure(f"jgn2-rate-switch, {name}", in_brackets(row[7]), rate.median("to_return_s", control=name))


def jgn2_coexistence():
    cells = Result("jgn2-coexistence-180ms").cells
    goodputs = {(cell["parameters"]["first"], cell["parameters"]["second"]): cell["medians"]["goodput_bps"] / 1e6 for cell in cells}
    behind_scalable, two_renos = goodputs.pop(("scalable", "fast")), goodputs.pop(("reno", "reno"))
    fast = [rate for pair, rate in goodputs.items() if "fast" in pair]
    others = [rate for pair, rate in goodputs.items() if "fast" not in pair]
    expected = [("least with FAST", min(fast)), ("most with FAST", max(fast)), ("FAST behind scalable", behind_scalable),
                ("least of others", min(others)), ("most of others", max(others)), ("two of Reno", two_renos)]
    printed = sentence(PAPERS, r"those with FAST, as in the paper: (\d+) to (\d+), and (\d+) behind scalable \([^()]*\)\. "
                               r"That is \*\*seen\*\*\. The others carry (\d+) to (\d+), more than printed throughout, "
                               r"and two flows of Reno (\d+)\.")
    for (name, value), figure in zip(expected, printed, strict=True):
        check_figure(f"jgn2-coexistence at 180 ms, {name}", figure, value)


def reservoir():
    result = Result("reservoir-spacing")
    for row, control in (("slow start, unspaced", "reno"), ("the same with spaced packets", "reno+pace"),
                         ("the same with lh_trc", "lh_trc")):
        found = [line for line in table(PAPERS, "| | paper | ours |") if line[0].startswith(row)]
        if len(found) != 1:
            raise FormatError(f"{PAPERS}: no row {row!r}")
        simulated = re.search(r"\(simulated ([0-9.]+), ([0-9.]+)\)", found[0][2])
        if not simulated:
            raise FormatError(f"{PAPERS}: {row!r} prints no simulated window and rate")
        window, rate = simulated.groups()
        check_figure(f"reservoir-spacing, {control}, window", window, result.median("slow_start_peak_bytes", control=control) / 1e6)
        check_figure(f"reservoir-spacing, {control}, rate", rate, result.median("goodput_bps", control=control) / 1e6)


def plan_path():
    result = Result("plan-path")
    rows = table("docs/plan.md", "| RTT | loss | reno |")
    check_labels([" ".join(row[:2]).replace(" ", "") for row in rows],
           [rtt + loss for rtt in PLAN_RTTS for loss in PLAN_LOSSES], "plan path")
    for row in rows:
        rtt, loss = row[0].replace(" ", ""), row[1].replace(" ", "")
        for control, printed in zip(PLAN_CONTROLS, row[2:], strict=True):
            value = result.median("error_ratio", rtt=rtt, loss=loss, control=control)
            check_figure(f"plan path, {rtt}, {loss}, {control}", printed, value * 100)


def controls_alone():
    result = Result("cc-alone")
    for row in table(CC, "| control | seconds to 90 % |"):
        for column, metric, unit in ((1, "to_90_s", 1), (2, "utilisation_ratio", 100), (3, "backoffs", 1)):
            value = result.median(metric, control=row[0])
            check_figure(f"cc simulate, {row[0]}, {metric}", in_brackets(row[column]), value * unit)
    shift = Result("cc-ack-shift")
    for row in table(CC, "| n | best second |"):
        for column, metric in ((1, "peak_ratio"), (2, "stable_ratio"), (3, "utilisation_ratio"), (4, "backoffs")):
            value = shift.median(metric, control=f"lh_bic:ack_shift={row[0]}")
            check_figure(f"cc simulate, ack_shift={row[0]}, {metric}", in_brackets(row[column]), value)


def decp_streams():
    result = Result("decp-streams")
    rows = table("docs/decp.md", "| rate, control | streams |")
    if len(rows) * 2 != len(result.cells):
        raise FormatError(f"docs/decp.md: {len(rows)} rows for {len(result.cells)} results")
    for row in rows:
        rate, _, control = row[0].split(" ")
        parameters = {"rate": int(rate), "control": control, "streams": int(row[1]), "queue": float(row[2])}
        for column, metric in ((3, "utilisation_ratio"), (4, "jain_ratio"), (5, "slowest_ratio"), (6, "lost")):
            for decp_mode, printed in zip(("without", "default"), row[column].split("·"), strict=True):
                check_figure(f"decp_streams, {parameters}, {decp_mode}, {metric}", printed, result.median(metric, decp=decp_mode, **parameters))


def snapshot(file):
    """The numbers of each line of a test's snapshot, by its first two columns."""
    lines = (ROOT / file).read_text().split("---", 2)[2].splitlines()
    words = [line.split() for line in lines if line.strip() and line.split()[0].isdigit()]
    return {(line[0], line[1]): line[2:] for line in words}


def udt():
    shares = {"native": snapshot("crates/udt/tests/udt/snapshots/udt__throughput__shares_of_the_native_control.snap"),
              "bbr": snapshot("crates/udt/tests/udt/snapshots/udt__throughput__shares_of_bbr.snap")}
    path = None
    for row in table("docs/udt.md", "| Mbit/s | RTT | control |"):
        path = (row[0], row[1].removesuffix(" ms")) if row[0] else path
        recorded = shares[row[2]][path]
        for column, index in ((3, 0), (4, 1), (5, 2), (6, 3), (7, 4)):
            check_figure(f"udt, {path}, {row[2]}, column {column}", row[column], float(recorded[index]))


CHECKS = [nec, demo, objects, readme_emulator, initial_window, papers_nec, today_fast, jgn2_single, jgn2_rtt_fairness,
          jgn2_switches, jgn2_coexistence, reservoir, plan_path, controls_alone, decp_streams, udt]


def check():
    """Checks all figures. Exits with 1 if one is wrong."""
    for check_page in CHECKS:
        try:
            check_page()
        except FormatError as error:
            ERRORS.append(str(error))
    for line in ERRORS:
        print(f"figures: {line}", file=sys.stderr)
    if ERRORS:
        sys.exit(1)
    print(f"figures: {len(CHECKED)} figures agree with their results")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true", help="run the commands again and compare")
    parser.add_argument("--record", action="store_true", help="run the commands again and record the results")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join([*RUNS, *MEASURED])}")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in RUNS and name not in MEASURED]
    if unknown:
        parser.error(f"no result is called {', '.join(unknown)}")
    if args.run or args.record:
        return run_again(args.names, args.record)
    check()


if __name__ == "__main__":
    main()
