// SPDX-License-Identifier: MIT OR Apache-2.0
// What chart.js draws on top of uPlot: names of lines, marks of values, reference lines and events.
"use strict";

// Margins beside the plot: the y axis, and the side without an axis.
const AXIS_PX = 92;
const SIDE_PX = 16;
const LABEL_CLEARANCE_PX = 60;
// Minimum width of a chart with names at the ends of its lines, and their distance from them.
const END_NAMES_PX = 600;
const END_NAME_GAP_PX = 12;
const EVENT_ROWS = 3;
const EVENT_ROW_PX = 18;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const labelFont = () => `600 ${14 * devicePixelRatio}px system-ui, sans-serif`;

// Calls `use` with the context in the font of labels.
function withLabelFont({ ctx }, use) {
  const { font } = ctx;
  ctx.save();
  ctx.font = labelFont();
  const result = use(ctx);
  ctx.restore();
  // uPlot assumes that its axes' font is still set, and restore() of Chromium does not always restore it.
  ctx.font = font;
  return result;
}

// Draws text with a halo in the colour of the page, so that it is legible on top of lines.
function label(u, text, x, y, fill, align) {
  withLabelFont(u, (ctx) => {
    ctx.textAlign = align;
    ctx.textBaseline = "alphabetic";
    ctx.lineWidth = 4 * devicePixelRatio;
    ctx.lineJoin = "round";
    ctx.strokeStyle = colour("--background");
    ctx.strokeText(text, x, y);
    ctx.fillStyle = fill;
    ctx.fillText(text, x, y);
  });
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
  const lines = chart.reference_lines;
  const height = (value) => u.valToPos(value, "y", true);
  const values = lines.flatMap(({ value }) => (chart.mirrored ? [value, -value] : [value]));
  for (const y of values.map(height)) drawRule(u, colour("--reference"), [left, y], [left + width, y]);
  const size = 18 * devicePixelRatio;
  // A mirrored chart has the label below the lower line.
  const positions = chart.mirrored
    ? lines.map(({ value }) => height(-value) + size)
    : labelPositions(lines.map(({ value }) => height(value)), size).map((y) => y - 6 * devicePixelRatio);
  const margin = 6 * devicePixelRatio;
  const right = left + width - margin;
  if (chart.names_at_ends) {
    lines.forEach((line, i) => label(u, line.label, left + margin, positions[i], colour("--reference"), "left"));
    return;
  }
  lines.forEach((line, i) => label(u, line.label, right, positions[i], colour("--reference"), "right"));
  u.referenceLabels = withLabelFont(u, (ctx) => lines.map((line, i) => ({ from: right - ctx.measureText(line.label).width, y: positions[i] })));
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
  const [from, to] = chart.domain;
  const width = (u.width - AXIS_PX - SIDE_PX) * devicePixelRatio;
  const positions = withLabelFont(u, (ctx) => eventPositions(ctx, chart.events, (at) => ((at - from) / (to - from)) * width, 0, width));
  return SIDE_PX + EVENT_ROW_PX * Math.max(0, ...positions.map(({ row }) => (row ?? -1) + 1));
}

function drawEvents(u, chart) {
  const { left, top, width, height } = u.bbox;
  const gap = 4 * devicePixelRatio;
  const above = (row) => top - (6 + EVENT_ROW_PX * row) * devicePixelRatio;
  const positions = withLabelFont(u, (ctx) => eventPositions(ctx, chart.events, (at) => u.valToPos(at, "x", true), left, left + width));
  for (const { x, row } of positions) drawRule(u, colour("--quiet"), [x, row === undefined ? top : above(row)], [x, top + height], [4, 4]);
  for (const { x, row, align, text } of positions.filter((position) => position.text)) {
    label(u, text, align === "left" ? x + gap : x - gap, above(row), colour("--quiet"), align);
  }
}

// Shapes of marks, so that lines can be told apart without colour.
const MARKS = ["M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z", "M-4 -4h8v8h-8z", "M0 -5.5l5.2 9.5h-10.4z", "M0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z"];
const markOf = (line) => MARKS[line.mark % MARKS.length];

// Draws the mark of a value, and the range of the value.
function drawMark(u, line, x, i) {
  const { ctx } = u;
  const bottom = u.bbox.top + u.bbox.height;
  const y = (value) => Math.min(u.valToPos(value, "y", true), bottom);
  if (line.low[i] < line.high[i]) drawRule(u, colour("--reference"), [x, y(line.low[i])], [x, y(line.high[i])]);
  const shape = new Path2D(markOf(line));
  ctx.save();
  ctx.translate(x, y(line.values[i]));
  ctx.scale(devicePixelRatio, devicePixelRatio);
  ctx.lineWidth = 1.5;
  ctx.strokeStyle = colour(line.colour);
  ctx.fillStyle = colour(line.colour === "--reference" ? "--background" : line.colour);
  ctx.fill(shape);
  ctx.stroke(shape);
  ctx.restore();
}

function drawMarks(u, chart) {
  const { min, max } = u.scales.x;
  for (const line of chart.lines.filter(({ mark }) => mark !== undefined)) {
    chart.x.forEach((x, i) => {
      if (x >= min && x <= max && (line.values[i] ?? null) !== null) drawMark(u, line, u.valToPos(x, "x", true), i);
    });
  }
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
  const references = chart.reference_lines.map((reference) => u.valToPos(reference.value, "y", true));
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

const hasNamesAtEnds = (u, chart) => chart.names_at_ends && u.width >= END_NAMES_PX;

// Returns the position of a line's name right of its last value in view.
function endPosition(u, line, chart) {
  const last = chart.x.findLastIndex((x, i) => x <= u.scales.x.max && (line.values[i] ?? null) !== null);
  if (last < 0) return null;
  const [x, y] = [u.valToPos(chart.x[last], "x", true), u.valToPos(line.values[last], "y", true)];
  return { line, x: x + END_NAME_GAP_PX * devicePixelRatio, y: y + 5 * devicePixelRatio };
}

// Returns the width of the right margin, with the names there.
function rightMargin(u, chart) {
  if (!hasNamesAtEnds(u, chart)) return SIDE_PX;
  const widths = withLabelFont(u, (ctx) => chart.lines.map((line) => ctx.measureText(line.label).width));
  return END_NAME_GAP_PX + SIDE_PX + Math.max(...widths) / devicePixelRatio;
}

function drawNames(u, chart) {
  if (chart.names_at_ends && !hasNamesAtEnds(u, chart)) return;
  const { left, top, width } = u.bbox;
  const line = 18 * devicePixelRatio;
  const positions = chart.lines.map((l) => (chart.names_at_ends ? endPosition : namePosition)(u, l, chart)).filter(Boolean);
  for (const position of separate(positions, line, top + line)) {
    const name = position.line.label;
    const half = withLabelFont(u, (ctx) => ctx.measureText(name).width) / 2;
    // A name is left of a reference line's label at the same height.
    const sameHeight = (u.referenceLabels ?? []).filter((box) => Math.abs(box.y - position.y) < line);
    const right = Math.min(left + width - half - 4, ...sameHeight.map((box) => box.from - half - 8));
    const centre = Math.max(Math.min(position.x, right), left + half + 4);
    label(u, name, chart.names_at_ends ? position.x : centre, position.y, colour(position.line.colour), chart.names_at_ends ? "left" : "center");
  }
}
