# SPDX-License-Identifier: MIT OR Apache-2.0
"""Markdown tables of the records: medians, with marks for runs that timed out or failed."""
import statistics

NOTES = """Mbit/s is the payload over the time of the command and of the sync of the target's file system. † The run took too long
and was ended; the figure is of the bytes that had arrived. ✗ The run failed, or the copy differs from the source.

longhaul, scp, rsync, rclone-sftp and mscp encrypt; rclone-http, aria2, gridftp and bbcp don't. longhaul, rsync and rclone-sftp compare
hashes of the received data. Only longhaul has synced it to disk when it ends."""


def median(rows, *names):
    """Median of the sums of these fields; None if no row has them all."""
    values = [sum(row[name] for name in names) for row in rows if all(row.get(name) is not None for name in names)]
    return statistics.median(values) if values else None


def number(value, digits=3):
    return "–" if value is None else f"{value:.{digits}g}" if abs(value) < 100 else f"{value:.0f}"


def marked(rows, value, digits=3):
    if not rows:
        return ""
    if all(row["outcome"] in ("failed", "corrupt") for row in rows):
        return "✗"
    mark = " †" if any(row["outcome"] == "timeout" for row in rows) else ""
    mark += " ✗" if any(row["outcome"] in ("failed", "corrupt") for row in rows) else ""
    return number(value, digits) + mark


def goodput(rows):
    value = median(rows, "goodput_bps")
    return marked(rows, None if value is None else value / 1e6)


def grid(rows, line, column, formatted, heads=str):
    """A table of lines × columns, in order of their first records."""
    lines, columns = (list(dict.fromkeys(key(row) for row in rows)) for key in (line, column))
    yield "| |" + "".join(f" {heads(name)} |" for name in columns)
    yield "|---|" + "---:|" * len(columns)
    for name in lines:
        cells = [[row for row in rows if line(row) == name and column(row) == other] for other in columns]
        yield f"| {name} |" + "".join(f" {formatted(cell)} |" for cell in cells)


def tool(row):
    return row["tool"]


def path(row):
    return f"{row['rtt_ms']} ms, {row['loss']:g}"


def tool_table(rows, columns):
    """A table with a line for each tool and a column for each (head, function of its records)."""
    yield "| |" + "".join(f" {head} |" for head, _ in columns)
    yield "|---|" + "---:|" * len(columns)
    for name in dict.fromkeys(map(tool, rows)):
        own = [row for row in rows if tool(row) == name]
        yield f"| {name} |" + "".join(f" {formatted(own)} |" for _, formatted in columns)


def matrix(rows):
    for job in dict.fromkeys(row["job"] for row in rows):
        for buffers in dict.fromkeys(row["buffers"] for row in rows):
            selected = [row for row in rows if row["job"] == job and row["buffers"] == buffers]
            if selected:
                yield f"\n**{job}**, {selected[0]['files']} files, {selected[0]['bytes'] / 1e6:.0f} MB, buffers {buffers}: Mbit/s by RTT and loss\n"
                yield from grid(selected, tool, path, goodput)


def utilisation(rows):
    for buffers in dict.fromkeys(row["buffers"] for row in rows):
        for loss in dict.fromkeys(row["loss"] for row in rows):
            selected = [row for row in rows if row["buffers"] == buffers and row["loss"] == loss]
            if selected:
                yield f"\n350 ms, loss {loss:g}, buffers {buffers}, {selected[0]['bytes'] / 1e6:.0f} MB\n"
                yield from tool_table(selected, [
                    ("Mbit/s", goodput),
                    ("of the link, whole run", lambda rows: marked(rows, median(rows, "utilisation"))),
                    ("from first data to last sync", lambda rows: marked(rows, median(rows, "data_utilisation"))),
                    ("of the link, 50 to 95 %", lambda rows: marked(rows, median(rows, "steady_utilisation"))),
                    ("slowest/fastest at half", lambda rows: marked(rows, median(rows, "slowest_to_fastest"))),
                    ("slowest/fastest at the end, by longhaul", lambda rows: marked(rows, median(rows, "acked_slowest_to_fastest")))])


def local(rows):
    yield from grid(rows, tool, lambda row: f"{row['job']}, MB/s",
                    lambda rows: marked(rows, (median(rows, "goodput_bps") or 0) / 8e6))


def per_gb(rows, *names):
    """Median of the sums of these fields for each GB transferred, of runs that timed out, too."""
    values = [sum(row[name] for name in names) / row["transferred_bytes"] * 1e9 for row in rows if row.get("transferred_bytes")]
    return marked(rows, statistics.median(values) if values else None)


def cpu(rows):
    yield from tool_table(rows, [("source, s/GB", lambda rows: per_gb(rows, "cpu_source_s")),
                              ("target, s/GB", lambda rows: per_gb(rows, "cpu_target_s")), ("Mbit/s", goodput)])


def first(rows):
    yield "Seconds until 100 kB had arrived at the target's interface:\n"
    yield from grid(rows, tool, lambda row: f"{row['rtt_ms']} ms", lambda rows: marked(rows, median(rows, "first_data_s")))


def resume(rows):
    yield from tool_table(rows, [("received / size", lambda rows: marked(rows, median(rows, "received_to_size"), 4)),
                              ("total seconds", lambda rows: marked(rows, median(rows, "total_seconds"))),
                              ("seconds of the second run", lambda rows: marked(rows, median(rows, "seconds", "sync_s")))])


PARTS = {part.__name__: part for part in (matrix, utilisation, local, cpu, first, resume)}


def lateness(rows):
    """Lateness of the emulated links by their own reports."""
    late = [direction["lateness"]["p99_us"] / 1000 for row in rows for direction in row.get("link", [])]
    return {"link lateness, p99": f"median {statistics.median(late):.2g} ms, worst {max(late):.2g} ms"} if late else {}


def render(machine, rows):
    yield f"# bench/copy\n\n{NOTES}\n"
    for name, value in machine.items():
        yield f"- {name}: {value}"
    for name, part in PARTS.items():
        own = [row for row in rows if row["part"] == name and row.get("outcome", "skipped") != "skipped"]
        if own:
            yield f"\n## {name}\n"
            yield from part(own)


def line(row):
    """A run as one line, for the terminal."""
    location = f"{path(row)} {row['buffers']}" if "rtt_ms" in row else "local"
    figure = f"{row['goodput_bps'] / 1e6:.1f} Mbit/s" if row.get("goodput_bps") else row.get("message", "")[-160:].strip()
    return f"  {row['part']} {location} {row['job']} {row['tool']}: {row['outcome']} {row.get('seconds', 0):.2f} s, {figure}"
