// SPDX-License-Identifier: MIT OR Apache-2.0
// Packet windows in the time–sequence chart, drawn as by W. R. Stevens and tcptrace. Each segment is a bar from its
// first byte to its last, with the ACK line below and the end of the advertised window above. SACK blocks are bars, too.
// Only some periods have a packet window (tap/src/report/result/packet_windows.rs); the chart marks them.
"use strict";

// Minimum width of a packet window that is drawn segment by segment; a narrower one is a marker.
const WINDOW_PX = 24;
const MARKER_PX = 5;
// Margin at both sides of a packet window after zooming in to it, as a share of its length.
const WINDOW_MARGIN = 0.04;
const [SENT, RETRANSMITTED, ACK, SACK] = [0, 1, 2, 3];
const EVENT_NAMES = ["sent", "retransmitted", "ACK", "SACK"];
const EVENT_COLOURS = ["--first", "--bad", "--third", "--fourth"];

function decodeBase64(text) {
  const raw = atob(text);
  return Uint8Array.from(raw, (letter) => letter.charCodeAt(0)).buffer;
}

// Columns of a packet window. Times are in seconds from `begin_ns`, the start of the time series.
function readPacketWindow(packed, begin_ns) {
  const start = (packed.from_ns - begin_ns) / 1e9;
  const numbers = (name) => Float64Array.from(new Int32Array(decodeBase64(packed[name])), (n) => packed.base + n);
  const at = Float64Array.from(new Uint32Array(decodeBase64(packed.at)), (n) => start + (n * packed.tick_ns) / 1e9);
  return {
    kind: new Uint8Array(decodeBase64(packed.kind)), at, low: numbers("low"), high: numbers("high"),
    from: start, to: at.reduce((last, t) => Math.max(last, t), start),
    name: packed.trigger,
  };
}

const overlaps = (packetWindow, { min, max }) => packetWindow.from <= max && packetWindow.to >= min;

// Packet windows that are drawn segment by segment in a view of this width.
function detailedIn(packetWindows, view, width) {
  const share = ({ from, to }) => (Math.min(to, view.max) - Math.max(from, view.min)) / (view.max - view.min);
  return packetWindows.filter((packetWindow) => overlaps(packetWindow, view) && share(packetWindow) * width >= WINDOW_PX);
}

// Range of sequence numbers in view, without the ends of advertised windows. Null if the packet windows cover little
// of the view; the y axis then follows the time series.
function sequenceRange(packetWindows, view, width) {
  let [low, high] = [Infinity, -Infinity];
  const detailed = detailedIn(packetWindows, view, width);
  const covers = detailed.some(({ from, to }) => (Math.min(to, view.max) - Math.max(from, view.min)) > (view.max - view.min) / 4);
  if (!covers) return null;
  for (const { kind, at, low: lows, high: highs } of detailed) {
    for (let i = 0; i < at.length; i++) {
      if (at[i] < view.min || at[i] > view.max) continue;
      low = Math.min(low, lows[i]);
      high = Math.max(high, kind[i] === ACK ? lows[i] : highs[i]);
    }
  }
  const margin = (high - low) * 0.08 || 1;
  return low <= high ? { min: low - margin, max: high + margin } : null;
}

function drawSegments(u, { kind, at, low, high }, event) {
  const { ctx } = u;
  const half = 3 * devicePixelRatio;
  ctx.strokeStyle = colour(EVENT_COLOURS[event]);
  ctx.lineWidth = (event === RETRANSMITTED ? 2.5 : 1.25) * devicePixelRatio;
  ctx.beginPath();
  for (let i = 0; i < at.length; i++) {
    if (kind[i] !== event) continue;
    const x = u.valToPos(at[i], "x", true);
    const [bottom, top] = [low[i], high[i]].map((n) => u.valToPos(n, "y", true));
    ctx.moveTo(x, bottom);
    ctx.lineTo(x, top);
    // End marks that separate neighbouring segments, where there is room for them.
    if (event !== SACK && bottom - top > 2 * half) {
      ctx.moveTo(x - half, bottom);
      ctx.lineTo(x + half, bottom);
      ctx.moveTo(x - half, top);
      ctx.lineTo(x + half, top);
    }
  }
  ctx.stroke();
}

// Step line through the ACKs: `values` are ACK numbers, or ends of the advertised window.
function drawSteps(u, packetWindow, values, name, width) {
  const { ctx } = u;
  ctx.strokeStyle = colour(name);
  ctx.lineWidth = width * devicePixelRatio;
  ctx.beginPath();
  let last = null;
  for (let i = 0; i < packetWindow.at.length; i++) {
    if (packetWindow.kind[i] !== ACK || values[i] < packetWindow.low[i]) continue;
    const [x, y] = [u.valToPos(packetWindow.at[i], "x", true), u.valToPos(values[i], "y", true)];
    if (last === null) ctx.moveTo(x, y);
    else { ctx.lineTo(x, last); ctx.lineTo(x, y); }
    last = y;
  }
  ctx.stroke();
}

function drawPacketWindow(u, packetWindow) {
  drawSegments(u, packetWindow, SACK);
  drawSteps(u, packetWindow, packetWindow.high, "--second", 1);
  drawSteps(u, packetWindow, packetWindow.low, "--third", 1.5);
  drawSegments(u, packetWindow, SENT);
  drawSegments(u, packetWindow, RETRANSMITTED);
  const { left, width, top } = u.bbox;
  const x = Math.min(Math.max(u.valToPos(packetWindow.from, "x", true), left), left + width);
  label(u, packetWindow.name, x + 6 * devicePixelRatio, top + 16 * devicePixelRatio, colour("--quiet"), "left");
}

// Triangle on the time axis at a packet window that is too narrow to draw.
function drawMarker(u, packetWindow) {
  const { ctx } = u;
  const { top, height } = u.bbox;
  const x = u.valToPos((packetWindow.from + packetWindow.to) / 2, "x", true);
  const size = MARKER_PX * devicePixelRatio;
  ctx.fillStyle = colour(packetWindow.name === "loss" ? "--bad" : "--quiet");
  ctx.beginPath();
  ctx.moveTo(x - size, top + height);
  ctx.lineTo(x + size, top + height);
  ctx.lineTo(x, top + height - 2 * size);
  ctx.fill();
}

function drawPacketWindows(u, packetWindows) {
  const { ctx } = u;
  const { left, top, width, height } = u.bbox;
  const detailed = new Set(detailedIn(packetWindows, u.scales.x, width / devicePixelRatio));
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  for (const packetWindow of packetWindows.filter((candidate) => overlaps(candidate, u.scales.x))) {
    detailed.has(packetWindow) ? drawPacketWindow(u, packetWindow) : drawMarker(u, packetWindow);
  }
  ctx.restore();
}

// Fades the lines of bins, which would hide the segments below them.
const fadeUnderPacketWindows = (packetWindows) => (series) => {
  const stroke = series.stroke;
  if (typeof stroke !== "function") return;
  series.stroke = (u, n) => {
    const covered = sequenceRange(packetWindows, u.scales.x, u.over.clientWidth);
    return covered ? `color-mix(in srgb, ${stroke(u, n)} 15%, transparent)` : stroke(u, n);
  };
};

// Fits the y axis to the segments in view.
function fitPacketWindows(u, packetWindows) {
  const range = sequenceRange(packetWindows, u.scales.x, u.over.clientWidth);
  if (range) u.setScale("y", range);
}

// Buttons that zoom in to each packet window.
function packetWindowButtons(figure, u, packetWindows) {
  const list = document.createElement("div");
  list.className = "packet-windows";
  list.append("Packet windows: ");
  for (const { name, from, to } of packetWindows) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = `${name}, ${si(Math.max(from, 0), "s")}`;
    const margin = (to - from) * WINDOW_MARGIN || 1e-6;
    button.addEventListener("click", () => u.setScale("x", { min: Math.max(from - margin, 0), max: to + margin }));
    list.append(button);
  }
  const key = document.createElement("p");
  key.className = "note";
  for (const [n, name] of EVENT_NAMES.entries()) {
    const sign = document.createElement("span");
    sign.className = "key";
    sign.style.background = `var(${EVENT_COLOURS[n]})`;
    key.append(sign, `${name}  `);
  }
  figure.querySelector(".readout").after(list, key);
}

function packetWindowRows(packetWindows, view) {
  const rows = [];
  const step = (view.max - view.min) / 1e5;
  for (const { kind, at, low, high } of packetWindows.filter((candidate) => overlaps(candidate, view))) {
    for (let i = 0; i < at.length && rows.length < TABLE_ROWS_MAX; i++) {
      if (at[i] < view.min || at[i] > view.max) continue;
      const unknown = high[i] < low[i];
      rows.push([precise(at[i], step, "s"), EVENT_NAMES[kind[i]], String(low[i]), unknown ? "–" : String(high[i])]);
    }
  }
  return rows;
}

// Table of the segments in view, built when it is opened.
function packetWindowTable(figure, u, packetWindows) {
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  summary.textContent = `Segments in view, at most ${TABLE_ROWS_MAX}`;
  details.append(summary);
  const headings = ["Time", "Event", "First byte, or ACK number", "End, or end of the window"];
  fillOnOpen(details, "Segments in view", headings, () => packetWindowRows(packetWindows, u.scales.x));
  figure.append(details);
}
