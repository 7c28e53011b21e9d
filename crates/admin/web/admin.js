// SPDX-License-Identifier: MIT OR Apache-2.0
// Status page: polls the relay once a second and shows its records. Clients' data (names, addresses) are inserted as
// text, never as HTML.
"use strict";

{
  const PERIOD_MS = 1000;
  const CONNECTIONS_SHOWN = 20;
  const POINTS = 300;
  // The minimum full scale, 1 Mbit/s: a smaller one would magnify noise.
  const TOP_MIN_BPS = 1e6;

  const LIMITED = {
    application: "nothing more to send",
    receive_window: "the receiver takes no more (receive window)",
    send_buffer: "the send buffer is too small",
    congestion_window: "congestion window: the path, or losses",
    pacing: "pacing, or the device",
    unknown: "not known yet",
  };
  const STATES = { serving: "serving", draining: "draining: about to end", stalled: "a worker is stalled", no_upstream: "no upstream: all peers of every route are down", not_intercepting: "not intercepting: rules can't be installed", unreachable: "unreachable" };

  const byId = (id) => document.getElementById(id);
  const setText = (id, text) => { if (byId(id).textContent !== text) byId(id).textContent = text; };
  const bits = (bytesPerS) => si(bytesPerS * 8, "bit/s");
  const bytes = (count) => si(count, "B");
  const limited = (name) => LIMITED[name ?? "unknown"] ?? name;

  function age(seconds) {
    const [days, hours, minutes] = [86400, 3600, 60].map((unit) => Math.floor(seconds / unit));
    if (days > 0) return `${days} d ${hours % 24} h`;
    if (hours > 0) return `${hours} h ${minutes % 60} min`;
    if (minutes > 0) return `${minutes} min ${Math.floor(seconds % 60)} s`;
    return `${Math.floor(seconds)} s`;
  }

  async function fetchJson(path) {
    const response = await fetch(path, { cache: "no-store" });
    if (!response.ok) throw new Error(`${path}: ${response.status}`);
    return response.json();
  }

  // The content of a cell is a text, or a pair of a text and a small one below it.
  function cell(column, content) {
    const [text, more] = [content].flat();
    const element = document.createElement(column.heading ? "th" : "td");
    if (column.heading) element.scope = "row";
    else element.dataset.label = column.name;
    if (column.kind) element.className = column.kind;
    element.textContent = text;
    if (more) {
      const small = document.createElement("small");
      small.textContent = more;
      element.append(" ", small);
    }
    return element;
  }

  function fill(id, columns, rows) {
    const table = byId(id);
    if (!table.tHead.rows.length) {
      const head = document.createElement("tr");
      for (const column of columns) {
        const th = document.createElement("th");
        th.scope = "col";
        if (column.kind) th.className = column.kind;
        th.textContent = column.name;
        head.append(th);
      }
      table.tHead.append(head);
    }
    const lines = rows.map((row) => {
      const tr = document.createElement("tr");
      tr.append(...columns.map((column) => cell(column, column.of(row))));
      return tr;
    });
    table.tBodies[0].replaceChildren(...lines);
  }

  const leg = (state) => state ? [limited(state.limited_by), details(state)] : ["–"];

  function details(state) {
    const { tcp, streams = [tcp] } = state;
    const sum = (of) => streams.reduce((total, stream) => total + of(stream), 0);
    const parts = [`RTT ${si(tcp.rtt_us / 1e6, "s")}`, `cwnd ${sum((s) => s.cwnd_segments)}`, `${bytes(state.buffered_bytes)} buffered`];
    if (state.streams) parts.unshift(`${streams.length} streams`);
    const retransmits = sum((s) => s.retransmits);
    if (retransmits > 0) parts.push(`${retransmits} retransmitted`);
    if (state.reading_paused) parts.push("reading paused");
    return parts.join(" · ");
  }

  const CONNECTIONS = [
    { name: "Destination", heading: true, of: (c) => [c.destination ?? "no request yet", `via ${c.listener}${c.peer ? `, peer ${c.peer}` : ""}`] },
    { name: "Client", of: (c) => c.client },
    { name: "Age", kind: "number", of: (c) => age(c.age_s) },
    { name: "Up", kind: "number", of: (c) => [bits(c.bytes_up_per_s), bytes(c.bytes_up)] },
    { name: "Down", kind: "number", of: (c) => [bits(c.bytes_down_per_s), bytes(c.bytes_down)] },
    { name: "To the client", kind: "words", of: (c) => leg(c.downstream) },
    { name: "To the destination", kind: "words", of: (c) => leg(c.upstream) },
  ];

  const LEGS = [
    { name: "Leg", heading: true, of: (l) => [l.leg === "downstream" ? "to clients" : l.peer ? `to peer ${l.peer}` : "to destinations", `of ${l.listener}`] },
    { name: "Limited by", kind: "words", of: (l) => Object.entries(l.limited_by).map(([name, n]) => `${n} × ${limited(name)}`).join("; ") || "no leg open" },
    { name: "Streams", kind: "number", of: (l) => String(l.streams_open) },
    { name: "Reading paused", kind: "number", of: (l) => [String(l.reading_paused), `${l.reading_pauses} times`] },
    { name: "Buffered", kind: "number", of: (l) => bytes(l.buffered_bytes) },
    { name: "RTT", kind: "number", of: (l) => l.rtt_mean_us === null ? "–" : [si(l.rtt_mean_us / 1e6, "s"), `min. ${l.rtt_min_us === null ? "–" : si(l.rtt_min_us / 1e6, "s")}`] },
    { name: "Retransmitted", kind: "number", of: (l) => [`${l.retransmitted_segments} segments`, `${bytes(l.retransmitted_bytes)} of ${bytes(l.sent_bytes)}`] },
  ];

  const LISTENERS = [
    { name: "Listener", heading: true, of: (l) => [l.name, `${l.kind} ${l.address}`] },
    { name: "Open", kind: "number", of: (l) => String(l.active) },
    { name: "Accepted", kind: "number", of: (l) => String(l.accepted) },
    { name: "Up", kind: "number", of: (l) => bytes(l.bytes_up) },
    { name: "Down", kind: "number", of: (l) => bytes(l.bytes_down) },
    { name: "Failed", kind: "words", of: (l) => Object.entries(l.failed).map(([cause, n]) => `${n} × ${cause}`).join("; ") || "none" },
  ];

  const PEERS = [
    { name: "Peer", heading: true, of: (p) => [p.name, p.address] },
    { name: "Health", of: (p) => [p.down_s === null ? "up" : `down for ${age(p.down_s)}`, `${p.failures} failures, ${p.streams_missing} streams missing`] },
    { name: "Open", kind: "number", of: (p) => String(p.active) },
    { name: "Connections", kind: "number", of: (p) => String(p.connections) },
    { name: "Pool", kind: "number", of: (p) => [`${p.pool_idle} idle`, `${p.pool_hits} hits, ${p.pool_misses} misses`] },
    { name: "Up", kind: "number", of: (p) => bytes(p.bytes_up) },
    { name: "Down", kind: "number", of: (p) => bytes(p.bytes_down) },
  ];

  function showState(state) {
    setText("state", STATES[state] ?? state);
    byId("state").className = `badge ${state}`;
  }

  function showNotice(text) {
    setText("notice", text);
    byId("notice").hidden = text === "";
  }

  function waitReason(health) {
    if (health.memory_exhausted) return "The memory budget is used up: new connections wait.";
    if (health.connections_exhausted) return "All connections are taken: new ones wait.";
    if (health.descriptors_exhausted) return "No descriptor is free: connections wait.";
    return "";
  }

  function showStatus(status) {
    const { relay, health } = status;
    showState(health.status);
    showNotice(waitReason(health));
    setText("version", status.version);
    setText("summary", `for ${age(status.uptime_s)}`);
    setText("active", String(relay.total.active));
    setText("accepted", `${relay.total.accepted} since the start`);
    setText("bytes-up", `${bytes(relay.total.bytes_up)} since the start`);
    setText("bytes-down", `${bytes(relay.total.bytes_down)} since the start`);
    setText("memory-used", bytes(relay.memory_bytes));
    const budget = relay.memory_budget_bytes;
    setText("budget", budget === null ? "no limit: set limits.memory" : `of ${bytes(budget)}`);
    byId("memory").value = budget === null ? 0 : relay.memory_bytes / Math.max(budget, 1);
    fill("listeners", LISTENERS, relay.listeners);
    fill("legs", LEGS, status.legs);
    byId("peers-section").hidden = status.peers.length === 0;
    fill("peers", PEERS, status.peers);
  }

  function showConnections(list) {
    setText("shown", `${list.connections.length} of ${list.total}`);
    fill("connections", CONNECTIONS, list.connections);
  }

  const chart = complete({
    title: "Throughput",
    unit: "bit/s",
    x: Array.from({ length: POINTS }, (_, i) => i - POINTS + 1),
    lines: [{ label: "to clients", colour: "--first", values: [] }, { label: "to destinations", colour: "--second", dash: [8, 3], values: [] }],
  });

  function createPlot() {
    const figure = byId("throughput");
    const settings = options(figure, chart);
    settings.scales.y.range = () => [0, Math.max(limits(chart, ...extremes(chart))[1], TOP_MIN_BPS)];
    return draw(chart, figure, settings);
  }

  // New points do not change the zoom.
  function showThroughput(u, throughput) {
    const { points } = throughput;
    const missing = Array(Math.max(POINTS - points.length, 0)).fill(null);
    const values = (of) => [...missing, ...points.map((point) => of(point) * 8)].slice(-POINTS);
    chart.lines[0].values = values((point) => point.bytes_down_per_s);
    chart.lines[1].values = values((point) => point.bytes_up_per_s);
    const { min, max } = u.scales.x;
    const zoomed = min > chart.x[0] || max < chart.x.at(-1);
    u.setData(columns(chart), !zoomed);
    if (zoomed) u.setScale("x", { min, max });
    const last = points.at(-1);
    setText("up", last ? bits(last.bytes_up_per_s) : "–");
    setText("down", last ? bits(last.bytes_down_per_s) : "–");
  }

  async function refresh(u) {
    const connections = `/api/v1/connections?limit=${CONNECTIONS_SHOWN}&sort=${byId("sort").value}`;
    const [status, list, throughput] = await Promise.all(["/api/v1/status", connections, "/api/v1/throughput"].map(fetchJson));
    showStatus(status);
    showConnections(list);
    showThroughput(u, throughput);
  }

  async function poll(u) {
    try {
      if (!document.hidden) await refresh(u);
    } catch (error) {
      showState("unreachable");
      showNotice(`The relay does not answer: ${error.message}. This page shows its last values.`);
    }
    setTimeout(poll, PERIOD_MS, u);
  }

  const u = createPlot();
  byId("sort").addEventListener("change", () => refresh(u).catch(() => {}));
  poll(u);
}
