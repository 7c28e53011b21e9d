// SPDX-License-Identifier: MIT OR Apache-2.0
// Page of `longhaul tap`: charts of the selected direction on one time axis, and tables that can be sorted. A chart is
// drawn by chart.js when it comes into view.
//
// Chart data are in the JSON block #series-<n>, as report/result/chart_series.rs writes them. Charts have
// data-chart, one of CHART_KINDS, and data-series. Charts of one section.direction share a time axis. In a
// section with data-compare, charts of one kind also share their y axis.
"use strict";

{
  // Periods of the mean that is drawn over fine bins. The first one that fits MEANS_MIN times is used.
  const MEANS_S = [1, 0.1, 0.01, 0.001];
  const MEANS_MIN = 5;
  // Right margin of the timelines in tap.css.
  const RIGHT_PX = 16;
  // Advertised windows above this multiple of the bytes in flight are not drawn.
  const WINDOW_TIMES = 3;
  // Bins above this multiple of the largest mean are clipped.
  const SPIKE_TIMES = 4;

  const line = (label, colour, values, more = {}) => ({ label, colour, values, ...more });
  const sections = [...document.querySelectorAll("section.direction")];

  function readSeries(number) {
    const series = JSON.parse(document.getElementById(`series-${number}`).textContent);
    const width = series.width_ns / 1e9;
    const column = (name) => series.columns[name] ?? Array(series.bins).fill(0);
    const packetWindows = (series.packet_windows ?? []).map((packed) => readPacketWindow(packed, series.from_ns));
    return { width, packetWindows, finest: series.finest_ns / 1e9, column, has: (name) => name in series.columns, x: Array.from({ length: series.bins }, (_, i) => i * width) };
  }

  function meanSpan({ width, x }) {
    const length = width * x.length;
    const span = MEANS_S.find((s) => s * MEANS_MIN <= length && s >= width * 2);
    return span ? { bins: Math.round(span / width), label: `mean of ${si(span, "s")}` } : null;
  }

  // Replaces each value by the mean of its group of `bins` values.
  function groupMeans(values, bins) {
    const mean = (from) => {
      const part = values.slice(from, from + bins);
      return part.reduce((sum, value) => sum + value, 0) / part.length;
    };
    const means = Array.from({ length: Math.ceil(values.length / bins) }, (_, n) => mean(n * bins));
    return values.map((_, i) => means[Math.floor(i / bins)]);
  }

  // Lines of fine bins and of their mean.
  function withMean(series, label, colour, values, low = [], high = []) {
    const mean = meanSpan(series);
    const bin = `${label}, ${si(series.width, "s")}`;
    if (!mean) return [line(bin, colour, values, { low, high })];
    return [line(bin, colour, values, { thin: true, low, high }), line(`${label}, ${mean.label}`, colour, groupMeans(values, mean.bins))];
  }

  // Band from the rate of each bin to the highest rate of the finest bins within it, if there are any.
  function rateLines(series, label, colour, name, sign) {
    const values = perSecond(series, `${name}_bytes`, sign * 8);
    if (series.finest >= series.width) return withMean(series, label, colour, values);
    const greatest = series.column(`${name}_max_bytes`).map((bytes) => (bytes * sign * 8) / series.finest);
    return withMean(series, label, colour, values, ...(sign > 0 ? [values, greatest] : [greatest, values]));
  }

  function cumulative(values) {
    let sum = 0;
    return values.map((value) => (sum += value));
  }

  // Moves sums to the start of each bin, so that single segments lie on their line; the last sum stays at its end.
  const atBinStart = (sums) => sums.map((sum, i) => (i === sums.length - 1 ? sum : i > 0 ? sums[i - 1] : 0));

  const perSecond = (series, name, factor = 1) => series.column(name).map((count) => (count * factor) / series.width);
  const seconds = (ns) => (ns === null ? null : ns / 1e9);
  const ratio = (sums, counts) => sums.map((sum, i) => (counts[i] > 0 ? sum / counts[i] : null));
  const greatestOf = (values) => values.reduce((greatest, value) => Math.max(greatest, value ?? 0), 0);

  const CHART_KINDS = {
    rates: (series) => {
      const lines = [...rateLines(series, "data", "--first", "data", 1), ...rateLines(series, "acknowledged", "--third", "acked", -1)];
      const means = lines.filter((l) => !l.thin).flatMap((l) => l.values.map(Math.abs));
      return { unit: "bit/s", wide: true, mirrored: true, ceiling: greatestOf(means) * SPIKE_TIMES, lines };
    },
    acks: (series) => ({
      unit: "/s", wide: true,
      lines: [
        ...withMean(series, "pure ACKs", "--third", perSecond(series, "acks")),
        ...(series.has("duplicate_acks") ? [line("duplicate ACKs", "--bad", perSecond(series, "duplicate_acks"), { unnamed: true })] : []),
      ],
    }),
    sequence: (series) => {
      const sent = cumulative(series.column("data_bytes").map((bytes, i) => bytes - series.column("retransmitted_bytes")[i]));
      const acked = cumulative(series.column("acked_bytes"));
      const window = series.column("window_min_bytes");
      return {
        unit: "B", wide: true, floats: true, packetWindows: series.packetWindows,
        lines: [
          // Acknowledged bytes were sent, captured or not.
          line("sent", "--first", atBinStart(sent.map((bytes, i) => Math.max(bytes, acked[i])))),
          line("acknowledged", "--third", atBinStart(acked), { dash: [8, 3] }),
          line("window", "--second", atBinStart(acked).map((bytes, i) => (window[i] ? bytes + window[i] : null)), { thin: true }),
        ],
      };
    },
    "ack-diff": (series) => ({
      unit: "B",
      lines: [
        line("max", "--fourth", series.column("ack_diff_max_bytes"), { thin: true }),
        line("mean", "--third", ratio(series.column("acked_bytes"), series.column("advancing_acks"))),
      ],
    }),
    "round-trip": (series) => {
      const mean = ratio(series.column("rtt_sum_ns"), series.column("rtt_samples"));
      const [low, high] = ["rtt_min_ns", "rtt_max_ns"].map((name) => series.column(name).map(seconds));
      return { unit: "s", lines: [line("mean", "--first", mean.map(seconds), { low, high })] };
    },
    "ack-path-delay": (series) => ({ unit: "s", floats: true, lines: [line("relative delay", "--fourth", series.column("ack_path_delay_ns").map(seconds))] }),
    "in-flight": (series) => {
      const flight = series.column("in_flight_max_bytes");
      const window = line("window", "--second", series.column("window_min_bytes"), { dash: [8, 3] });
      const ceiling = greatestOf(flight) * WINDOW_TIMES;
      return { unit: "B", ceiling, lines: [line("in flight", "--first", flight), ...(series.has("window_min_bytes") ? [window] : [])] };
    },
    retransmissions: (series) => {
      const kinds = [["retransmissions", "retransmissions", "--first"], ["duplicate_acks", "duplicate ACKs", "--second"], ["drops", "drops", "--bad"], ["ce_segments", "CE marks", "--fourth"], ["reported_marks", "reported marks", "--third"]];
      return { unit: "", lines: kinds.filter(([name]) => series.has(name)).map(([name, label, colour]) => line(label, colour, series.column(name))) };
    },
    delay: (series) => {
      const [low, mean, high] = ["min", "mean", "max"].map((which) => series.column(`delay_${which}_ns`).map(seconds));
      return { unit: "s", wide: true, lines: [line("delay", "--first", mean, { low, high })] };
    },
    queue: (series) => ({ unit: "B", lines: [line("queue", "--fourth", series.column("queue_max_bytes"))] }),
  };

  function createChart(figure, series) {
    const title = figure.querySelector("h3").textContent;
    return complete({ title, x: series.x, ...CHART_KINDS[figure.dataset.chart](series) });
  }

  // Gives charts of a kind the same y axis, and all the same time axis.
  function compareCharts(charts) {
    const domain = domainOf([...charts.values()]);
    Map.groupBy(charts, ([figure]) => figure.dataset.chart).forEach((pair) => shareAxes(pair.map(([, chart]) => chart)));
    for (const chart of charts.values()) chart.domain = domain;
  }

  function createCharts(section) {
    const allSeries = new Map();
    const seriesOf = (number) => {
      if (!allSeries.has(number)) allSeries.set(number, readSeries(number));
      return allSeries.get(number);
    };
    const figures = [...section.querySelectorAll("figure[data-chart]")];
    const charts = new Map(figures.map((figure) => [figure, createChart(figure, seriesOf(figure.dataset.series))]));
    if ("compare" in section.dataset) compareCharts(charts);
    return charts;
  }

  function showTimelines(section, { min, max }) {
    for (const part of section.querySelectorAll(".timeline [data-from]")) {
      const from = Math.max(part.dataset.from, min);
      const to = Math.min(part.dataset.to, max);
      part.hidden = to <= from;
      part.style.left = `${((from - min) / (max - min)) * 100}%`;
      part.style.width = `${((to - from) / (max - min)) * 100}%`;
    }
    const [from, to] = [min, max].map((at) => precise(at, (max - min) / 1000, "s"));
    section.querySelector(".in-view").textContent = `In view: ${from} to ${to}`;
  }

  // Draws the charts of a section and keeps them at one time range.
  function createDrawer(section) {
    let charts = null;
    let view = null;
    const drawn = [];

    function show(min, max) {
      if (view && view.min === min && view.max === max) return;
      view = { min, max };
      for (const u of drawn) {
        if (u.scales.x.min !== min || u.scales.x.max !== max) u.setScale("x", view);
      }
      showTimelines(section, view);
    }

    function settingsOf(figure, chart) {
      const settings = options(figure, chart);
      settings.padding = [null, RIGHT_PX, null, null];
      settings.cursor.sync = { key: section.id, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } };
      settings.scales.x = { ...settings.scales.x, ...view };
      settings.hooks.setScale = [(u, key) => { if (key === "x" && u.scales.x.max > u.scales.x.min) show(u.scales.x.min, u.scales.x.max); }];
      if (chart.packetWindows?.length) {
        settings.hooks.setScale.push((u, key) => {
          // uPlot ignores scales that are set during setScale.
          if (key === "x") queueMicrotask(() => fitPacketWindows(u, chart.packetWindows));
        });
        settings.series.forEach(fadeUnderPacketWindows(chart.packetWindows));
        settings.hooks.draw.push((u) => drawPacketWindows(u, chart.packetWindows));
      }
      return settings;
    }

    return (figure) => {
      charts ??= createCharts(section);
      const chart = charts.get(figure);
      const u = draw(chart, figure, settingsOf(figure, chart));
      drawn.push(u);
      if (chart.packetWindows?.length) {
        packetWindowButtons(figure, u, chart.packetWindows);
        packetWindowTable(figure, u, chart.packetWindows);
      }
    };
  }

  // Shows the section that the address names, or the first, and hides the others.
  function selectSection() {
    const pick = document.getElementById("pick");
    if (!pick) return;
    const show = () => {
      const selected = sections.find((section) => `#${section.id}` === location.hash) ?? sections.find((section) => section.id === pick.value);
      sections.forEach((section) => { section.hidden = section !== selected; });
      pick.value = selected.id;
    };
    pick.addEventListener("change", () => { location.hash = pick.value; });
    addEventListener("hashchange", () => {
      show();
      if (sections.some((section) => `#${section.id}` === location.hash)) document.querySelector(".picker").scrollIntoView();
    });
    show();
  }

  const valueOf = (row, n) => {
    const cell = row.cells[n];
    return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
  };
  const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));

  // The first click sorts numbers in descending order and texts in ascending order.
  function sort(table, n, heading) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const numbers = typeof valueOf(rows[0], n) === "number";
    const before = heading.getAttribute("aria-sort");
    const descending = before ? before === "ascending" : numbers;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
    rows.sort((a, b) => compare(valueOf(a, n), valueOf(b, n)) * (descending ? -1 : 1));
    body.append(...rows);
  }

  function makeSortable(table) {
    for (const [n, heading] of [...table.tHead.rows[0].cells].entries()) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = heading.textContent;
      button.addEventListener("click", () => sort(table, n, heading));
      heading.replaceChildren(button);
    }
  }

  document.querySelectorAll("table.sortable").forEach(makeSortable);
  selectSection();
  for (const section of sections) {
    const drawFigure = createDrawer(section);
    for (const figure of section.querySelectorAll("figure[data-chart]")) drawWhenSeen(figure, () => drawFigure(figure));
  }
}
