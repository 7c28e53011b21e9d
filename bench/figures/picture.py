# SPDX-License-Identifier: MIT OR Apache-2.0
"""The picture of README, docs/demo.svg, from the recorded result of the demo."""
WIDTH, LEFT, BAR, GAP = 760, 250, 15, 12
SPACE = WIDTH - LEFT - 130
PANELS = [(0.0, "Clean cable"), (1e-05, "One packet in 100,000 lost on the cable")]
CLIENTS = {
    "paper": "paper's client: 1.4 MB window",
    "default": "Linux before 6.18: 3 to 4 MB",
    "tuned": "tuned client: 16 MB and more",
}
KINDS = {False: ("no relays", "#8a6d3b"), True: ("two relays", "#2a6fb0")}


def seconds(result):
    """Seconds for 4.7 GB by loss, client and whether there are relays."""
    return {
        (cell["parameters"]["loss"], cell["parameters"]["client"], cell["parameters"]["relays"]): cell["medians"]["dvd_s"]
        for cell in result["cells"]
    }


def text(x, y, content, style=""):
    return f'<text x="{x}" y="{y}"{style}>{content}</text>'


def bars(times, longest, loss, client, y):
    for relays, (name, colour) in KINDS.items():
        time = times[loss, client, relays]
        width = max(1, SPACE * time / longest)
        yield f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{colour}"/>'
        yield text(round(LEFT + width + 6), y + 12, f"{time:.3g} s, {name}")
        y += BAR + 2


def draw(result):
    times = seconds(result)
    longest = max(times.values())
    parts, y = [text(8, 22, "Time for a 4.7 GB DVD image over 26 ms and 10 Gbit/s", ' class="title"')], 36
    for loss, heading in PANELS:
        parts.append(text(8, y + 14, heading, ' class="heading"'))
        y += 26
        for client, label in CLIENTS.items():
            parts.append(text(8, y + 20, label))
            parts.extend(bars(times, longest, loss, client, y))
            y += 2 * BAR + 2 + GAP
    style = "text{font:13px sans-serif;fill:#222}.title{font-size:16px;font-weight:bold}.heading{font-weight:bold}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}">'
    frame = [head, f"<style>{style}</style>", '<rect width="100%" height="100%" fill="#fff"/>']
    return "\n".join([*frame, *parts, "</svg>"]) + "\n"
