// SPDX-License-Identifier: MIT OR Apache-2.0
// The page of `longhaul tap`: charts of the direction that is chosen, made of its course when they come
// into view, all on one time axis; and tables that can be sorted. chart.js draws.
//
// Chart data are in the JSON block #course-<n>, as report/result/chart_series.rs writes them. Charts have
// data-chart, one of KINDS, and data-course. What shares a time axis is in one section.direction; in a
// section with data-compare, charts of one kind also share their y axis.
"use strict";

{
  // Of the mean that is drawn over fine bins: the first of these that a course has some of.
  const MEANS_S = [1, 0.1, 0.01, 0.001];
  const MEANS_MIN = 5;
  // As tap.css has it for the strips.
  const RIGHT_PX = 16;
  // A window so many times what is in flight is none that matters.
  const WINDOW_TIMES = 3;
  // Single bins so many times above the largest mean leave the chart.
  const SPIKE_TIMES = 4;
  const AHEAD_PX = 300;

  const line = (label, colour, values, more = {}) => ({ label, colour, values, dash: [], low: [], high: [], ...more });
  const sections = [...document.querySelectorAll("section.direction")];

  function readCourse(number) {
    const course = JSON.parse(document.getElementById(`course-${number}`).textContent);
    const width = course.width_ns / 1e9;
    const column = (name) => course.columns[name] ?? Array(course.bins).fill(0);
    const moments = (course.excerpts ?? []).map((packed) => momentOf(packed, course.from_ns));
    return { width, moments, finest: course.finest_ns / 1e9, column, has: (name) => name in course.columns, x: Array.from({ length: course.bins }, (_, i) => i * width) };
  }

  function meanOf({ width, x }) {
    const length = width * x.length;
    const span = MEANS_S.find((s) => s * MEANS_MIN <= length && s >= width * 2);
    return span ? { bins: Math.round(span / width), label: `mean of ${si(span, "s")}` } : null;
  }

  // Steps: each value is the mean of its stretch of so many bins.
  function steps(values, bins) {
    const mean = (from) => {
      const part = values.slice(from, from + bins);
      return part.reduce((sum, value) => sum + value, 0) / part.length;
    };
    const means = Array.from({ length: Math.ceil(values.length / bins) }, (_, n) => mean(n * bins));
    return values.map((_, i) => means[Math.floor(i / bins)]);
  }

  // Fine bins, and their mean over them.
  function withMean(course, label, colour, values, low = [], high = []) {
    const mean = meanOf(course);
    const bin = `${label}, ${si(course.width, "s")}`;
    if (!mean) return [line(bin, colour, values, { low, high })];
    return [line(bin, colour, values, { thin: true, low, high }), line(`${label}, ${mean.label}`, colour, steps(values, mean.bins))];
  }

  // A band from the rate of each bin to the most in the finest bins within it, where there are such.
  function rateOf(course, label, colour, name, sign) {
    const values = perSecond(course, `${name}_bytes`, sign * 8);
    if (course.finest >= course.width) return withMean(course, label, colour, values);
    const most = course.column(`${name}_max_bytes`).map((bytes) => (bytes * sign * 8) / course.finest);
    return withMean(course, label, colour, values, ...(sign > 0 ? [values, most] : [most, values]));
  }

  function summed(values) {
    let sum = 0;
    return values.map((value) => (sum += value));
  }

  // Sums stand where each bin begins, so that single segments lie upon their line; the last at its end.
  const atBegin = (sums) => sums.map((sum, i) => (i === sums.length - 1 ? sum : i > 0 ? sums[i - 1] : 0));

  const perSecond = (course, name, factor = 1) => course.column(name).map((count) => (count * factor) / course.width);
  const seconds = (ns) => (ns === null ? null : ns / 1e9);
  const ratio = (sums, counts) => sums.map((sum, i) => (counts[i] > 0 ? sum / counts[i] : null));
  const largest = (values) => values.reduce((most, value) => Math.max(most, value ?? 0), 0);

  const KINDS = {
    rates: (course) => {
      const lines = [...rateOf(course, "data", "--ours", "data", 1), ...rateOf(course, "acknowledged", "--third", "acked", -1)];
      const means = lines.filter((l) => !l.thin).flatMap((l) => l.values.map(Math.abs));
      return { unit: "bit/s", wide: true, mirrored: true, ceiling: largest(means) * SPIKE_TIMES, lines };
    },
    acks: (course) => ({
      unit: "/s", wide: true,
      lines: [
        ...withMean(course, "pure ACKs", "--third", perSecond(course, "acks")),
        ...(course.has("duplicate_acks") ? [line("duplicates", "--bad", perSecond(course, "duplicate_acks"), { unnamed: true })] : []),
      ],
    }),
    sequence: (course) => {
      const sent = summed(course.column("data_bytes").map((bytes, i) => bytes - course.column("retransmitted_bytes")[i]));
      const acked = summed(course.column("acked_bytes"));
      const window = course.column("window_min_bytes");
      return {
        unit: "B", wide: true, floats: true, moments: course.moments,
        lines: [
          // What was acknowledged has been sent, seen here or not.
          line("sent", "--ours", atBegin(sent.map((bytes, i) => Math.max(bytes, acked[i])))),
          line("acknowledged", "--third", atBegin(acked), { dash: [8, 3] }),
          line("window", "--second", atBegin(acked).map((bytes, i) => (window[i] ? bytes + window[i] : null)), { thin: true }),
        ],
      };
    },
    "ack-diff": (course) => ({
      unit: "B",
      lines: [
        line("greatest", "--fourth", course.column("ack_diff_max_bytes"), { thin: true }),
        line("mean", "--third", ratio(course.column("acked_bytes"), course.column("moving_acks"))),
      ],
    }),
    "round-trip": (course) => {
      const mean = ratio(course.column("rtt_sum_ns"), course.column("rtt_samples"));
      const [low, high] = ["rtt_min_ns", "rtt_max_ns"].map((name) => course.column(name).map(seconds));
      return { unit: "s", lines: [line("mean", "--ours", mean.map(seconds), { low, high })] };
    },
    "ack-way": (course) => ({ unit: "s", floats: true, lines: [line("longer", "--fourth", course.column("ack_way_ns").map(seconds))] }),
    "in-flight": (course) => {
      const flight = course.column("in_flight_max_bytes");
      const window = line("window", "--second", course.column("window_min_bytes"), { dash: [8, 3] });
      const ceiling = largest(flight) * WINDOW_TIMES;
      return { unit: "B", ceiling, lines: [line("in flight", "--ours", flight), ...(course.has("window_min_bytes") ? [window] : [])] };
    },
    again: (course) => {
      const kinds = [["retransmissions", "sent again", "--ours"], ["duplicate_acks", "duplicate ACKs", "--second"], ["drops", "drops", "--bad"]];
      return { unit: "", lines: kinds.filter(([name]) => course.has(name)).map(([name, label, colour]) => line(label, colour, course.column(name))) };
    },
    delay: (course) => {
      const [low, mean, high] = ["min", "mean", "max"].map((which) => course.column(`delay_${which}_ns`).map(seconds));
      return { unit: "s", wide: true, lines: [line("delay", "--ours", mean, { low, high })] };
    },
    queue: (course) => ({ unit: "B", lines: [line("queue", "--fourth", course.column("queue_max_bytes"))] }),
  };

  function chartOf(figure, course) {
    const title = figure.querySelector("h3").textContent;
    return { title, follows: true, events: [], x: course.x, ...KINDS[figure.dataset.chart](course) };
  }

  // The same axes for all charts of a kind, however long each course is.
  function comparable(charts) {
    const end = Math.max(...charts.map(({ chart }) => chart.x.at(-1)));
    for (const kind of new Set(charts.map(({ figure }) => figure.dataset.chart))) {
      const same = charts.filter(({ figure }) => figure.dataset.chart === kind).map(({ chart }) => chart);
      const values = same.flatMap((chart) => chart.lines.flatMap((l) => [...l.values, ...l.high]));
      const [low, high] = [values.reduce((least, v) => Math.min(least, v ?? 0), 0), largest(values)];
      const ceiling = Math.max(...same.map((chart) => chart.ceiling ?? Infinity));
      const range = rangeInView({ ...same[0], floats: false, ceiling }, low, high);
      for (const chart of same) {
        chart.range = range;
        if (chart.x.at(-1) < end) chart.x = [...chart.x, end];
      }
    }
  }

  function chartsOf(section) {
    const courses = new Map();
    const courseOf = (number) => {
      if (!courses.has(number)) courses.set(number, readCourse(number));
      return courses.get(number);
    };
    const figures = [...section.querySelectorAll("figure[data-chart]")];
    const charts = figures.map((figure) => ({ figure, chart: chartOf(figure, courseOf(figure.dataset.course)) }));
    if ("compare" in section.dataset) comparable(charts);
    return new Map(charts.map(({ figure, chart }) => [figure, chart]));
  }

  function showStrips(section, { min, max }) {
    for (const part of section.querySelectorAll(".strip [data-from]")) {
      const from = Math.max(part.dataset.from, min);
      const to = Math.min(part.dataset.to, max);
      part.hidden = to <= from;
      part.style.left = `${((from - min) / (max - min)) * 100}%`;
      part.style.width = `${((to - from) / (max - min)) * 100}%`;
    }
    const [from, to] = [min, max].map((at) => precise(at, (max - min) / 1000, "s"));
    section.querySelector(".in-view").textContent = `In view: ${from} to ${to}`;
  }

  // The charts of a section, which follow each other.
  function together(section) {
    let charts = null;
    let view = null;
    const drawn = [];

    function show(min, max) {
      if (view && view.min === min && view.max === max) return;
      view = { min, max };
      for (const u of drawn) {
        if (u.scales.x.min !== min || u.scales.x.max !== max) u.setScale("x", view);
      }
      showStrips(section, view);
    }

    function settingsOf(figure, chart) {
      const settings = options(figure, chart);
      settings.padding = [null, RIGHT_PX, null, null];
      settings.cursor.sync = { key: section.id, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } };
      settings.scales.x = { ...settings.scales.x, ...view };
      settings.hooks.setScale = [(u, key) => { if (key === "x" && u.scales.x.max > u.scales.x.min) show(u.scales.x.min, u.scales.x.max); }];
      if (chart.moments?.length) {
        settings.hooks.setScale.push((u, key) => {
          // uPlot forgets scales that are set while it sets scales.
          if (key === "x") queueMicrotask(() => fitMoments(u, chart.moments));
        });
        settings.series.forEach(fadeUnderMoments(chart.moments));
        settings.hooks.draw.push((u) => drawMoments(u, chart.moments));
      }
      return settings;
    }

    return (figure) => {
      charts ??= chartsOf(section);
      const chart = charts.get(figure);
      if (figure.dataset.drawn || !chart) return;
      figure.dataset.drawn = "yes";
      const u = draw(chart, figure, settingsOf(figure, chart));
      drawn.push(u);
      if (chart.moments?.length) {
        momentButtons(figure, u, chart.moments);
        momentTable(figure, u, chart.moments);
      }
    };
  }

  function drawInView() {
    const drawers = new Map(sections.map((section) => [section, together(section)]));
    const drawFigure = (figure) => drawers.get(figure.closest("section.direction"))(figure);
    const figures = [...document.querySelectorAll("figure[data-chart]")];
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries.filter((e) => e.isIntersecting)) {
        seen.unobserve(entry.target);
        drawFigure(entry.target);
      }
    }, { rootMargin: `${AHEAD_PX}px` });
    // The first screen at once, the rest when it comes near.
    const atOnce = (figure) => figure.offsetParent !== null && figure.getBoundingClientRect().top < innerHeight;
    for (const figure of figures) atOnce(figure) ? drawFigure(figure) : seen.observe(figure);
    addEventListener("beforeprint", () => figures.filter((figure) => !figure.closest("[hidden]")).forEach(drawFigure));
  }

  // The section that the address names, or the first; the others are hidden.
  function choose() {
    const pick = document.getElementById("pick");
    if (!pick) return;
    const show = () => {
      const chosen = sections.find((section) => `#${section.id}` === location.hash) ?? sections.find((section) => section.id === pick.value);
      sections.forEach((section) => { section.hidden = section !== chosen; });
      pick.value = chosen.id;
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

  // Numbers begin with the greatest, texts with the first.
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

  function sortable(table) {
    for (const [n, heading] of [...table.tHead.rows[0].cells].entries()) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = heading.textContent;
      button.addEventListener("click", () => sort(table, n, heading));
      heading.replaceChildren(button);
    }
  }

  document.querySelectorAll("table.sortable").forEach(sortable);
  choose();
  drawInView();
}
