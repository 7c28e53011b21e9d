# SPDX-License-Identifier: MIT OR Apache-2.0
"""Markdown of the records: medians, what was cut or failed marked as such."""
import statistics

NOTES = """Mbit/s are payload over the time of the command and of syncing the target's file system after it. † the run took too
long and was ended: what had come by then over the time. ✗ it failed, or what came was not what was sent.

longhaul, scp, rsync, rclone-sftp and mscp encrypt; rclone-http, aria2, gridftp and bbcp don't. longhaul, rsync and rclone-sftp compare
hashes of what arrived; longhaul alone has synced it to the disk when it ends."""


def median(rows, *names):
    """Of the sums of these figures; None where there is none."""
    values = [sum(row[name] for name in names) for row in rows if all(row.get(name) is not None for name in names)]
    return statistics.median(values) if values else None


def number(value, digits=3):
    return "–" if value is None else f"{value:.{digits}g}" if abs(value) < 100 else f"{value:.0f}"


def marked(rows, value, digits=3):
    if not rows:
        return ""
    if all(row["end"] in ("failed", "wrong") for row in rows):
        return "✗"
    mark = " †" if any(row["end"] == "cut" for row in rows) else ""
    mark += " ✗" if any(row["end"] in ("failed", "wrong") for row in rows) else ""
    return number(value, digits) + mark


def goodput(rows):
    value = median(rows, "goodput_bps")
    return marked(rows, None if value is None else value / 1e6)


def grid(rows, line, column, shown, heads=str):
    """Lines × columns in the order of their first records."""
    lines, columns = (list(dict.fromkeys(key(row) for row in rows)) for key in (line, column))
    yield "| |" + "".join(f" {heads(name)} |" for name in columns)
    yield "|---|" + "---:|" * len(columns)
    for name in lines:
        of = [[row for row in rows if line(row) == name and column(row) == other] for other in columns]
        yield f"| {name} |" + "".join(f" {shown(cell)} |" for cell in of)


def tool(row):
    return row["tool"]


def path(row):
    return f"{row['rtt_ms']} ms, {row['loss']:g}"


def figures(rows, columns):
    """A line for each tool, a column for each (head, function of its records)."""
    yield "| |" + "".join(f" {head} |" for head, _ in columns)
    yield "|---|" + "---:|" * len(columns)
    for name in dict.fromkeys(map(tool, rows)):
        mine = [row for row in rows if tool(row) == name]
        yield f"| {name} |" + "".join(f" {shown(mine)} |" for _, shown in columns)


def matrix(rows):
    for job in dict.fromkeys(row["job"] for row in rows):
        for buffers in dict.fromkeys(row["buffers"] for row in rows):
            these = [row for row in rows if row["job"] == job and row["buffers"] == buffers]
            if these:
                yield f"\n**{job}**, {these[0]['files']} files, {these[0]['bytes'] / 1e6:.0f} MB, buffers {buffers}: Mbit/s by RTT and loss\n"
                yield from grid(these, tool, path, goodput)


def utilisation(rows):
    for buffers in dict.fromkeys(row["buffers"] for row in rows):
        for loss in dict.fromkeys(row["loss"] for row in rows):
            these = [row for row in rows if row["buffers"] == buffers and row["loss"] == loss]
            if these:
                yield f"\n350 ms, loss {loss:g}, buffers {buffers}, {these[0]['bytes'] / 1e6:.0f} MB\n"
                yield from figures(these, [
                    ("Mbit/s", goodput),
                    ("of the link, whole run", lambda mine: marked(mine, median(mine, "utilisation"))),
                    ("from first data to last sync", lambda mine: marked(mine, median(mine, "data_utilisation"))),
                    ("of the link, 50 to 95 %", lambda mine: marked(mine, median(mine, "steady_utilisation"))),
                    ("slowest/fastest at half", lambda mine: marked(mine, median(mine, "slowest_to_fastest"))),
                    ("and at the end, by its own count", lambda mine: marked(mine, median(mine, "own_slowest_to_fastest")))])


def local(rows):
    yield from grid(rows, tool, lambda row: f"{row['job']}, MB/s",
                    lambda mine: marked(mine, (median(mine, "goodput_bps") or 0) / 8e6))


def per_gb(mine, *names):
    """Of what came, also where a run was cut."""
    values = [sum(row[name] for name in names) / row["carried_bytes"] * 1e9 for row in mine if row.get("carried_bytes")]
    return marked(mine, statistics.median(values) if values else None)


def cpu(rows):
    yield from figures(rows, [("source, s/GB", lambda mine: per_gb(mine, "cpu_source_s")),
                              ("target, s/GB", lambda mine: per_gb(mine, "cpu_target_s")), ("Mbit/s", goodput)])


def first(rows):
    yield "Seconds until 100 kB had come to the target's interface:\n"
    yield from grid(rows, tool, lambda row: f"{row['rtt_ms']} ms", lambda mine: marked(mine, median(mine, "begun_s")))


def resume(rows):
    yield from figures(rows, [("came in all / size", lambda mine: marked(mine, median(mine, "received_to_size"), 4)),
                              ("seconds in all", lambda mine: marked(mine, median(mine, "seconds_in_all"))),
                              ("of which again", lambda mine: marked(mine, median(mine, "seconds", "sync_s")))])


PARTS = {part.__name__: part for part in (matrix, utilisation, local, cpu, first, resume)}


def lateness(rows):
    """What the links said of themselves: what came later than the path is long."""
    late = [way["lateness"]["p99_us"] / 1000 for row in rows for way in row.get("link", [])]
    return {"link late, p99": f"median {statistics.median(late):.2g} ms, worst {max(late):.2g} ms"} if late else {}


def render(machine, rows):
    yield f"# bench/copy\n\n{NOTES}\n"
    for name, value in machine.items():
        yield f"- {name}: {value}"
    for name, part in PARTS.items():
        mine = [row for row in rows if row["part"] == name and row.get("end", "left out") != "left out"]
        if mine:
            yield f"\n## {name}\n"
            yield from part(mine)


def line(row):
    """One run in one line, while it goes on."""
    where = f"{path(row)} {row['buffers']}" if "rtt_ms" in row else "here"
    figure = f"{row['goodput_bps'] / 1e6:.1f} Mbit/s" if row.get("goodput_bps") else row.get("said", "")[-160:].strip()
    return f"  {row['part']} {where} {row['job']} {row['tool']}: {row['end']} {row.get('seconds', 0):.2f} s, {figure}"
