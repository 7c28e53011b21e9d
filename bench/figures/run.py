#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Holds figures that README and docs print to the results that they come from.

    bench/figures/run.py                 compare every such figure with the kept results: a second, needs nothing
    bench/figures/run.py --run [NAME …]  run the commands of simulated results again: the medians must be the same
    bench/figures/run.py --keep [NAME …] run them again, measured ones as root, and keep what they give

A result is kept as `results/NAME.json`: its command, and of each cell what was varied and the median of each metric
that a document prints. Simulated results are the same on every machine. Measured ones hold the least and the greatest
value, too, and are run again by name only. Tables that tests hold as snapshots are held to those. Nothing is built
here: run `cargo build --release` before.
"""
import argparse, json, os, pathlib, re, statistics, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ROOT / "bench" / "figures" / "results"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
LONGHAUL = TARGET / "longhaul"

PAPERS = "docs/experiments/papers.md"
SEVEN = ["reno", "hstcp", "scalable", "fast", "bic", "htcp", "cubic"]
ALL = "|".join(SEVEN)

# A kept result: the words after `longhaul lab run`, and the metrics that documents print.
LAB = {
    "today-fast": ("today-fast", ["goodput_bps"]),
    "jgn2-single": (f"jgn2-single --simulate --only control={ALL}",
                    ["to_90_percent_s", "utilisation_ratio", "second_half_bps", "retransmits"]),
    "jgn2-rtt-fairness": (f"jgn2-rtt-fairness --simulate --only control={ALL}", ["rtt_gain_ratio"]),
    "jgn2-delay-switch": (f"jgn2-delay-switch --simulate --only control={ALL}", ["switched_bps"]),
    "jgn2-rate-switch": (f"jgn2-rate-switch --simulate --only control={ALL}", ["to_return_s"]),
    "jgn2-coexistence-180ms": (
        f"jgn2-coexistence --simulate --set delay=90ms --set queue=0.1bdp --set duration=120s "
        f"--only first={ALL} --only second={ALL}", ["goodput_bps"]),
    "reservoir-spacing": ("reservoir-spacing --simulate", ["goodput_bps", "slow_start_peak_bytes"]),
}

# Real traffic, as root, on a machine with nothing else to do.
MEASURED = {
    "nec-dvd": ("nec-dvd", ["goodput_bps"]),
    "nec-clients": ("nec-clients", ["goodput_bps"]),
    "relay-objects": ("relay-objects --only access=1ms", ["first_byte_s", "download_s"]),
    "whole-path": ("whole-path", ["goodput_bps"]),
    "link-long-fat": ("link-long-fat --only load=true", ["goodput_bps"]),
}

PLAN_CONTROLS = ["reno", "cubic", "hstcp", "scalable", "htcp", "bic"]
PLAN_RTTS = ["10ms", "50ms", "180ms"]
PLAN_LOSSES = ["0.001%", "0.01%", "0.1%", "1%"]

CC = "docs/congestion-controls.md"
CC_ALONE = ["reno", "cubic", "lh_hstcp", "lh_scalable", "lh_htcp", "lh_bic", "lh_bic_linux", "lh_fast", "lh_trc"]
# What a link carries of TCP's payload, as a share of its rate.
PAYLOAD = 1448 / 1500


class Unreadable(Exception):
    """A document or a result is not as expected, so no figure can be compared."""


# Running anew.

def longhaul(words):
    return subprocess.run([LONGHAUL, *words], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def lab_result(words):
    with tempfile.TemporaryDirectory() as folder:
        command = [LONGHAUL, "lab", "run", *words.split(), "--json", "--out", folder]
        # 1 is a check that does not hold, 4 one that could not be decided. Both are findings.
        ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if ran.returncode not in (0, 1, 4):
        sys.exit(f"bench/figures: {words}: {ran.stderr.strip().splitlines()[-1]}")
    result = json.loads(ran.stdout)
    for cell in result["cells"]:
        if any("failed" in run for run in cell["runs"]):
            sys.exit(f"bench/figures: {words}: a run of {cell['vary']} failed")
    return result


def values_of(cell, metrics):
    for metric in metrics:
        if values := [run[metric] for run in cell["runs"] if metric in run]:
            yield metric, values


def lab(name):
    words, metrics = LAB[name]
    cells = []
    for cell in lab_result(words)["cells"]:
        if not cell.get("simulated"):
            sys.exit(f"bench/figures: {name}: {cell['vary']} is not simulated")
        medians = {metric: statistics.median(values) for metric, values in values_of(cell, metrics)}
        cells.append({"vary": cell["vary"], "runs": len(cell["runs"]), "medians": medians})
    return {"command": f"longhaul lab run {words}", "cells": cells}


def measured(name):
    words, metrics = MEASURED[name]
    cells = []
    result = lab_result(words)
    # Where the emulator itself is measured, what it is late by is part of what is measured.
    disturbs = result["resolved"]["retakes"] > 0
    for cell in result["cells"]:
        if disturbs and any(run.get("disturbed") for run in cell["runs"]):
            sys.exit(f"bench/figures: {name}: the machine was too busy for {cell['vary']}: run it again")
        of = dict(values_of(cell, metrics))
        cells.append({"vary": cell["vary"], "runs": len(cell["runs"]),
                      "medians": {metric: statistics.median(values) for metric, values in of.items()},
                      "ranges": {metric: [min(values), max(values)] for metric, values in of.items()}})
    return {"command": f"longhaul lab run {words}", "cells": cells}


def plan():
    cells = []
    for rtt in PLAN_RTTS:
        for loss in PLAN_LOSSES:
            words = f"plan path --rate 1gbit --rtt {rtt} --loss {loss} --cc {','.join(PLAN_CONTROLS)} --json"
            told = json.loads(longhaul(words.split()).stdout)
            for one in told["controls"]:
                error = one["formula"]["goodput_bps"] / one["goodput_bps"] - 1
                cells.append({"vary": {"rtt": rtt, "loss": loss, "control": one["control"]}, "runs": 1,
                              "medians": {"error_ratio": error}})
    return {"command": "longhaul plan path --rate 1gbit --rtt RTT --loss LOSS --json", "cells": cells}


def alone(control, mbit, rtt, seconds, each):
    """One flow by `longhaul cc simulate`: as bench/simulate/run.py puts it beside the kernel's."""
    words = ["cc", "simulate", "--cc", control, "--rate", f"{mbit}mbit", "--rtt", rtt, "--queue", "1bdp",
             "--duration", f"{seconds}s", "--json"] + (["--ack-ratio", "1", "--gro", "0ms"] if each else [])
    records = [json.loads(line) for line in longhaul(words).stdout.splitlines()]
    shares = [r["goodput_bps"] / (mbit * 1e6 * PAYLOAD) for r in records if r["record"] == "flow"]
    medians = {"to_90_s": next((n + 1 for n, share in enumerate(shares) if share >= 0.9), None),
               "utilisation_ratio": statistics.mean(shares), "peak_ratio": max(shares),
               "stable_ratio": statistics.median(shares[len(shares) // 2:]),
               "backoffs": sum(r["record"] == "backoff" for r in records)}
    return {"vary": {"control": control}, "runs": 1, "medians": medians}


def cc_alone():
    return {"command": "longhaul cc simulate --rate 1000mbit --rtt 180ms --queue 1bdp --duration 120s --cc CONTROL",
            "cells": [alone(control, 1000, "180ms", 120, False) for control in CC_ALONE]}


def cc_shift():
    return {"command": "longhaul cc simulate --rate 100mbit --rtt 200ms --queue 1bdp --duration 40s --ack-ratio 1 "
                       "--gro 0ms --cc lh_bic:ack_shift=N",
            "cells": [alone(f"lh_bic:ack_shift={n}", 100, "200ms", 40, True) for n in range(1, 7)]}


DECP_LINE = re.compile(r"(\d+) Mbit/s +(\d+) (reno|cubic) +([0-9.]+) BDP (without|default) +utilisation ([0-9.]+) "
                       r"Jain ([0-9.]+) slowest/fastest ([0-9.]+) lost (\d+)")


def decp():
    """What a test prints: two minutes, and it is built if it was not."""
    words = ["scripts/cargo", "test", "--locked", "-p", "model", "--test", "decp_streams", "--", "--nocapture"]
    told = subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    cells = []
    for rate, streams, control, queue, law, *found in DECP_LINE.findall(told.stdout):
        medians = dict(zip(("utilisation_ratio", "jain_ratio", "slowest_ratio", "lost"), map(float, found)))
        cells.append({"vary": {"rate": int(rate), "control": control, "streams": int(streams), "queue": float(queue),
                               "law": law}, "runs": 3 if rate == "200" else 2, "medians": medians})
    cells.sort(key=lambda cell: json.dumps(cell["vary"]))
    return {"command": "cargo test -p longhaul-tuning --test tuning decp_streams -- --nocapture", "cells": cells}


RUNS = {name: (lambda name=name: lab(name)) for name in LAB}
RUNS |= {"plan-path": plan, "cc-alone": cc_alone, "cc-ack-shift": cc_shift, "decp-streams": decp}


def rounded(result):
    for cell in result["cells"]:
        cell["medians"] = {name: value if value is None else float(f"{value:.6g}")
                           for name, value in cell["medians"].items()}
    return result


def again(names, keep):
    differ = []
    for name in names or RUNS:
        if name in MEASURED and not keep:
            sys.exit(f"bench/figures: {name} is measured, and no two runs are the same: --keep keeps a new one")
        run = RUNS.get(name) or (lambda: measured(name))
        found, file = rounded(run()), KEPT / f"{name}.json"
        if keep:
            lines = ",\n".join("  " + json.dumps(cell) for cell in found["cells"])
            file.write_text(f'{{"command": {json.dumps(found["command"])}, "cells": [\n{lines}\n]}}\n')
        elif json.loads(file.read_text()) != found:
            differ.append(name)
        print(f"{name}: {'kept' if keep else 'differs' if name in differ else 'the same'}", flush=True)
    if differ:
        sys.exit(f"bench/figures: not what is kept: {', '.join(differ)} (--keep keeps it, and documents must follow)")


# Reading.

class Result:
    def __init__(self, name):
        file = KEPT / f"{name}.json"
        if not file.exists():
            raise Unreadable(f"no result is kept of {name}: bench/figures/run.py --keep {name}")
        self.name, self.cells = name, json.loads(file.read_text())["cells"]

    def median(self, metric, **vary):
        found = [cell for cell in self.cells if all(cell["vary"].get(key) == value for key, value in vary.items())]
        if len(found) != 1:
            raise Unreadable(f"{self.name}: {vary} are {len(found)} cells")
        return found[0]["medians"].get(metric)


def lines_of(page):
    return (ROOT / page).read_text().splitlines()


def table(page, heading):
    """The cells of the table whose first line begins so."""
    lines = lines_of(page)
    begin = next((n for n, line in enumerate(lines) if line.startswith(heading)), None)
    if begin is None:
        raise Unreadable(f"{page}: no table begins with {heading!r}")
    rows = []
    for line in lines[begin + 2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace("**", "").replace("`", "") for cell in line.strip().strip("|").split("|")])
    return rows


def sentence(page, pattern):
    """The groups of a pattern that the page has once, lines joined."""
    text = " ".join(lines_of(page))
    found = re.findall(pattern, text)
    if len(found) != 1:
        raise Unreadable(f"{page}: {pattern!r} is there {len(found)} times")
    return found[0] if isinstance(found[0], tuple) else (found[0],)


def in_brackets(text):
    found = re.findall(r"\(([^()]*)\)", text)
    if len(found) != 1:
        raise Unreadable(f"{text!r} has not one pair of brackets")
    return found[0].strip()


HELD, WRONG = [], []


def holds(place, printed, value):
    """`printed` is `value` to as many digits as it has."""
    HELD.append(place)
    if problem := difference(printed, value):
        WRONG.append(f"{place}: {printed!r} {problem}")


def difference(printed, value):
    text = printed.replace(",", "").replace("−", "-").replace("+", "").replace("%", "").strip()
    if value is None or text in ("never", "–"):
        both = value is None and text in ("never", "–")
        return None if both else f"is printed, the result says {value}"
    try:
        number = float(text)
    except ValueError:
        return "is no number"
    decimals = len(text.partition(".")[2])
    # As printing rounds, a tie to either side.
    right = abs(number - value) <= 0.5 * 10 ** -decimals * (1 + 1e-6) + 1e-12
    return None if right else f"is printed, the result says {value:.6g}"


# README, which has some rows of the page of benchmarks.

README = "README.md"
BENCHMARKS = "docs/benchmarks.md"


def readme_row(beginning, file=BENCHMARKS):
    """The cells after the first of the one row that begins so."""
    rows = [line for line in lines_of(file) if line.startswith(f"| {beginning}")]
    if len(rows) != 1:
        raise Unreadable(f"{file}: {len(rows)} rows begin with {beginning!r}")
    return [cell.strip().replace("**", "") for cell in rows[0].strip().strip("|").split("|")][1:]


SCALE = {"Gbit/s": 1e9, "Mbit/s": 1e6, "s": 1, "ms": 1e-3, "µs": 1, "": 1}


def with_unit(place, printed, value):
    """`printed` is `value`, by the unit that it has."""
    number, _, unit = printed.partition(" ")
    holds(place, number, value / SCALE[unit])


def readme_gain(place, printed, slow, fast):
    """`FIGURE (N×)` or `FIGURE`."""
    figure, _, gain = printed.partition(" (")
    with_unit(place, figure, fast)
    if gain:
        holds(f"{place}, gain", gain.removesuffix("×)"), max(slow, fast) / min(slow, fast))


def readme_nec():
    dvd, clients = Result("nec-dvd"), Result("nec-clients")
    seconds = {relays: 1.5e9 * 8 / dvd.median("goodput_bps", relays=relays) for relays in (False, True)}
    for file in (README, BENCHMARKS):
        row = readme_row("download of 1.5 GB", file)
        with_unit(f"{file}, nec-dvd, without relays", row[1], seconds[False])
        readme_gain(f"{file}, nec-dvd, with relays", row[2], seconds[False], seconds[True])
    legs = [("server", "relay2"), ("relay2", "relay1"), ("relay1", "client")]
    slowest = min(dvd.median("goodput_bps", **{"from": start, "to": end}) for start, end in legs)
    share = readme_row("of what the slowest leg carries alone, the relays")[2].removesuffix(" %")
    holds("nec-dvd, share of the slowest leg", share, 100 * dvd.median("goodput_bps", relays=True) / slowest)
    linux, xp = ("upload of a Linux client", "Linux"), ("upload of a client whose window", "Windows XP")
    for beginning, client, file in ((*linux, BENCHMARKS), (*xp, BENCHMARKS), (*xp, README)):
        row = readme_row(beginning, file)
        direct, relayed = (clients.median("goodput_bps", client=client, relays=relays) for relays in (False, True))
        with_unit(f"nec-clients, {client}, without relays", row[1], direct)
        readme_gain(f"nec-clients, {client}, with relays", row[2], direct, relayed)


def readme_objects():
    result = Result("relay-objects")
    ways = {"direct |": "direct", "HAProxy at both ends": "HAProxy", "longhaul at both ends": "longhaul",
            "with ready connections": "longhaul + pool", "and `initial_window": "longhaul + pool + window"}
    for beginning, way in ways.items():
        row = readme_row(beginning)
        cell = {"access": "1ms", "way": way}
        with_unit(f"relay-objects, {way}, first byte", row[0], result.median("first_byte_s", size="10KB", **cell))
        for size, printed in zip(("10KB", "100KB", "1MB"), row[1:], strict=True):
            with_unit(f"relay-objects, {way}, {size}", printed, result.median("download_s", size=size, **cell))


def initial_window():
    result = Result("relay-objects")
    for beginning, way in (("10 (kernel)", "longhaul + pool"), ("32 |", "longhaul + pool + window")):
        row = readme_row(beginning, "docs/relay.md")
        cell = {"access": "1ms", "way": way}
        with_unit(f"initial_window, {way}, first byte", row[0], result.median("first_byte_s", size="10KB", **cell))
        for size, printed in zip(("100KB", "1MB"), row[1:], strict=True):
            with_unit(f"initial_window, {way}, {size}", printed, result.median("download_s", size=size, **cell))


def papers_nec():
    result = Result("nec-clients")
    for beginning, client in (("Linux client, 1 Gbit/s", "Linux"), ("Windows XP's window (same)", "Windows XP")):
        row = readme_row(beginning, "docs/experiments/papers.md")
        for relays, printed in ((False, row[0]), (True, row[2])):
            measured = result.median("goodput_bps", client=client, relays=relays)
            with_unit(f"papers, {client}, relays={relays}", printed, measured)


def readme_emulator():
    path, link = Result("whole-path"), Result("link-long-fat")
    row = readme_row("one flow through three emulated links")
    for relays, printed in ((False, row[1]), (True, row[2])):
        with_unit(f"whole-path, relays={relays}", printed, path.median("goodput_bps", relays=relays))
    rates = (("1gbit", 1e9), ("5gbit", 5e9))
    for (rate, bps), printed in zip(rates, readme_row("goodput over rate")[1].split(" and "), strict=True):
        holds(f"link-long-fat, {rate}", printed, link.median("goodput_bps", rate=rate, load=True) / bps)


# Documents.

def today_fast():
    result = Result("today-fast")
    columns = [("10gbit", choice) for choice in ("cubic", "htcp", "bic", "relays + cubic")]
    columns += [("100gbit", choice) for choice in ("cubic", "relays + cubic")]
    losses = {"0": 0.0, "1e-6": 1e-6, "1e-5": 1e-5, "1e-4": 1e-4}
    rows = table(PAPERS, "| loss | cubic | H-TCP | BIC |")
    labels([row[0] for row in rows], losses, "today-fast")
    for row in rows:
        for (rate, choice), printed in zip(columns, row[1:], strict=True):
            value = result.median("goodput_bps", rate=rate, choice=choice, loss=losses[row[0]])
            holds(f"today-fast, loss {row[0]}, {rate}, {choice}", printed, value / 1e9)


def labels(found, wanted, place):
    if sorted(found) != sorted(wanted):
        raise Unreadable(f"{place}: rows {found} instead of {list(wanted)}")


def of_controls(heading, extra=("bbr", "udt")):
    """Rows of the seven controls; those that are not simulated have no brackets."""
    for row in table(PAPERS, heading):
        name = row[0].split(" ")[0]
        if name in SEVEN:
            yield name, row
        elif name not in extra:
            raise Unreadable(f"{PAPERS}: {heading}: what is {row[0]!r}?")


def jgn2_single():
    result = Result("jgn2-single")
    for name, row in of_controls("| one flow, 180 ms, queue 0.25 BDP |"):
        for column, metric, unit in ((1, "to_90_percent_s", 1), (2, "utilisation_ratio", 1), (3, "second_half_bps", 1e6)):
            value = result.median(metric, control=name)
            printed = in_brackets(row[column])
            # The path was never filled: the whole run.
            if metric == "to_90_percent_s" and value >= 119:
                value = None
            holds(f"jgn2-single, {name}, {metric}", printed, value if value is None else value / unit)
    (again_sent,) = sentence(PAPERS, r"overshoots, and retransmits ([0-9,]+) segments")
    value = result.median("retransmits", control="fast")
    # Printed as a round number.
    holds("jgn2-single, fast, retransmits", again_sent, round(value, -5))


def jgn2_rtt_fairness():
    result = Result("jgn2-rtt-fairness")
    for name, row in of_controls("| flow 1 over flow 2, whose round trip is |"):
        for ratio, printed in zip((1, 2, 4), row[1:], strict=True):
            value = result.median("rtt_gain_ratio", control=name, rtt_ratio=ratio)
            holds(f"jgn2-rtt-fairness, {name}, 1:{ratio}", in_brackets(printed), value)


def jgn2_switches():
    delay, rate = Result("jgn2-delay-switch"), Result("jgn2-rate-switch")
    for name, row in of_controls("| 38 → 80 → 38 ms, Mbit/s | before |"):
        holds(f"jgn2-delay-switch, {name}", in_brackets(row[2]), delay.median("switched_bps", control=name) / 1e6)
        holds(f"jgn2-rate-switch, {name}", in_brackets(row[7]), rate.median("to_return_s", control=name))


def jgn2_coexistence():
    cells = Result("jgn2-coexistence-180ms").cells
    both = {(cell["vary"]["first"], cell["vary"]["second"]): cell["medians"]["goodput_bps"] / 1e6 for cell in cells}
    behind_scalable, of_reno = both.pop(("scalable", "fast")), both.pop(("reno", "reno"))
    fast = [rate for pair, rate in both.items() if "fast" in pair]
    others = [rate for pair, rate in both.items() if "fast" not in pair]
    expected = [("least with FAST", min(fast)), ("most with FAST", max(fast)), ("FAST behind scalable", behind_scalable),
                ("least of others", min(others)), ("most of others", max(others)), ("two of Reno", of_reno)]
    printed = sentence(PAPERS, r"those with FAST, as in the paper: (\d+) to (\d+), and (\d+) behind scalable \([^()]*\)\. "
                               r"That is \*\*seen\*\*\. The others carry (\d+) to (\d+), more than printed throughout, "
                               r"and two flows of Reno (\d+)\.")
    for (place, value), figure in zip(expected, printed, strict=True):
        holds(f"jgn2-coexistence at 180 ms, {place}", figure, value)


def reservoir():
    result = Result("reservoir-spacing")
    for row, control in (("slow start, unspaced", "reno"), ("the same with spaced packets", "reno+pace"),
                         ("the same with lh_trc", "lh_trc")):
        found = [line for line in table(PAPERS, "| | paper | ours |") if line[0].startswith(row)]
        if len(found) != 1:
            raise Unreadable(f"{PAPERS}: no row {row!r}")
        simulated = re.search(r"\(simulated ([0-9.]+), ([0-9.]+)\)", found[0][2])
        if not simulated:
            raise Unreadable(f"{PAPERS}: {row!r} prints no simulated window and rate")
        window, rate = simulated.groups()
        holds(f"reservoir-spacing, {control}, window", window, result.median("slow_start_peak_bytes", control=control) / 1e6)
        holds(f"reservoir-spacing, {control}, rate", rate, result.median("goodput_bps", control=control) / 1e6)


def plan_path():
    result = Result("plan-path")
    rows = table("docs/plan.md", "| RTT | loss | reno |")
    labels([" ".join(row[:2]).replace(" ", "") for row in rows],
           [rtt + loss for rtt in PLAN_RTTS for loss in PLAN_LOSSES], "plan path")
    for row in rows:
        rtt, loss = row[0].replace(" ", ""), row[1].replace(" ", "")
        for control, printed in zip(PLAN_CONTROLS, row[2:], strict=True):
            value = result.median("error_ratio", rtt=rtt, loss=loss, control=control)
            holds(f"plan path, {rtt}, {loss}, {control}", printed, value * 100)


def controls_alone():
    result = Result("cc-alone")
    for row in table(CC, "| control | seconds to 90 % |"):
        for column, metric, unit in ((1, "to_90_s", 1), (2, "utilisation_ratio", 100), (3, "backoffs", 1)):
            value = result.median(metric, control=row[0])
            holds(f"cc simulate, {row[0]}, {metric}", in_brackets(row[column]), value * unit)
    shift = Result("cc-ack-shift")
    for row in table(CC, "| n | best second |"):
        for column, metric in ((1, "peak_ratio"), (2, "stable_ratio"), (3, "utilisation_ratio"), (4, "backoffs")):
            value = shift.median(metric, control=f"lh_bic:ack_shift={row[0]}")
            holds(f"cc simulate, ack_shift={row[0]}, {metric}", in_brackets(row[column]), value)


def decp_streams():
    result = Result("decp-streams")
    rows = table("docs/decp.md", "| rate, control | streams |")
    if len(rows) * 2 != len(result.cells):
        raise Unreadable(f"docs/decp.md: {len(rows)} rows for {len(result.cells)} results")
    for row in rows:
        rate, _, control = row[0].split(" ")
        vary = {"rate": int(rate), "control": control, "streams": int(row[1]), "queue": float(row[2])}
        for column, metric in ((3, "utilisation_ratio"), (4, "jain_ratio"), (5, "slowest_ratio"), (6, "lost")):
            for law, printed in zip(("without", "default"), row[column].split("·"), strict=True):
                holds(f"decp_streams, {vary}, {law}, {metric}", printed, result.median(metric, law=law, **vary))


def snapshot(file):
    """The numbers of each line of a test's table, by the first two words."""
    lines = (ROOT / file).read_text().split("---", 2)[2].splitlines()
    words = [line.split() for line in lines if line.strip() and line.split()[0].isdigit()]
    return {(line[0], line[1]): line[2:] for line in words}


def udt():
    shares = {"native": snapshot("crates/udt/tests/udt/snapshots/udt__throughput__shares_of_the_native_control.snap"),
              "bbr": snapshot("crates/udt/tests/udt/snapshots/udt__throughput__shares_of_bbr.snap")}
    path = None
    for row in table("docs/udt.md", "| Mbit/s | RTT | control |"):
        path = (row[0], row[1].removesuffix(" ms")) if row[0] else path
        kept = shares[row[2]][path]
        for column, place in ((3, 0), (4, 1), (5, 2), (6, 3), (7, 4)):
            holds(f"udt, {path}, {row[2]}, column {column}", row[column], float(kept[place]))


CHECKS = [readme_nec, readme_objects, readme_emulator, initial_window, papers_nec, today_fast, jgn2_single, jgn2_rtt_fairness, jgn2_switches, jgn2_coexistence, reservoir, plan_path,
          controls_alone, decp_streams, udt]


def check():
    for one in CHECKS:
        try:
            one()
        except Unreadable as problem:
            WRONG.append(str(problem))
    for line in WRONG:
        print(f"figures: {line}", file=sys.stderr)
    if WRONG:
        sys.exit(1)
    print(f"figures: {len(HELD)} figures are those of their results")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--run", action="store_true", help="run the commands anew")
    arguments.add_argument("--keep", action="store_true", help="run them anew, and keep what comes out")
    arguments.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join([*RUNS, *MEASURED])}")
    chosen = arguments.parse_args()
    unknown = [name for name in chosen.names if name not in RUNS and name not in MEASURED]
    if unknown:
        arguments.error(f"no result is called {', '.join(unknown)}")
    if chosen.run or chosen.keep:
        return again(chosen.names, chosen.keep)
    check()


if __name__ == "__main__":
    main()
