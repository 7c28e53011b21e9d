// SPDX-License-Identifier: MIT OR Apache-2.0
// Draws charts with uPlot. The page's JSON block with the id "charts" is a list of charts
// (results/src/report/over_time/chart.rs); the nth is drawn into #chart-n when the page is loaded. Scripts of a page
// draw other charts with draw(). Additional properties of a chart:
//   follows: the y axis is scaled to the values in view, from zero unless `floats` is set too
//   ceiling: values above it do not extend the y axis
//   mirrored: negative values are a second metric, drawn downwards
// Additional properties of a line: thin (many points, no name), unnamed.
"use strict";

const HEIGHT_WIDE_PX = 320;
const HEIGHT_PX = 240;
const CURSOR_STEP_PX = 10;
const CURSOR_TOP_PX = 10;
const LABEL_CLEARANCE_PX = 60;
const TABLE_ROWS_MAX = 500;
// Widths of charts on A4 and Letter paper, without margins.
const PAPER_PX = 680;
const PAPER_HALF_PX = 328;
const EVENT_ROWS = 3;
const EVENT_ROW_PX = 18;
const AXIS_PX = 92;
const SIDE_PX = 16;

const prefixes = (unit) => (unit === "s"
  ? [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]]
  : [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]]);

// Formats three significant digits with an SI prefix: below one for times, above one for other units.
function si(value, unit) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return `0 ${unit}`;
  const [scale, prefix] = prefixes(unit).find(([s]) => Math.abs(value) >= s * 0.9995) ?? prefixes(unit).at(-1);
  return `${Number((value / scale).toPrecision(3))} ${prefix}${unit}`;
}

// Formats as many decimals as steps of this size need, at least three digits.
function precise(value, step, unit) {
  return step > 0 && Math.abs(value) >= step * 1000 ? uniform(value, step, unit, Math.abs(value)) : si(value, unit);
}

// Formats one of several values at equal steps; the largest determines the prefix.
function uniform(value, step, unit, largest) {
  if (value === 0 || !(step > 0)) return si(value, unit);
  const [scale, prefix] = prefixes(unit).find(([s]) => largest >= s * 0.9995) ?? prefixes(unit).at(-1);
  const decimals = Math.min(Math.max(Math.ceil(Math.log10(scale / step) - 1e-9), 0), 9);
  return `${(value / scale).toFixed(decimals)} ${prefix}${unit}`;
}

// Returns the step whose decimals ticks need: ticks 2.5 apart need one decimal more than those 2 or 5 apart.
function wholeStep(step) {
  const mantissa = step / 10 ** Math.floor(Math.log10(step));
  return Math.abs(mantissa - Math.round(mantissa)) < 1e-6 ? step : step / 10;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const labelFont = () => `600 ${14 * devicePixelRatio}px system-ui, sans-serif`;
const translucent = (name, percent = 22) => `color-mix(in srgb, ${colour(name)} ${percent}%, transparent)`;

// Returns the columns for uPlot: x, each line, then high and low of each line with a band.
function columns(chart) {
  const banded = chart.lines.filter((line) => line.low.length > 0);
  const all = [...chart.lines.map((line) => line.values), ...banded.flatMap((line) => [line.high, line.low])];
  const padded = all.map((values) => chart.x.map((_, i) => values[i] ?? null));
  return [chart.x, ...padded];
}

function seriesOf(chart) {
  const banded = chart.lines.filter((line) => line.low.length > 0);
  const edge = { stroke: "transparent", width: 0, points: { show: false } };
  return [
    {},
    ...chart.lines.map((line) => ({
      label: line.label,
      stroke: () => (line.thin ? translucent(line.colour, 50) : colour(line.colour)),
      width: line.thin ? 1 : 2,
      dash: line.dash,
      spanGaps: true,
      points: { show: false },
    })),
    ...banded.flatMap(() => [edge, edge]),
  ];
}

function bandsOf(chart) {
  const first = 1 + chart.lines.length;
  return chart.lines
    .filter((line) => line.low.length > 0)
    .map((line, n) => ({ series: [first + 2 * n, first + 2 * n + 1], fill: () => translucent(line.colour) }));
}

// Removes ticks between powers of ten, which would be too dense.
const powersOfTen = (_, ticks) => ticks.map((tick) => (Number.isInteger(Math.round(Math.log10(tick) * 1e6) / 1e6) ? tick : null));

function axis(unit, size, { log, mirrored } = {}) {
  const filter = log ? { filter: powersOfTen } : {};
  const magnitude = (tick) => (mirrored ? Math.abs(tick) : tick);
  const text = (ticks, step) => (tick) => uniform(magnitude(tick), wholeStep(step), unit, Math.max(...ticks.map(Math.abs)));
  return {
    stroke: () => colour("--quiet"),
    font: "14px system-ui, sans-serif",
    size,
    ...filter,
    grid: { stroke: () => colour("--rule"), width: 1, ...filter },
    ticks: { stroke: () => colour("--rule"), width: 1, ...filter },
    // A logarithmic axis passes null for ticks without a label.
    values: (_, ticks, __, ___, step) => {
      const print = log ? (tick) => si(tick, unit) : text(ticks, step);
      return ticks.map((tick) => (tick === null ? "" : print(tick)));
    },
  };
}

function yRange(chart) {
  if (chart.range) return chart.range;
  if (chart.follows) return (_, min, max) => rangeInView(chart, min, max);
  const values = chart.lines.flatMap((line) => [...line.values, ...line.high]).filter((v) => v !== null);
  const references = (chart.reference_lines ?? []).map((line) => line.value);
  return [0, Math.max(...references, ...values, 0) * 1.12];
}

function rangeInView(chart, min, max) {
  if (max === null) return [0, 1];
  const margin = (max - min) * 0.06 || Math.abs(max) * 0.06 || 1;
  if (chart.floats) return [min - margin, max + margin];
  const top = Math.min(Math.max(-min, max), chart.ceiling ?? Infinity) * 1.12 || 1;
  return [chart.mirrored ? -top : 0, top];
}

// Draws text with a halo in the colour of the page, so that it is legible on top of lines.
function label(u, text, x, y, fill, align) {
  const { ctx } = u;
  const { font } = ctx;
  ctx.save();
  ctx.font = labelFont();
  ctx.textAlign = align;
  ctx.textBaseline = "alphabetic";
  ctx.lineWidth = 4 * devicePixelRatio;
  ctx.lineJoin = "round";
  ctx.strokeStyle = colour("--background");
  ctx.strokeText(text, x, y);
  ctx.fillStyle = fill;
  ctx.fillText(text, x, y);
  ctx.restore();
  // uPlot assumes that its axes' font is still set, and restore() of Chromium does not always restore it.
  ctx.font = font;
}

function drawRule(u, fill, from, to, dash = []) {
  const { ctx } = u;
  ctx.save();
  ctx.strokeStyle = fill;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash(dash.map((px) => px * devicePixelRatio));
  ctx.beginPath();
  ctx.moveTo(...from);
  ctx.lineTo(...to);
  ctx.stroke();
  ctx.restore();
}

// Returns the baselines of the labels of reference lines at these heights, in pixels. A label is above its line, or below
// it if the line or label above is too near, and does not overlap another line.
function labelPositions(heights, size) {
  const order = heights.map((_, i) => i).sort((a, b) => heights[a] - heights[b]);
  const found = [];
  let lowest = -Infinity;
  for (const i of order) {
    const above = heights[i] - size >= lowest;
    found[i] = above ? heights[i] : Math.max(heights[i], lowest) + size;
    for (const other of order.map((j) => heights[j])) {
      if (other < found[i] && other > found[i] - size) found[i] = other + size;
    }
    lowest = Math.max(heights[i], found[i]);
  }
  return found;
}

function drawReferenceLines(u, chart) {
  const { left, width } = u.bbox;
  const lines = chart.reference_lines ?? [];
  const height = (value) => u.valToPos(value, "y", true);
  const values = lines.flatMap(({ value }) => (chart.mirrored ? [value, -value] : [value]));
  for (const y of values.map(height)) drawRule(u, colour("--reference"), [left, y], [left + width, y]);
  const size = 18 * devicePixelRatio;
  // A mirrored chart has the label below the lower line.
  const positions = chart.mirrored
    ? lines.map(({ value }) => height(-value) + size)
    : labelPositions(lines.map(({ value }) => height(value)), size).map((y) => y - 6 * devicePixelRatio);
  const right = left + width - 6 * devicePixelRatio;
  lines.forEach((line, i) => label(u, line.label, right, positions[i], colour("--reference"), "right"));
  const { font } = u.ctx;
  u.ctx.save();
  u.ctx.font = labelFont();
  u.referenceLabels = lines.map((line, i) => ({ from: right - u.ctx.measureText(line.label).width, y: positions[i] }));
  u.ctx.restore();
  u.ctx.font = font;
}

// Returns the positions of the labels of events in view, from left to right, each in one of the rows above the plot. A
// label is right of its event's line; at the end of the chart it is left of it, with an arrow. A label without space is
// omitted: the caption above the chart has it.
function eventPositions(ctx, events, toX, left, right) {
  const gap = 4 * devicePixelRatio;
  const rows = Array.from({ length: EVENT_ROWS }, () => []);
  const position = ({ at_s, label: name }) => {
    const x = toX(at_s);
    const texts = [["left", name], ["right", `${name} ▸`]].map(([align, text]) => ({ x, align, text, length: ctx.measureText(text).width + 2 * gap }));
    const sides = texts.map((side) => ({ ...side, from: side.align === "left" ? x : x - side.length })).filter(({ from, length }) => from >= left - AXIS_PX * devicePixelRatio && from + length <= right + SIDE_PX * devicePixelRatio);
    const free = (row, { from, length }) => rows[row].every(([begin, end]) => from + length <= begin || from >= end);
    const found = rows.flatMap((_, row) => sides.filter((side) => free(row, side)).map((side) => ({ ...side, row })))[0];
    if (found) rows[found.row].push([found.from, found.from + found.length]);
    return found ?? { x };
  };
  return events.filter(({ at_s }) => toX(at_s) >= left && toX(at_s) <= right).map(position);
}

// Returns the height above the plot for the rows of event labels when the whole chart is in view.
function headroom(u, chart) {
  const [from, to] = [chart.x[0], chart.x.at(-1)];
  const width = (u.width - AXIS_PX - SIDE_PX) * devicePixelRatio;
  u.ctx.save();
  u.ctx.font = labelFont();
  const positions = eventPositions(u.ctx, chart.events, (at) => ((at - from) / (to - from)) * width, 0, width);
  u.ctx.restore();
  return SIDE_PX + EVENT_ROW_PX * Math.max(0, ...positions.map(({ row }) => (row ?? -1) + 1));
}

function drawEvents(u, chart) {
  const { left, top, width, height } = u.bbox;
  const gap = 4 * devicePixelRatio;
  const above = (row) => top - (6 + EVENT_ROW_PX * row) * devicePixelRatio;
  u.ctx.save();
  u.ctx.font = labelFont();
  const positions = eventPositions(u.ctx, chart.events, (at) => u.valToPos(at, "x", true), left, left + width);
  for (const { x, row } of positions) drawRule(u, colour("--quiet"), [x, row === undefined ? top : above(row)], [x, top + height], [4, 4]);
  for (const { x, row, align, text } of positions.filter((position) => position.text)) {
    label(u, text, align === "left" ? x + gap : x - gap, above(row), colour("--quiet"), align);
  }
  u.ctx.restore();
}

// Positions for a line's name, as shares of the range in view, in order of preference.
const LABEL_AT = [0.5, 0.35, 0.65, 0.2, 0.8];

// Returns the position of a line's name: above the line, within the range in view, clear of its peaks, and as near to the
// middle as possible. Without space above, it is below the middle of the line.
function namePosition(u, line, chart) {
  const { min, max } = u.scales.x;
  if (line.thin || line.unnamed) return null;
  const visible = chart.x.map((_, i) => i).filter((i) => chart.x[i] >= min && chart.x[i] <= max && (line.values[i] ?? null) !== null);
  if (visible.length === 0) return null;
  const positions = LABEL_AT.map((share) => {
    const x = u.valToPos(chart.x[visible[Math.floor((visible.length - 1) * share)]], "x", true);
    const near = visible.filter((i) => Math.abs(u.valToPos(chart.x[i], "x", true) - x) < LABEL_CLEARANCE_PX * devicePixelRatio);
    const peak = Math.max(...near.map((i) => line.high[i] ?? line.values[i]));
    const trough = Math.min(...near.map((i) => line.low[i] ?? line.values[i]));
    return { x, above: u.valToPos(peak, "y", true) - 8 * devicePixelRatio, below: u.valToPos(trough, "y", true) + 20 * devicePixelRatio };
  });
  const clear = positions.find(({ above }) => above >= u.bbox.top + 16 * devicePixelRatio);
  const { x } = clear ?? positions[0];
  const y = clear?.above ?? positions[0].below;
  // A name that would cross a reference line moves above it.
  const references = (chart.reference_lines ?? []).map((reference) => u.valToPos(reference.value, "y", true));
  const crossed = references.find((at) => at < y + 4 * devicePixelRatio && at > y - 16 * devicePixelRatio);
  return { line, x, y: crossed === undefined ? y : crossed - 6 * devicePixelRatio };
}

// Moves names apart that would touch: upwards from the lowest, then downwards from the top.
function separate(positions, gap, top) {
  positions.sort((a, b) => b.y - a.y);
  for (let i = 1; i < positions.length; i++) positions[i].y = Math.min(positions[i].y, positions[i - 1].y - gap);
  let highest = top;
  for (const position of positions.toReversed()) {
    position.y = Math.max(position.y, highest);
    highest = position.y + gap;
  }
  return positions;
}

function drawNames(u, chart) {
  const { left, top, width } = u.bbox;
  const line = 18 * devicePixelRatio;
  const { font } = u.ctx;
  u.ctx.save();
  u.ctx.font = labelFont();
  const positions = chart.lines.map((l) => namePosition(u, l, chart)).filter(Boolean);
  for (const position of separate(positions, line, top + line)) {
    const half = u.ctx.measureText(position.line.label).width / 2;
    // A name is left of a reference line's label at the same height.
    const sameHeight = (u.referenceLabels ?? []).filter((box) => Math.abs(box.y - position.y) < line);
    const right = Math.min(left + width - half - 4, ...sameHeight.map((box) => box.from - half - 8));
    const x = Math.max(Math.min(position.x, right), left + half + 4);
    label(u, position.line.label, x, position.y, colour(position.line.colour), "center");
  }
  u.ctx.restore();
  u.ctx.font = font;
}

function readout(figure, u, chart) {
  const i = u.cursor.idx;
  const { min, max } = u.scales.x;
  const text = i === null || i === undefined
    ? ""
    : [`at ${precise(chart.x[i], (max - min) / 1000, "s")}`, ...chart.lines.map((line) => `${line.label} ${formatValue(chart, line.values[i])}`)].join(" · ");
  figure.querySelector(".readout").textContent = text;
}

const formatValue = (chart, value) => si(chart.mirrored && value ? Math.abs(value) : value, chart.unit);

function options(figure, chart) {
  const plot = figure.querySelector(".plot");
  return {
    width: plot.clientWidth,
    height: chart.wide ? HEIGHT_WIDE_PX : HEIGHT_PX,
    legend: { show: false },
    cursor: { drag: { x: true, y: false }, points: { size: 7 } },
    padding: [(u) => headroom(u, chart), SIDE_PX, null, null],
    scales: {
      x: { time: false },
      y: { distr: chart.log ? 3 : 1, range: yRange(chart) },
    },
    axes: [axis("s", 40), axis(chart.unit, AXIS_PX, chart)],
    series: seriesOf(chart),
    bands: bandsOf(chart),
    hooks: {
      draw: [
        (u) => drawReferenceLines(u, chart),
        (u) => drawEvents(u, chart),
        (u) => drawNames(u, chart),
      ],
      setCursor: [(u) => readout(figure, u, chart)],
    },
  };
}

function zoom(u, factor) {
  const { min, max } = u.scales.x;
  // The cursor may be between two values.
  const middle = u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : (min + max) / 2;
  const half = ((max - min) * factor) / 2;
  u.setScale("x", {
    min: Math.max(middle - half, u.data[0][0]),
    max: Math.min(middle + half, u.data[0].at(-1)),
  });
  // uPlot applies a scale in a microtask. The cursor then stays at its time.
  queueMicrotask(() => u.setCursor({ left: u.valToPos(middle, "x"), top: CURSOR_TOP_PX }));
}

const reset = (u) => u.setScale("x", { min: u.data[0][0], max: u.data[0].at(-1) });
const step = (u, by) => u.setCursor({ left: Math.min(Math.max(u.cursor.left + by, 0), u.over.clientWidth - 1), top: CURSOR_TOP_PX });

const KEYS = {
  ArrowLeft: (u) => step(u, -CURSOR_STEP_PX),
  ArrowRight: (u) => step(u, CURSOR_STEP_PX),
  "+": (u) => zoom(u, 0.5),
  "-": (u) => zoom(u, 2),
  Escape: reset,
};

function onKey(event, u) {
  const action = KEYS[event.key];
  if (!action) return;
  action(u);
  event.preventDefault();
}

function row(cells, tag) {
  const tr = document.createElement("tr");
  for (const [n, text] of cells.entries()) {
    const heading = tag === "th" || n === 0;
    const cell = document.createElement(heading ? "th" : "td");
    if (heading) cell.scope = tag === "th" ? "col" : "row";
    cell.textContent = text;
    tr.append(cell);
  }
  return tr;
}

// Returns the chart's data as a table of at most TABLE_ROWS_MAX rows.
function table(chart) {
  const every = Math.ceil(chart.x.length / TABLE_ROWS_MAX) || 1;
  const step = (chart.x.at(-1) - chart.x[0]) / TABLE_ROWS_MAX;
  const [head, body, whole] = ["thead", "tbody", "table"].map((tag) => document.createElement(tag));
  head.append(row(["Time", ...chart.lines.map((line) => line.label)], "th"));
  for (let i = 0; i < chart.x.length; i += every) {
    body.append(row([precise(chart.x[i], step, "s"), ...chart.lines.map((line) => formatValue(chart, line.values[i]))], "td"));
  }
  whole.append(head, body);
  return whole;
}

function fillOnOpen(details, chart) {
  details.addEventListener("toggle", () => {
    if (details.querySelector("table")) return;
    const scroll = document.createElement("div");
    scroll.className = "scroll tall";
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", chart.title);
    scroll.append(table(chart));
    details.append(scroll);
  });
}

// Switches a chart between screen and paper. Paper has the light colours, and a chart does not grow with its column.
function setPrinting(printing, u, plot, chart) {
  document.documentElement.toggleAttribute("data-printing", printing);
  const paper = Math.min(chart.wide === false ? PAPER_HALF_PX : PAPER_PX, plot.clientWidth || PAPER_PX);
  const width = printing ? paper : plot.clientWidth;
  if (width) u.setSize({ width, height: u.height });
  u.redraw();
}

function draw(chart, figure, settings = options(figure, chart)) {
  const plot = figure.querySelector(".plot");
  const u = new uPlot(settings, columns(chart), plot);
  plot.addEventListener("keydown", (event) => onKey(event, u));
  fillOnOpen(figure.querySelector("details"), chart);
  // A hidden plot has no width; the chart keeps its last one.
  new ResizeObserver(() => { if (plot.clientWidth) u.setSize({ width: plot.clientWidth, height: u.height }); }).observe(plot);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => u.redraw());
  addEventListener("beforeprint", () => setPrinting(true, u, plot, chart));
  addEventListener("afterprint", () => setPrinting(false, u, plot, chart));
  return u;
}

JSON.parse(document.getElementById("charts").textContent)
  .forEach((chart, n) => draw(chart, document.getElementById(`chart-${n}`)));
