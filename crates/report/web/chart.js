// SPDX-License-Identifier: MIT OR Apache-2.0
// Draws charts with uPlot. Those that stand in the page's JSON block with the id "charts" are drawn at
// once: a list of charts as lab/report/script.rs writes them, the nth into #chart-n. Others are drawn by
// the page's own script with draw(). Besides what script.rs says, a chart may be
//   follows: the y axis holds what is in view, from zero unless it also floats
//   ceiling: values above it don't widen the y axis
//   mirrored: what is below zero is a quantity too, drawn downwards
// and a line may be thin (many points, no name) or unnamed.
"use strict";

const HEIGHT_WIDE_PX = 320;
const HEIGHT_PX = 240;
const CURSOR_STEP_PX = 10;
const CURSOR_TOP_PX = 10;
const LABEL_REACH_PX = 60;
const TABLE_ROWS_MAX = 500;
// A4 and Letter, with margins.
const PAPER_PX = 680;
const PAPER_HALF_PX = 328;
const EVENT_ROWS = 3;
const EVENT_ROW_PX = 18;
const AXIS_PX = 92;
const SIDE_PX = 16;

const prefixes = (unit) => (unit === "s"
  ? [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]]
  : [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]]);

// Three significant digits with an SI prefix; times go down from one, all else goes up.
function si(value, unit) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return `0 ${unit}`;
  const [scale, prefix] = prefixes(unit).find(([s]) => Math.abs(value) >= s * 0.9995) ?? prefixes(unit).at(-1);
  return `${Number((value / scale).toPrecision(3))} ${prefix}${unit}`;
}

// With as many decimals as steps of this size need; si() where three digits will do.
function precise(value, step, unit) {
  return step > 0 && Math.abs(value) >= step * 1000 ? uniform(value, step, unit, Math.abs(value)) : si(value, unit);
}

// As one of several values in steps, the largest of which gives the prefix.
function uniform(value, step, unit, largest) {
  if (value === 0 || !(step > 0)) return si(value, unit);
  const [scale, prefix] = prefixes(unit).find(([s]) => largest >= s * 0.9995) ?? prefixes(unit).at(-1);
  const decimals = Math.min(Math.max(Math.ceil(Math.log10(scale / step) - 1e-9), 0), 9);
  return `${(value / scale).toFixed(decimals)} ${prefix}${unit}`;
}

// Ticks 2.5 apart need a decimal more than those 2 or 5 apart.
function wholeStep(step) {
  const mantissa = step / 10 ** Math.floor(Math.log10(step));
  return Math.abs(mantissa - Math.round(mantissa)) < 1e-6 ? step : step / 10;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const labelFont = () => `600 ${14 * devicePixelRatio}px system-ui, sans-serif`;
const translucent = (name, percent = 22) => `color-mix(in srgb, ${colour(name)} ${percent}%, transparent)`;

// uPlot wants columns: x, every line, then low and high of every line that has a band.
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

// Ticks between the powers of ten would be a grey wall.
const powersOfTen = (_, ticks) => ticks.map((tick) => (Number.isInteger(Math.round(Math.log10(tick) * 1e6) / 1e6) ? tick : null));

function axis(unit, size, { log, mirrored } = {}) {
  const filter = log ? { filter: powersOfTen } : {};
  const shown = (tick) => (mirrored ? Math.abs(tick) : tick);
  const text = (ticks, step) => (tick) => uniform(shown(tick), wholeStep(step), unit, Math.max(...ticks.map(Math.abs)));
  return {
    stroke: () => colour("--quiet"),
    font: "14px system-ui, sans-serif",
    size,
    ...filter,
    grid: { stroke: () => colour("--rule"), width: 1, ...filter },
    ticks: { stroke: () => colour("--rule"), width: 1, ...filter },
    // A logarithmic axis passes null for the ticks that are to stay without a label.
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
  const limits = (chart.limits ?? []).map((limit) => limit.value);
  return [0, Math.max(...limits, ...values, 0) * 1.12];
}

function rangeInView(chart, min, max) {
  if (max === null) return [0, 1];
  const spare = (max - min) * 0.06 || Math.abs(max) * 0.06 || 1;
  if (chart.floats) return [min - spare, max + spare];
  const reach = Math.min(Math.max(-min, max), chart.ceiling ?? Infinity) * 1.12 || 1;
  return [chart.mirrored ? -reach : 0, reach];
}

// Text with a halo in the colour of the page, so that it reads on top of lines.
function label(u, text, x, y, fill, align) {
  const { ctx } = u;
  const { font } = ctx;
  ctx.save();
  ctx.font = labelFont();
  ctx.textAlign = align;
  ctx.textBaseline = "alphabetic";
  ctx.lineWidth = 4 * devicePixelRatio;
  ctx.lineJoin = "round";
  ctx.strokeStyle = colour("--paper-white");
  ctx.strokeText(text, x, y);
  ctx.fillStyle = fill;
  ctx.fillText(text, x, y);
  ctx.restore();
  // uPlot takes its axes' font for set, which restore() of Chromium does not always bring back.
  ctx.font = font;
}

function rule(u, fill, from, to, dash = []) {
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

// Where the names of lines across stand, for lines at these heights in pixels: above their line, or below it where the
// line or the name above is too near, and clear of the lines there.
function limitNames(heights, size) {
  const order = heights.map((_, i) => i).sort((a, b) => heights[a] - heights[b]);
  const found = [];
  let taken = -Infinity;
  for (const i of order) {
    const above = heights[i] - size >= taken;
    found[i] = above ? heights[i] : Math.max(heights[i], taken) + size;
    for (const other of order.map((j) => heights[j])) {
      if (other < found[i] && other > found[i] - size) found[i] = other + size;
    }
    taken = Math.max(heights[i], found[i]);
  }
  return found;
}

function drawLimits(u, chart) {
  const { left, width } = u.bbox;
  const limits = chart.limits ?? [];
  const height = (value) => u.valToPos(value, "y", true);
  const values = limits.flatMap(({ value }) => (chart.mirrored ? [value, -value] : [value]));
  for (const y of values.map(height)) rule(u, colour("--reference"), [left, y], [left + width, y]);
  const size = 18 * devicePixelRatio;
  // Outside of what is drawn: above the line, below the lower one of two.
  const places = chart.mirrored
    ? limits.map(({ value }) => height(-value) + size)
    : limitNames(limits.map(({ value }) => height(value)), size).map((y) => y - 6 * devicePixelRatio);
  const right = left + width - 6 * devicePixelRatio;
  limits.forEach((limit, i) => label(u, limit.label, right, places[i], colour("--reference"), "right"));
  const { font } = u.ctx;
  u.ctx.save();
  u.ctx.font = labelFont();
  u.limitBoxes = limits.map((limit, i) => ({ from: right - u.ctx.measureText(limit.label).width, y: places[i] }));
  u.ctx.restore();
  u.ctx.font = font;
}

// Where the names of events go that are in the plot, from left to right, each in one of the rows above it: right of
// its rule, or left of it where the chart ends, with an arrow to it. One that has no room is left out: the words
// above the chart have it.
function eventPlaces(ctx, events, toX, left, right) {
  const gap = 4 * devicePixelRatio;
  const rows = Array.from({ length: EVENT_ROWS }, () => []);
  const place = ({ at_s, label: name }) => {
    const x = toX(at_s);
    const texts = [["left", name], ["right", `${name} ▸`]].map(([align, text]) => ({ x, align, text, room: ctx.measureText(text).width + 2 * gap }));
    const sides = texts.map((side) => ({ ...side, from: side.align === "left" ? x : x - side.room })).filter(({ from, room }) => from >= left - AXIS_PX * devicePixelRatio && from + room <= right + SIDE_PX * devicePixelRatio);
    const free = (row, { from, room }) => rows[row].every(([begin, end]) => from + room <= begin || from >= end);
    const found = rows.flatMap((_, row) => sides.filter((side) => free(row, side)).map((side) => ({ ...side, row })))[0];
    if (found) rows[found.row].push([found.from, found.from + found.room]);
    return found ?? { x };
  };
  return events.filter(({ at_s }) => toX(at_s) >= left && toX(at_s) <= right).map(place);
}

// Room above the plot for as many rows as the names take while all is in view.
function headroom(u, chart) {
  const [from, to] = [chart.x[0], chart.x.at(-1)];
  const width = (u.width - AXIS_PX - SIDE_PX) * devicePixelRatio;
  u.ctx.save();
  u.ctx.font = labelFont();
  const places = eventPlaces(u.ctx, chart.events, (at) => ((at - from) / (to - from)) * width, 0, width);
  u.ctx.restore();
  return SIDE_PX + EVENT_ROW_PX * Math.max(0, ...places.map(({ row }) => (row ?? -1) + 1));
}

function drawEvents(u, chart) {
  const { left, top, width, height } = u.bbox;
  const gap = 4 * devicePixelRatio;
  const above = (row) => top - (6 + EVENT_ROW_PX * row) * devicePixelRatio;
  u.ctx.save();
  u.ctx.font = labelFont();
  const places = eventPlaces(u.ctx, chart.events, (at) => u.valToPos(at, "x", true), left, left + width);
  for (const { x, row } of places) rule(u, colour("--quiet"), [x, row === undefined ? top : above(row)], [x, top + height], [4, 4]);
  for (const { x, row, align, text } of places.filter((place) => place.text)) {
    label(u, text, align === "left" ? x + gap : x - gap, above(row), colour("--quiet"), align);
  }
  u.ctx.restore();
}

// Shares of what is in view where a line's name may go, the best first.
const LABEL_AT = [0.5, 0.35, 0.65, 0.2, 0.8];

// Where a line's name goes: above the line, within what is in view, clear of its peaks, as near to the middle as there is
// room; below its middle where there is none.
function labelPlace(u, line, chart) {
  const { min, max } = u.scales.x;
  if (line.thin || line.unnamed) return null;
  const seen = chart.x.map((_, i) => i).filter((i) => chart.x[i] >= min && chart.x[i] <= max && (line.values[i] ?? null) !== null);
  if (seen.length === 0) return null;
  const places = LABEL_AT.map((share) => {
    const x = u.valToPos(chart.x[seen[Math.floor((seen.length - 1) * share)]], "x", true);
    const near = seen.filter((i) => Math.abs(u.valToPos(chart.x[i], "x", true) - x) < LABEL_REACH_PX * devicePixelRatio);
    const peak = Math.max(...near.map((i) => line.high[i] ?? line.values[i]));
    const trough = Math.min(...near.map((i) => line.low[i] ?? line.values[i]));
    return { x, above: u.valToPos(peak, "y", true) - 8 * devicePixelRatio, below: u.valToPos(trough, "y", true) + 20 * devicePixelRatio };
  });
  const clear = places.find(({ above }) => above >= u.bbox.top + 16 * devicePixelRatio);
  const { x } = clear ?? places[0];
  const y = clear?.above ?? places[0].below;
  // Not across a limit: above it.
  const limits = (chart.limits ?? []).map((limit) => u.valToPos(limit.value, "y", true));
  const crossed = limits.find((limit) => limit < y + 4 * devicePixelRatio && limit > y - 16 * devicePixelRatio);
  return { line, x, y: crossed === undefined ? y : crossed - 6 * devicePixelRatio };
}

// Names that would touch are pushed apart, upwards from the lowest, and down again from the top.
function spread(places, gap, top) {
  places.sort((a, b) => b.y - a.y);
  for (let i = 1; i < places.length; i++) places[i].y = Math.min(places[i].y, places[i - 1].y - gap);
  let highest = top;
  for (const place of places.toReversed()) {
    place.y = Math.max(place.y, highest);
    highest = place.y + gap;
  }
  return places;
}

function drawLabels(u, chart) {
  const { left, top, width } = u.bbox;
  const line = 18 * devicePixelRatio;
  const { font } = u.ctx;
  u.ctx.save();
  u.ctx.font = labelFont();
  const places = chart.lines.map((l) => labelPlace(u, l, chart)).filter(Boolean);
  for (const place of spread(places, line, top + line)) {
    const half = u.ctx.measureText(place.line.label).width / 2;
    // Left of the name of a line across at the same height.
    const beside = (u.limitBoxes ?? []).filter((box) => Math.abs(box.y - place.y) < line);
    const right = Math.min(left + width - half - 4, ...beside.map((box) => box.from - half - 8));
    const x = Math.max(Math.min(place.x, right), left + half + 4);
    label(u, place.line.label, x, place.y, colour(place.line.colour), "center");
  }
  u.ctx.restore();
  u.ctx.font = font;
}

function readout(figure, u, chart) {
  const i = u.cursor.idx;
  const { min, max } = u.scales.x;
  const shown = i === null || i === undefined
    ? ""
    : [`at ${precise(chart.x[i], (max - min) / 1000, "s")}`, ...chart.lines.map((line) => `${line.label} ${quantity(chart, line.values[i])}`)].join(" · ");
  figure.querySelector(".readout").textContent = shown;
}

const quantity = (chart, value) => si(chart.mirrored && value ? Math.abs(value) : value, chart.unit);

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
        (u) => drawLimits(u, chart),
        (u) => drawEvents(u, chart),
        (u) => drawLabels(u, chart),
      ],
      setCursor: [(u) => readout(figure, u, chart)],
    },
  };
}

function zoom(u, factor) {
  const { min, max } = u.scales.x;
  // Where the cursor is, which may lie between two values.
  const middle = u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : (min + max) / 2;
  const half = ((max - min) * factor) / 2;
  u.setScale("x", {
    min: Math.max(middle - half, u.data[0][0]),
    max: Math.min(middle + half, u.data[0].at(-1)),
  });
  // uPlot applies a scale in a microtask; the cursor then stays at its moment.
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

// The chart's data as a table, thinned to what a person would scroll through.
function table(chart) {
  const every = Math.ceil(chart.x.length / TABLE_ROWS_MAX) || 1;
  const step = (chart.x.at(-1) - chart.x[0]) / TABLE_ROWS_MAX;
  const [head, body, whole] = ["thead", "tbody", "table"].map((tag) => document.createElement(tag));
  head.append(row(["Time", ...chart.lines.map((line) => line.label)], "th"));
  for (let i = 0; i < chart.x.length; i += every) {
    body.append(row([precise(chart.x[i], step, "s"), ...chart.lines.map((line) => quantity(chart, line.values[i]))], "td"));
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

// On paper colours are those of a light page, and a picture can't grow with its column.
function inPrint(printing, u, plot, chart) {
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
  // Hidden, a plot has no width; it keeps the one that it had.
  new ResizeObserver(() => { if (plot.clientWidth) u.setSize({ width: plot.clientWidth, height: u.height }); }).observe(plot);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => u.redraw());
  addEventListener("beforeprint", () => inPrint(true, u, plot, chart));
  addEventListener("afterprint", () => inPrint(false, u, plot, chart));
  return u;
}

JSON.parse(document.getElementById("charts").textContent)
  .forEach((chart, n) => draw(chart, document.getElementById(`chart-${n}`)));
