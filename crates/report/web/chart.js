// SPDX-License-Identifier: MIT OR Apache-2.0
// Draws charts with uPlot. The page's JSON block with the id "charts" is a list of charts (report/src/chart.rs); the nth
// is drawn into #chart-n when it comes into view. Scripts of a page draw other charts, which complete() makes, with
// draw(). Additional properties of these:
//   x: the positions of all lines
//   range: range of the y axis; without it, the axis follows the values in view, from zero unless `floats` is set
// Additional property of a line: unnamed.
"use strict";

const HEIGHT_WIDE_PX = 320;
const HEIGHT_PX = 240;
const CURSOR_STEP_PX = 10;
const CURSOR_TOP_PX = 10;
// Maximum width of a character on an axis, and least distance of labels with a unit.
const CHARACTER_PX = 8;
const LABEL_SPACE_PX = 90;
// Margin beside the first and the last mark, as a share of the width.
const MARK_MARGIN = 0.03;
// Distance from the window at which a chart is drawn.
const AHEAD_PX = 300;
const AXIS_FONT = "14px system-ui, sans-serif";
const TABLE_ROWS_MAX = 500;
// Widths of charts on A4 and Letter paper, without margins.
const PAPER_PX = 680;
const PAPER_HALF_PX = 328;

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

const translucent = (name, percent = 22) => `color-mix(in srgb, ${colour(name)} ${percent}%, transparent)`;

// Fills in what a chart leaves out, and gives all lines the positions of the chart: the union of their own.
function complete(chart) {
  const lines = chart.lines.map((line) => ({ dash: [], low: [], high: [], ...line }));
  const whole = { x_axis: { unit: "s" }, reference_lines: [], events: [], ...chart, lines };
  if (!chart.x) joinLines(whole);
  whole.domain = domainOf([whole]);
  return whole;
}

function joinLines(chart) {
  const positions = ({ x, values }) => (Array.isArray(x) ? x : values.map((_, i) => x.from + i * x.step));
  const hasRange = (line) => line.low.length > 0;
  const tables = chart.lines.map((line) => [positions(line), line.values, ...(hasRange(line) ? [line.low, line.high] : [])]);
  const [x, ...joined] = uPlot.join(tables);
  chart.x = x;
  for (const line of chart.lines) {
    line.values = joined.shift();
    if (hasRange(line)) [line.low, line.high] = joined.splice(0, 2);
  }
}

// Returns the range of x of charts: all their positions, with a margin if they have marks.
function domainOf(charts) {
  const { log } = charts[0].x_axis;
  const of = (x) => (log ? Math.log(x) : x);
  const [low, high] = [Math.min(...charts.map(({ x }) => of(x[0]))), Math.max(...charts.map(({ x }) => of(x.at(-1))))];
  const marked = charts.some(({ lines }) => lines.some(({ mark }) => mark !== undefined));
  const margin = low === high ? 1 : (high - low) * (marked ? MARK_MARGIN : 0);
  const ends = [low - margin, high + margin];
  return log ? ends.map(Math.exp) : ends;
}

// Returns the least and the greatest value that the y axis holds. The ceiling does not apply to reference lines.
function extremes({ lines, log, mirrored, ceiling = Infinity, reference_lines }) {
  let [low, high] = [Infinity, -Infinity];
  const extend = (value, most) => {
    if ((value ?? null) === null || (log && value <= 0)) return;
    low = Math.min(low, Math.max(value, -most));
    high = Math.max(high, Math.min(value, most));
  };
  for (const values of lines.flatMap((line) => [line.values, line.low, line.high])) values.forEach((value) => extend(value, ceiling));
  for (const { value } of reference_lines) extend(value, Infinity);
  return [low, high];
}

// Gives charts the same y axis, which does not follow the values in view, and the same x axis unless that is time.
function shareAxes(charts) {
  const all = charts.map(extremes);
  const [low, high] = [Math.min(...all.map(([least]) => least)), Math.max(...all.map(([, greatest]) => greatest))];
  for (const chart of charts) {
    chart.range = limits({ ...chart, floats: false, ceiling: Infinity }, low, high);
    if (chart.x_axis.name) chart.domain = domainOf(charts);
  }
}

const bandedLines = (chart) => chart.lines.filter((line) => line.low.length > 0 && line.mark === undefined);

// Returns the columns for uPlot: x, each line, then high and low of each line with a band.
function columns(chart) {
  const all = [...chart.lines.map((line) => line.values), ...bandedLines(chart).flatMap((line) => [line.high, line.low])];
  const padded = all.map((values) => chart.x.map((_, i) => values[i] ?? null));
  return [chart.x, ...padded];
}

function seriesOf(chart) {
  const edge = { stroke: "transparent", width: 0, points: { show: false } };
  return [
    {},
    ...chart.lines.map((line) => ({
      label: line.label,
      stroke: () => (line.thin ? translucent(line.colour, 50) : colour(line.colour)),
      ...(line.filled ? { fill: () => translucent(line.colour, 60) } : {}),
      ...(line.stepped ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}),
      width: line.thin ? 1 : 2,
      dash: line.dash,
      spanGaps: true,
      points: { show: false },
    })),
    ...bandedLines(chart).flatMap(() => [edge, edge]),
  ];
}

function bandsOf(chart) {
  const first = 1 + chart.lines.length;
  return bandedLines(chart)
    .map((line, n) => ({ series: [first + 2 * n, first + 2 * n + 1], fill: () => translucent(line.colour) }));
}

// Returns a power of ten. Parsed from text it is exact.
const power = (exponent) => Number(`1e${exponent}`);

// Returns the ticks of a logarithmic axis: powers of ten, and 2 and 5 times these if the axis is short.
function roundTicks(_, __, low, high) {
  const factors = high / low > 200 ? [1] : [1, 2, 5];
  const [first, last] = [low, high].map((value) => Math.floor(Math.log10(value)));
  const powers = Array.from({ length: last - first + 1 }, (___, n) => power(first + n));
  return powers.flatMap((p) => factors.map((factor) => factor * p)).filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
}

// Leaves out labels of the x axis that would touch the one before.
function fitting(u, ticks, texts) {
  let end = -Infinity;
  return texts.map((text, i) => {
    const [x, half] = [u.valToPos(ticks[i], "x"), (text.length * CHARACTER_PX) / 2];
    if (text === "" || x - half < end) return "";
    end = x + half + CHARACTER_PX;
    return text;
  });
}

function axis(size, { unit, log, mirrored, name }) {
  const magnitude = (tick) => (mirrored ? Math.abs(tick) : tick);
  const text = (ticks, step) => (tick) => uniform(magnitude(tick), wholeStep(step), unit, Math.max(...ticks.map(Math.abs)));
  return {
    stroke: () => colour("--quiet"),
    font: AXIS_FONT,
    size,
    ...(name ? { label: name, labelFont: AXIS_FONT, labelSize: 24 } : {}),
    ...(log ? { splits: roundTicks } : {}),
    // uPlot would remove ticks of a logarithmic axis.
    filter: (_, ticks) => ticks,
    grid: { stroke: () => colour("--rule"), width: 1 },
    ticks: { stroke: () => colour("--rule"), width: 1 },
    values: (_, ticks, __, ___, step) => ticks.map(log ? (tick) => si(tick, unit) : text(ticks, step)),
  };
}

// Returns the x axis: with its own ticks, or with round values.
function xAxis(own) {
  const round = axis(40, own);
  if (!own.ticks) return { ...round, space: own.name ? LABEL_SPACE_PX : 50, values: (u, ticks, ...more) => fitting(u, ticks, round.values(u, ticks, ...more)) };
  const splits = (_, __, low, high) => own.ticks.map(([at]) => at).filter((at) => at >= low && at <= high);
  return { ...round, splits, values: (u, ticks) => fitting(u, ticks, ticks.map((at) => nearestTick(own.ticks, at))) };
}

// Returns the range of the y axis for values from `low` to `high`.
function limits(chart, low, high) {
  if (high === null || low > high) return chart.log ? [1, 10] : [0, 1];
  if (chart.log) return [power(Math.floor(Math.log10(low))), power(Math.floor(Math.log10(high)) + 1)];
  const margin = (high - low) * 0.06 || Math.abs(high) * 0.06 || 1;
  if (chart.floats) return [low - margin, high + margin];
  const top = Math.min(Math.max(-low, high), chart.ceiling ?? Infinity) * 1.12 || 1;
  return [chart.mirrored ? -top : 0, top];
}

// Returns a list of the lines, for screens without space for their names.
function legend(chart) {
  const list = document.createElement("ul");
  list.className = "keys";
  for (const line of chart.lines) {
    const item = document.createElement("li");
    const mark = line.mark === undefined ? "" : `<path class="mark" transform="translate(18 7)" d="${markOf(line)}"/>`;
    item.innerHTML = `<svg width="36" height="14" aria-hidden="true" style="color: var(${line.colour})"><path d="M0 7H36" stroke-dasharray="${line.dash}"/>${mark}</svg>`;
    item.append(line.label);
    list.append(item);
  }
  return list;
}

const nearestTick = (ticks, x) => ticks.reduce((best, tick) => (Math.abs(tick[0] - x) < Math.abs(best[0] - x) ? tick : best))[1];
const positionText = ({ x_axis: { ticks, unit } }, x, step) => (ticks ? nearestTick(ticks, x) : precise(x, step, unit));
const formatValue = (chart, value) => si(chart.mirrored && value ? Math.abs(value) : value, chart.unit);

// Formats a line's value, and its range at a mark: "937 Mbit/s [900 Mbit/s – 940 Mbit/s]". A step holds until the next.
function valueText(chart, line, i) {
  const [value, low, high] = [line.values[i] ?? (line.stepped ? line.values.slice(0, i).findLast((v) => (v ?? null) !== null) : null), line.low[i], line.high[i]];
  const range = line.mark !== undefined && low < high ? ` [${formatValue(chart, low)} – ${formatValue(chart, high)}]` : "";
  return formatValue(chart, value) + range;
}

function readout(figure, u, chart) {
  const i = u.cursor.idx;
  const { min, max } = u.scales.x;
  const text = i === null || i === undefined
    ? ""
    : [`at ${positionText(chart, chart.x[i], (max - min) / 1000)}`, ...chart.lines.map((line) => `${line.label} ${valueText(chart, line, i)}`)].join(" · ");
  figure.querySelector(".readout").textContent = text;
}

// Returns the width of a chart. On paper it does not grow with its column.
function widthOf(plot, chart) {
  if (!document.documentElement.hasAttribute("data-printing")) return plot.clientWidth;
  return Math.min(chart.wide === false ? PAPER_HALF_PX : PAPER_PX, plot.clientWidth || PAPER_PX);
}

function options(figure, chart) {
  const plot = figure.querySelector(".plot");
  return {
    width: widthOf(plot, chart),
    height: chart.wide ? HEIGHT_WIDE_PX : HEIGHT_PX,
    legend: { show: false },
    cursor: { drag: { x: true, y: false }, points: { size: 7 }, bind: { dblclick: (u) => () => reset(u, chart) } },
    padding: [(u) => headroom(u, chart), (u) => rightMargin(u, chart), null, null],
    scales: {
      x: { time: false, distr: chart.x_axis.log ? 3 : 1, min: chart.domain[0], max: chart.domain[1], range: (_, low, high) => [low, high] },
      y: { distr: chart.log ? 3 : 1, range: chart.range ?? ((_, low, high) => limits(chart, low, high)) },
    },
    axes: [xAxis(chart.x_axis), axis(AXIS_PX, { ...chart, name: chart.y_name })],
    series: seriesOf(chart),
    bands: bandsOf(chart),
    hooks: {
      draw: [
        (u) => drawReferenceLines(u, chart),
        (u) => drawEvents(u, chart),
        (u) => drawMarks(u, chart),
        (u) => drawNames(u, chart),
      ],
      setCursor: [(u) => readout(figure, u, chart)],
    },
  };
}

function zoom(u, chart, factor) {
  const width = u.bbox.width / devicePixelRatio;
  // The cursor may be between two values.
  const middle = u.cursor.left >= 0 ? u.cursor.left : width / 2;
  const [from, at, to] = [-0.5, 0, 0.5].map((share) => u.posToVal(middle + share * width * factor, "x"));
  u.setScale("x", { min: Math.max(from, chart.domain[0]), max: Math.min(to, chart.domain[1]) });
  // uPlot applies a scale in a microtask. The cursor then stays at its time.
  queueMicrotask(() => u.setCursor({ left: u.valToPos(at, "x"), top: CURSOR_TOP_PX }));
}

const reset = (u, { domain: [min, max] }) => u.setScale("x", { min, max });
const step = (u, by) => u.setCursor({ left: Math.min(Math.max(u.cursor.left + by, 0), u.over.clientWidth - 1), top: CURSOR_TOP_PX });

const KEYS = {
  ArrowLeft: (u) => step(u, -CURSOR_STEP_PX),
  ArrowRight: (u) => step(u, CURSOR_STEP_PX),
  "+": (u, chart) => zoom(u, chart, 0.5),
  "-": (u, chart) => zoom(u, chart, 2),
  Escape: reset,
};

function onKey(event, u, chart) {
  const action = KEYS[event.key];
  if (!action) return;
  action(u, chart);
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

// Fills a `details` element with a table of at most TABLE_ROWS_MAX rows when it is opened. `rowsOf` returns the rows.
function fillOnOpen(details, label, headings, rowsOf) {
  details.addEventListener("toggle", () => {
    details.querySelector(".scroll")?.remove();
    if (!details.open) return;
    const [head, body, table, scroll] = ["thead", "tbody", "table", "div"].map((tag) => document.createElement(tag));
    head.append(row(headings, "th"));
    body.append(...rowsOf().map((cells) => row(cells, "td")));
    table.append(head, body);
    scroll.className = "scroll tall";
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", label);
    scroll.append(table);
    details.append(scroll);
  });
}

function dataRows(chart) {
  const every = Math.ceil(chart.x.length / TABLE_ROWS_MAX) || 1;
  const step = (chart.x.at(-1) - chart.x[0]) / TABLE_ROWS_MAX;
  const shown = chart.x.map((_, i) => i).filter((i) => i % every === 0);
  return shown.map((i) => [positionText(chart, chart.x[i], step), ...chart.lines.map((line) => valueText(chart, line, i))]);
}

function draw(chart, figure, settings = options(figure, chart)) {
  const plot = figure.querySelector(".plot");
  const u = new uPlot(settings, columns(chart), plot);
  plot.addEventListener("keydown", (event) => onKey(event, u, chart));
  if (chart.names_at_ends) plot.after(legend(chart));
  const details = figure.querySelector("details:not(:has(table))");
  if (details) fillOnOpen(details, chart.title, [chart.x_axis.name ?? "Time", ...chart.lines.map((line) => line.label)], () => dataRows(chart));
  // A hidden plot has no width; the chart keeps its last one.
  new ResizeObserver(() => { if (plot.clientWidth) u.setSize({ width: plot.clientWidth, height: u.height }); }).observe(plot);
  drawn.push({ u, plot, chart });
  return u;
}

const drawn = [];
// Figures that were not in view yet, each with the function that draws it.
const waiting = new Map();

function drawNow(figure) {
  const drawFigure = waiting.get(figure);
  waiting.delete(figure);
  drawFigure?.();
}

const seen = new IntersectionObserver((entries) => {
  for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
    seen.unobserve(target);
    drawNow(target);
  }
}, { rootMargin: `${AHEAD_PX}px` });

// Draws a figure of the first screen at once, another one shortly before it is scrolled into view.
function drawWhenSeen(figure, drawFigure) {
  waiting.set(figure, drawFigure);
  const inFirstScreen = figure.offsetParent !== null && figure.getBoundingClientRect().top < innerHeight;
  inFirstScreen ? drawNow(figure) : seen.observe(figure);
}

// Switches all charts between screen and paper. Paper has the light colours.
function setPrinting(printing) {
  document.documentElement.toggleAttribute("data-printing", printing);
  for (const { u, plot, chart } of drawn) {
    const width = widthOf(plot, chart);
    if (width) u.setSize({ width, height: u.height });
    u.redraw();
  }
}

addEventListener("beforeprint", () => {
  setPrinting(true);
  [...waiting.keys()].filter((figure) => !figure.closest("[hidden]")).forEach(drawNow);
});
addEventListener("afterprint", () => setPrinting(false));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(({ u }) => u.redraw()));

{
  const charts = JSON.parse(document.getElementById("charts").textContent).map(complete);
  Map.groupBy(charts, (chart) => chart.shared_axes ?? chart).forEach(shareAxes);
  charts.forEach((chart, n) => {
    const figure = document.getElementById(`chart-${n}`);
    drawWhenSeen(figure, () => draw(chart, figure));
  });
}
