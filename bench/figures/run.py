#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the figures that README and docs print with the recorded results that they come from.

    bench/figures/run.py                   compare every figure with the recorded results: takes a second, needs nothing
    bench/figures/run.py --run [NAME …]    run the commands of simulated results again: the medians must be the same
    bench/figures/run.py --record [NAME …] run them again, measured ones as root, and record the results
    bench/figures/run.py --draw            draw the picture of README by the recorded result of the demo

A result is recorded as `results/NAME.json`: its command, and for each cell the parameters and the median of each metric
that a document prints. Simulated results are the same on every machine. Measured ones have minimum and maximum, too, and
run again only by name. Tables of tests are compared with the snapshots of the tests. Run `cargo build --release` before
--run or --record.
"""
import argparse, re, sys

import picture, record
from record import PLAN_CONTROLS, PLAN_LOSSES, PLAN_RTTS, RECORDED, ROOT, SEVEN, load

BENCHMARKS, PAPERS, CC = "docs/benchmarks.md", "docs/experiments/papers.md", "docs/congestion-controls.md"
PICTURE = ROOT / "docs" / "demo.svg"
UNITS = {"Gbit/s": 1e9, "Mbit/s": 1e6, "ms": 1e-3, "%": 0.01}
CHECKED, ERRORS = [], []


class FormatError(Exception):
    """A document or a result does not have the expected format, so its figures cannot be compared."""


class Result:
    """A recorded result."""

    def __init__(self, name):
        if not (RECORDED / f"{name}.json").exists():
            raise FormatError(f"no result of {name} is recorded: bench/figures/run.py --record {name}")
        self.name, self.cells = name, load(name)["cells"]

    def median(self, metric, **parameters):
        found = [cell for cell in self.cells if parameters.items() <= cell["parameters"].items()]
        if len(found) != 1:
            raise FormatError(f"{self.name}: {parameters} select {len(found)} cells")
        return found[0]["medians"].get(metric)


# Reading documents.

def cells_of(line):
    return [cell.strip().replace("**", "").replace("`", "") for cell in line.strip().strip("|").split("|")]


def lines_of(page):
    return (ROOT / page).read_text().splitlines()


def table(page, heading):
    """The rows of the table whose first line begins with `heading`."""
    lines = lines_of(page)
    begin = next((n for n, line in enumerate(lines) if line.startswith(heading)), None)
    if begin is None:
        raise FormatError(f"{page}: no table begins with {heading!r}")
    end = next((n for n in range(begin, len(lines)) if not lines[n].startswith("|")), len(lines))
    return [cells_of(line) for line in lines[begin + 2:end]]


def table_row(beginning, page=BENCHMARKS):
    """The cells of the only table row of a page that begins with this text."""
    rows = [line for line in lines_of(page) if line.startswith(f"| {beginning}")]
    if len(rows) != 1:
        raise FormatError(f"{page}: {len(rows)} rows begin with {beginning!r}")
    return cells_of(rows[0])


def match(pattern, text, place):
    """The groups of a pattern that occurs once in a text."""
    found = re.findall(pattern, text)
    if len(found) != 1:
        raise FormatError(f"{place}: {pattern!r} occurs {len(found)} times")
    return found[0] if isinstance(found[0], tuple) else (found[0],)


def in_brackets(text):
    return match(r"\(([^()]*)\)", text, repr(text))[0].strip()


# Comparing.

def check(name, printed, value):
    """Checks that the printed figure is `value`, rounded to its digits. Its unit may be printed with it."""
    CHECKED.append(name)
    number, _, unit = printed.partition(" ")
    if unit in UNITS and value is not None:
        value /= UNITS[unit]
    if problem := difference(number, value):
        ERRORS.append(f"{name}: {printed!r} {problem}")


def difference(printed, value):
    """Describes how a printed number differs from `value`; None if it does not."""
    text = printed.replace(",", "").replace("−", "-").replace("+", "").removesuffix("%")
    if value is None or text in ("never", "–"):
        return None if value is None and text in ("never", "–") else f"is printed, the result is {value}"
    try:
        number = float(text)
    except ValueError:
        return "is not a number"
    decimals = len(text.partition(".")[2])
    # Ties may round either way.
    is_equal = abs(number - value) <= 0.5 * 10 ** -decimals * (1 + 1e-6) + 1e-12
    return None if is_equal else f"is printed, the result is {value:.6g}"


def check_row(result, cells, row, columns, read=str):
    """Checks cells of a row, whose parameters are `row`. A column is its number, a metric, parameters, and the unit
    of the printed figure. `read` takes the figure from the cell."""
    for column, metric, parameters, unit in columns:
        value = result.median(metric, **row, **parameters)
        name = ", ".join([result.name, *map(str, (row | parameters).values()), metric])
        check(name, read(cells[column]), value if value is None else value / unit)


def check_labels(found, expected, name):
    if sorted(found) != sorted(expected):
        raise FormatError(f"{name}: rows {found} instead of {list(expected)}")


# The page of benchmarks, and pages that repeat its figures.

def check_gain(name, printed, slow, fast):
    """Checks `FIGURE (N×)` or `FIGURE`."""
    figure, _, gain = printed.partition(" (")
    check(name, figure, fast)
    if gain:
        check(f"{name}, gain", gain.removesuffix("×)"), max(slow, fast) / min(slow, fast))


def nec():
    dvd, clients = Result("nec-dvd"), Result("nec-clients")
    seconds = {relays: 1.5e9 * 8 / dvd.median("goodput_bps", relays=relays) for relays in (False, True)}
    row = table_row("download of 1.5 GB")
    check("nec-dvd, without relays", row[2], seconds[False])
    check_gain("nec-dvd, with relays", row[3], seconds[False], seconds[True])
    legs = [("server", "relay2"), ("relay2", "relay1"), ("relay1", "client")]
    slowest = min(dvd.median("goodput_bps", **{"from": start, "to": end}) for start, end in legs)
    share = dvd.median("goodput_bps", relays=True) / slowest
    check("nec-dvd, share of the slowest leg", table_row("of what the slowest leg carries alone, the relays")[3], share)
    for beginning, client in (("upload of a Linux client", "Linux"), ("upload of a client whose window", "Windows XP")):
        direct, relayed = (clients.median("goodput_bps", client=client, relays=relays) for relays in (False, True))
        row = table_row(beginning)
        check(f"nec-clients, {client}, without relays", row[2], direct)
        check_gain(f"nec-clients, {client}, with relays", row[3], direct, relayed)
    for beginning, client in (("Linux client, 1 Gbit/s", "Linux"), ("Windows XP's window (same)", "Windows XP")):
        columns = [(1, "goodput_bps", {"relays": False}, 1), (3, "goodput_bps", {"relays": True}, 1)]
        check_row(clients, table_row(beginning, PAPERS), {"client": client}, columns)


def demo():
    result = Result("demo")
    clients = {"the paper's client": "paper", "a client of Linux before 6.18": "default", "a tuned client": "tuned"}
    cells = [(loss, relays) for loss in (0.0, 1e-05) for relays in (False, True)]
    columns = [(n, "dvd_s", {"loss": loss, "relays": relays}, 1) for n, (loss, relays) in enumerate(cells, 1)]
    for beginning, client in clients.items():
        check_row(result, table_row(beginning), {"client": client}, columns)
    if PICTURE.read_text() != picture.draw(load("demo")):
        ERRORS.append("docs/demo.svg differs from the recorded result: bench/figures/run.py --draw")


def objects():
    result = Result("relay-objects")
    first = (1, "first_byte_s", {"size": "10KB"}, 1)
    rows = {"direct |": "direct", "HAProxy at both ends": "HAProxy", "longhaul at both ends": "longhaul",
            "with pooled connections": "longhaul + pool", "and `initial_window": "longhaul + pool + window"}
    for page, ways, sizes in ((BENCHMARKS, rows, ("10KB", "100KB", "1MB")),
                              ("docs/relay.md", {"10 (kernel)": "longhaul + pool", "32 |": "longhaul + pool + window"}, ("100KB", "1MB"))):
        columns = [first, *((n, "download_s", {"size": size}, 1) for n, size in enumerate(sizes, 2))]
        for beginning, way in ways.items():
            check_row(result, table_row(beginning, page), {"access": "1ms", "way": way}, columns)


def emulator():
    columns = [(2, "goodput_bps", {"relays": False}, 1), (3, "goodput_bps", {"relays": True}, 1)]
    check_row(Result("whole-path"), table_row("one flow through three emulated links"), {}, columns)
    link = Result("link-long-fat")
    rates = (("1gbit", 1e9), ("5gbit", 5e9))
    for (rate, bps), printed in zip(rates, table_row("goodput over rate")[2].split(" and "), strict=True):
        check(f"link-long-fat, {rate}", printed, link.median("goodput_bps", rate=rate, load=True) / bps)


# Other pages of the documentation.

def today_fast():
    choices = {"10gbit": ("cubic", "htcp", "bic", "relays + cubic"), "100gbit": ("cubic", "relays + cubic")}
    cells = [{"rate": rate, "choice": choice} for rate, own in choices.items() for choice in own]
    columns = [(n, "goodput_bps", cell, 1e9) for n, cell in enumerate(cells, 1)]
    rows = table(PAPERS, "| loss | cubic | H-TCP | BIC |")
    check_labels([row[0] for row in rows], ["0", "1e-6", "1e-5", "1e-4"], "today-fast")
    for row in rows:
        check_row(Result("today-fast"), row, {"loss": float(row[0])}, columns)


def rows_of_controls(heading):
    """Yields the rows of the seven controls. Those of bbr and udt, which are not simulated, are ignored."""
    for row in table(PAPERS, heading):
        name = row[0].split(" ")[0]
        if name in SEVEN:
            yield {"control": name}, row
        elif name not in ("bbr", "udt"):
            raise FormatError(f"{PAPERS}: {heading}: unknown control {row[0]!r}")


def jgn2():
    single = Result("jgn2-single")
    for cell in single.cells:
        # A path that was never filled has the length of the run.
        if cell["medians"]["to_90_percent_s"] >= 119:
            cell["medians"]["to_90_percent_s"] = None
    tables = {
        "| one flow, 180 ms, queue 0.25 BDP |":
            [(single, [(1, "to_90_percent_s", {}, 1), (2, "utilisation_ratio", {}, 1), (3, "second_half_bps", {}, 1e6)])],
        "| flow 1 over flow 2, whose round trip is |":
            [(Result("jgn2-rtt-fairness"), [(n, "rtt_gain_ratio", {"rtt_ratio": ratio}, 1) for n, ratio in enumerate((1, 2, 4), 1)])],
        "| 38 → 80 → 38 ms, Mbit/s | before |":
            [(Result("jgn2-delay-switch"), [(2, "switched_bps", {}, 1e6)]), (Result("jgn2-rate-switch"), [(7, "to_return_s", {}, 1)])],
    }
    for heading, results in tables.items():
        for parameters, row in rows_of_controls(heading):
            for result, columns in results:
                check_row(result, row, parameters, columns, read=in_brackets)
    (retransmitted,) = match(r"overshoots, and retransmits ([0-9,]+) segments", " ".join(lines_of(PAPERS)), PAPERS)
    # The page prints a round number.
    check("jgn2-single, fast, retransmits", retransmitted, round(single.median("retransmits", control="fast"), -5))


def jgn2_coexistence():
    cells = Result("jgn2-coexistence-180ms").cells
    goodputs = {(cell["parameters"]["first"], cell["parameters"]["second"]): cell["medians"]["goodput_bps"] / 1e6 for cell in cells}
    behind_scalable, two_renos = goodputs.pop(("scalable", "fast")), goodputs.pop(("reno", "reno"))
    fast = [rate for pair, rate in goodputs.items() if "fast" in pair]
    others = [rate for pair, rate in goodputs.items() if "fast" not in pair]
    expected = {"least with FAST": min(fast), "most with FAST": max(fast), "FAST behind scalable": behind_scalable,
                "least of others": min(others), "most of others": max(others), "two of Reno": two_renos}
    pattern = (r"those with FAST, as in the paper: (\d+) to (\d+), and (\d+) behind scalable \([^()]*\)\. "
               r"That is \*\*seen\*\*\. The others carry (\d+) to (\d+), more than printed throughout, and two flows of Reno (\d+)\.")
    printed = match(pattern, " ".join(lines_of(PAPERS)), PAPERS)
    for (name, value), figure in zip(expected.items(), printed, strict=True):
        check(f"jgn2-coexistence at 180 ms, {name}", figure, value)


def reservoir():
    rows = table(PAPERS, "| | paper | ours |")
    columns = [(0, "slow_start_peak_bytes", {}, 1e6), (1, "goodput_bps", {}, 1e6)]
    for label, control in (("slow start, unspaced", "reno"), ("the same with spaced packets", "reno+pace"),
                           ("the same with lh_trc", "lh_trc")):
        found = [row[2] for row in rows if row[0].startswith(label)]
        window_and_rate = match(r"\(simulated ([0-9.]+), ([0-9.]+)\)", " ".join(found), f"{PAPERS}: {label}")
        check_row(Result("reservoir-spacing"), window_and_rate, {"control": control}, columns)


def plan_path():
    rows = table("docs/plan.md", "| RTT | loss | reno |")
    labels = [row[0].replace(" ", "") + row[1].replace(" ", "") for row in rows]
    check_labels(labels, [rtt + loss for rtt in PLAN_RTTS for loss in PLAN_LOSSES], "plan path")
    columns = [(n, "error_ratio", {"control": control}, 1) for n, control in enumerate(PLAN_CONTROLS, 2)]
    for row in rows:
        check_row(Result("plan-path"), row, {"rtt": row[0].replace(" ", ""), "loss": row[1].replace(" ", "")}, columns)


def controls_alone():
    metrics = [(1, "to_90_s", {}, 1), (2, "utilisation_ratio", {}, 0.01), (3, "backoffs", {}, 1)]
    for row in table(CC, "| control | seconds to 90 % |"):
        check_row(Result("cc-alone"), row, {"control": row[0]}, metrics, read=in_brackets)
    metrics = [(n, metric, {}, 1) for n, metric in enumerate(("peak_ratio", "stable_ratio", "utilisation_ratio", "backoffs"), 1)]
    for row in table(CC, "| n | best second |"):
        check_row(Result("cc-ack-shift"), row, {"control": f"lh_bic:ack_shift={row[0]}"}, metrics, read=in_brackets)


def decp_streams():
    result, rows = Result("decp-streams"), table("docs/decp.md", "| rate, control | streams |")
    if len(rows) * 2 != len(result.cells):
        raise FormatError(f"docs/decp.md: {len(rows)} rows for {len(result.cells)} results")
    for row in rows:
        rate, _, control = row[0].split(" ")
        parameters = {"rate": int(rate), "control": control, "streams": int(row[1]), "queue": float(row[2])}
        for column, metric in enumerate(("utilisation_ratio", "jain_ratio", "slowest_ratio", "lost"), 3):
            columns = [(n, metric, {"decp": mode}, 1) for n, mode in enumerate(("without", "default"))]
            check_row(result, row[column].split("·"), parameters, columns, read=str.strip)


def snapshot(name):
    """The numbers of each line of a test's snapshot, by its first two columns."""
    file = ROOT / f"crates/udt/tests/udt/snapshots/udt__throughput__{name}.snap"
    words = [line.split() for line in file.read_text().split("---", 2)[2].splitlines()]
    return {(line[0], line[1]): line[2:] for line in words if line and line[0].isdigit()}


def udt():
    shares = {"native": snapshot("shares_of_the_native_control"), "bbr": snapshot("shares_of_bbr")}
    path = None
    for row in table("docs/udt.md", "| Mbit/s | RTT | control |"):
        path = (row[0], row[1].removesuffix(" ms")) if row[0] else path
        for column, printed in enumerate(row[3:8]):
            check(f"udt, {path}, {row[2]}, column {column + 3}", printed, float(shares[row[2]][path][column]))


CHECKS = [nec, demo, objects, emulator, today_fast, jgn2, jgn2_coexistence, reservoir, plan_path, controls_alone, decp_streams, udt]


def check_all():
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
    parser.add_argument("--draw", action="store_true", help="draw docs/demo.svg")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(record.RUNS)}")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in record.RUNS]:
        parser.error(f"no result is called {', '.join(unknown)}")
    if args.draw:
        return PICTURE.write_text(picture.draw(load("demo")))
    if args.run or args.record:
        return record.run_again(args.names, args.record)
    check_all()


if __name__ == "__main__":
    main()
