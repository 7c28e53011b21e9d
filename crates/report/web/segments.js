// SPDX-License-Identifier: MIT OR Apache-2.0
// Single segments in the time–sequence chart, as W. R. Stevens drew them and tcptrace does: a bar for
// each segment from its first byte to its last, the ACK line below, the window's end above, SACK blocks
// where they lie. They are there for some moments only (analysis/report/result/excerpts.rs), which the chart marks.
"use strict";

// Narrower than this, a moment is a mark and no picture.
const MOMENT_PX = 24;
const MOMENT_MARK_PX = 5;
// Room at both sides of a moment that is gone to.
const MOMENT_SPARE = 0.04;
const [SENT, AGAIN, ACK, SACK] = [0, 1, 2, 3];
const MARK_NAMES = ["sent", "sent again", "ACK", "SACK"];
const MARK_COLOURS = ["--ours", "--bad", "--third", "--fourth"];
const MOMENT_NAMES = { beginning: "the first segments", loss: "loss", sample: "sample" };

function bytesOf(text) {
  const raw = atob(text);
  return Uint8Array.from(raw, (letter) => letter.charCodeAt(0)).buffer;
}

// The columns of an excerpt; times in seconds from `begin_ns`, which is where the course begins.
function momentOf(packed, begin_ns) {
  const start = (packed.from_ns - begin_ns) / 1e9;
  const numbers = (name) => Float64Array.from(new Int32Array(bytesOf(packed[name])), (n) => packed.base + n);
  const at = Float64Array.from(new Uint32Array(bytesOf(packed.at)), (n) => start + (n * packed.tick_ns) / 1e9);
  return {
    kind: new Uint8Array(bytesOf(packed.kind)), at, low: numbers("low"), high: numbers("high"),
    from: start, to: at.reduce((last, t) => Math.max(last, t), start),
    name: MOMENT_NAMES[packed.occasion] ?? packed.occasion,
  };
}

const shows = (moment, { min, max }) => moment.from <= max && moment.to >= min;

// The moments that show as pictures in a view that is so wide.
function picturesIn(moments, view, width) {
  const share = ({ from, to }) => (Math.min(to, view.max) - Math.max(from, view.min)) / (view.max - view.min);
  return moments.filter((moment) => shows(moment, view) && share(moment) * width >= MOMENT_PX);
}

// Least and greatest number in view, windows that are far above aside; null if that is the course's to say.
function numbersIn(moments, view, width) {
  let [low, high] = [Infinity, -Infinity];
  const pictures = picturesIn(moments, view, width);
  const covers = pictures.some(({ from, to }) => (Math.min(to, view.max) - Math.max(from, view.min)) > (view.max - view.min) / 4);
  if (!covers) return null;
  for (const { kind, at, low: lows, high: highs } of pictures) {
    for (let i = 0; i < at.length; i++) {
      if (at[i] < view.min || at[i] > view.max) continue;
      low = Math.min(low, lows[i]);
      high = Math.max(high, kind[i] === ACK ? lows[i] : highs[i]);
    }
  }
  const spare = (high - low) * 0.08 || 1;
  return low <= high ? { min: low - spare, max: high + spare } : null;
}

function drawBars(u, { kind, at, low, high }, which) {
  const { ctx } = u;
  const half = 3 * devicePixelRatio;
  ctx.strokeStyle = colour(MARK_COLOURS[which]);
  ctx.lineWidth = (which === AGAIN ? 2.5 : 1.25) * devicePixelRatio;
  ctx.beginPath();
  for (let i = 0; i < at.length; i++) {
    if (kind[i] !== which) continue;
    const x = u.valToPos(at[i], "x", true);
    const [bottom, top] = [low[i], high[i]].map((n) => u.valToPos(n, "y", true));
    ctx.moveTo(x, bottom);
    ctx.lineTo(x, top);
    // Ends that tell neighbours apart, where there is room for them.
    if (which !== SACK && bottom - top > 2 * half) {
      ctx.moveTo(x - half, bottom);
      ctx.lineTo(x + half, bottom);
      ctx.moveTo(x - half, top);
      ctx.lineTo(x + half, top);
    }
  }
  ctx.stroke();
}

// A line of steps through what ACKs say: `values` is what they acknowledge, or where the window ends.
function drawSteps(u, moment, values, name, width) {
  const { ctx } = u;
  ctx.strokeStyle = colour(name);
  ctx.lineWidth = width * devicePixelRatio;
  ctx.beginPath();
  let last = null;
  for (let i = 0; i < moment.at.length; i++) {
    if (moment.kind[i] !== ACK || values[i] < moment.low[i]) continue;
    const [x, y] = [u.valToPos(moment.at[i], "x", true), u.valToPos(values[i], "y", true)];
    if (last === null) ctx.moveTo(x, y);
    else { ctx.lineTo(x, last); ctx.lineTo(x, y); }
    last = y;
  }
  ctx.stroke();
}

function drawPicture(u, moment) {
  drawBars(u, moment, SACK);
  drawSteps(u, moment, moment.high, "--second", 1);
  drawSteps(u, moment, moment.low, "--third", 1.5);
  drawBars(u, moment, SENT);
  drawBars(u, moment, AGAIN);
  const { left, width, top } = u.bbox;
  const x = Math.min(Math.max(u.valToPos(moment.from, "x", true), left), left + width);
  label(u, moment.name, x + 6 * devicePixelRatio, top + 16 * devicePixelRatio, colour("--quiet"), "left");
}

// A triangle on the time axis where there are segments to zoom in to.
function drawMoment(u, moment) {
  const { ctx } = u;
  const { top, height } = u.bbox;
  const x = u.valToPos((moment.from + moment.to) / 2, "x", true);
  const size = MOMENT_MARK_PX * devicePixelRatio;
  ctx.fillStyle = colour(moment.name === MOMENT_NAMES.loss ? "--bad" : "--quiet");
  ctx.beginPath();
  ctx.moveTo(x - size, top + height);
  ctx.lineTo(x + size, top + height);
  ctx.lineTo(x, top + height - 2 * size);
  ctx.fill();
}

function drawMoments(u, moments) {
  const { ctx } = u;
  const { left, top, width, height } = u.bbox;
  const pictures = new Set(picturesIn(moments, u.scales.x, width / devicePixelRatio));
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  for (const moment of moments.filter((one) => shows(one, u.scales.x))) {
    pictures.has(moment) ? drawPicture(u, moment) : drawMoment(u, moment);
  }
  ctx.restore();
}

// What bins say would hide the segments below it.
const fadeUnderMoments = (moments) => (series) => {
  const stroke = series.stroke;
  if (typeof stroke !== "function") return;
  series.stroke = (u, n) => {
    const covered = numbersIn(moments, u.scales.x, u.over.clientWidth);
    return covered ? `color-mix(in srgb, ${stroke(u, n)} 15%, transparent)` : stroke(u, n);
  };
};

// The y axis holds the segments in view.
function fitMoments(u, moments) {
  const range = numbersIn(moments, u.scales.x, u.over.clientWidth);
  if (range) u.setScale("y", range);
}

// Buttons that go to each moment, as the mouse and the keys of the chart can.
function momentButtons(figure, u, moments) {
  const list = document.createElement("div");
  list.className = "moments";
  list.append("Single segments: ");
  for (const { name, from, to } of moments) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = `${name}, ${si(Math.max(from, 0), "s")}`;
    const spare = (to - from) * MOMENT_SPARE || 1e-6;
    button.addEventListener("click", () => u.setScale("x", { min: Math.max(from - spare, 0), max: to + spare }));
    list.append(button);
  }
  const key = document.createElement("p");
  key.className = "note";
  for (const [n, name] of MARK_NAMES.entries()) {
    const sign = document.createElement("span");
    sign.className = "key";
    sign.style.background = `var(${MARK_COLOURS[n]})`;
    key.append(sign, `${name}  `);
  }
  figure.querySelector(".readout").after(list, key);
}

function momentRows(moments, view) {
  const rows = [];
  const step = (view.max - view.min) / 1e5;
  for (const { kind, at, low, high } of moments.filter((one) => shows(one, view))) {
    for (let i = 0; i < at.length && rows.length < TABLE_ROWS_MAX; i++) {
      if (at[i] < view.min || at[i] > view.max) continue;
      const unknown = high[i] < low[i];
      rows.push([precise(at[i], step, "s"), MARK_NAMES[kind[i]], String(low[i]), unknown ? "–" : String(high[i])]);
    }
  }
  return rows;
}

// The segments in view as a table, made anew when it is opened.
function momentTable(figure, u, moments) {
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  summary.textContent = `Segments in view, at most ${TABLE_ROWS_MAX}`;
  details.append(summary);
  details.addEventListener("toggle", () => {
    details.querySelector(".scroll")?.remove();
    if (!details.open) return;
    const [head, body, whole, scroll] = ["thead", "tbody", "table", "div"].map((tag) => document.createElement(tag));
    head.append(row(["Time", "What", "From byte, or acknowledged", "To byte, or the window's end"], "th"));
    body.append(...momentRows(moments, u.scales.x).map((cells) => row(cells, "td")));
    whole.append(head, body);
    scroll.className = "scroll tall";
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", "Segments in view");
    scroll.append(whole);
    details.append(scroll);
  });
  figure.append(details);
}
