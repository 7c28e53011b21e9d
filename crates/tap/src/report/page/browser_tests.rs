// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the page in a real browser.

use super::html;
use crate::report::fixtures;
use longhaul_testprograms::browser::{assert_accessible, assert_fits, script_output};

/// Script that records every chart over time.
const RECORD_CHARTS: &str = "<script>
const made = [];
const real = uPlot;
uPlot = function (...all) { const u = new real(...all); if (all[2].closest('[data-chart]')) made.push(u); return u; };
Object.assign(uPlot, real);
</script>";

/// Functions that simulate a user and report the visible state: the time ranges of all charts, and the page's text
/// about them. A list of steps follows.
const SIMULATE_USER: &str = r##"<script>
const ranges = () => [...new Set(made.map((u) => `${u.scales.x.min.toFixed(3)}-${u.scales.x.max.toFixed(3)}`))].join(" ");
const inView = () => document.querySelector("section.direction:not([hidden]) .in-view").textContent;
const plot = () => document.querySelector("section.direction:not([hidden]) .plot");
const press = (key) => plot().dispatchEvent(new KeyboardEvent("keydown", { key }));
const mouse = (target, type, share) => {
  const { left, width, top } = plot().querySelector(".u-over").getBoundingClientRect();
  target.dispatchEvent(new MouseEvent(type, { bubbles: true, button: 0, clientX: left + width * share, clientY: top + 50, movementX: 1 }));
};
"##;

/// Script that runs the steps in order, each after the effects of the one before. A step that returns "again" is
/// repeated.
const RUN_STEPS: &str = r##"
const next = () => {
  if (steps.length === 0) { report("over"); return; }
  if (steps[0]() !== "again") steps.shift();
  setTimeout(next, 60);
};
report("begun");
addEventListener("load", () => setTimeout(next, 60));
</script>"##;

/// Returns the reports of `page` for these steps, on a desktop and on a phone; checks that the console is empty.
pub(crate) fn run_steps(page: &str, steps: &str) -> Option<[Vec<String>; 2]> {
    let own = page.rfind("<script>").unwrap();
    let page = format!("{}{RECORD_CHARTS}{}", &page[..own], &page[own..]);
    script_output(&page, &[SIMULATE_USER, steps, RUN_STEPS].concat())
}

#[test]
#[ignore = "needs Chromium: make test-peers"]
fn zooms_all_charts_together_without_network() {
    const STEPS: &str = r##"
const steps = [
  () => { plot().scrollIntoView(); return made.length > 0 || "again"; },
  () => report(`at first ${made.length < 10 && made.length > 0} ${ranges()}; ${inView()}`),
  () => press("+"),
  () => report(`key ${ranges()}; ${inView()}`),
  () => dispatchEvent(new Event("beforeprint")),
  () => report(`all ${made.length} ${ranges()}`),
  () => press("Escape"),
  () => report(`escape ${ranges()}`),
  () => { const over = plot().querySelector(".u-over"); mouse(over, "mousemove", 0.25); mouse(over, "mousedown", 0.25); mouse(over, "mousemove", 0.5); mouse(document, "mouseup", 0.5); },
  () => report(`dragged ${made.every((u) => Math.abs(u.scales.x.min - 7.5) < 0.3 && Math.abs(u.scales.x.max - 15) < 0.3) || ranges()} ${new Set(made.map((u) => u.scales.x.min)).size}`),
  () => report(`timeline ${parseFloat(document.querySelector(".congestion-window[data-from]").style.width) > 99}`),
  () => mouse(plot().querySelector(".u-over"), "dblclick", 0.5),
  () => report(`double click ${ranges()}`),
  () => document.querySelectorAll("table.sortable button")[4].click(),
  () => document.querySelectorAll("table.sortable button")[4].click(),
  () => report(`least first ${document.querySelector("table.sortable tbody a").textContent}`),
  () => { location.hash = "#flow-7-upload"; },
  () => report(`chosen ${document.querySelector("section.direction:not([hidden])").dataset.name} ${document.getElementById("pick").value}`),
  () => report(`loaded ${performance.getEntriesByType("resource").length}`),
];
"##;
    let page = html::html(&fixtures::report());
    let Some(layout) = run_steps(&page, STEPS) else {
        return;
    };
    let wanted = [
        "at first true 0.000-29.992; In view: 0 s to 29.99 s",
        "key 7.498-22.494; In view: 7.5 s to 22.49 s",
        "all 9 7.498-22.494",
        "escape 0.000-29.992",
        "dragged true 1",
        "timeline true",
        "double click 0.000-29.992",
        "least first 10.0.0.1:40007",
        "chosen 10.0.0.1:40007 → 10.0.0.2:80, at right flow-7-upload",
        "loaded 0",
    ];
    assert_eq!(layout, [wanted, wanted], "on a desk, on a phone");
}

#[test]
#[ignore = "needs Chromium: make test-peers"]
fn shows_a_packet_window_by_its_button_with_a_table() {
    const STEPS: &str = r##"
const figure = document.querySelector("section.direction:not([hidden]) figure[data-chart=sequence]");
const buttons = () => [...figure.querySelectorAll(".packet-windows button")];
const uOf = () => made.find((u) => figure.contains(u.root));
const listed = () => figure.querySelector("details:last-of-type");
const y = () => `${Math.round(uOf().scales.y.min)} ${Math.round(uOf().scales.y.max)}`;
const steps = [
  () => dispatchEvent(new Event("beforeprint")),
  () => report(buttons().map((b) => b.textContent).join("; ")),
  () => buttons()[1].click(),
  () => report(`x ${uOf().scales.x.min.toFixed(3)} ${uOf().scales.x.max.toFixed(3)}`),
  () => report(`y ${y()}`),
  () => { listed().open = true; },
  () => report(`rows ${listed().querySelectorAll("tbody tr").length}: ${[...listed().querySelectorAll("tbody tr")[10].cells].map((c) => c.textContent).join(", ")}`),
  () => report(`retransmitted ${[...listed().querySelectorAll("tbody tr")].filter((r) => r.cells[1].textContent === "retransmitted").length}`),
  () => report(`focus ${buttons()[0].tabIndex}`),
  () => press("Escape"),
  () => report(`back ${ranges()}`),
];
"##;
    let page = html::html(&fixtures::report());
    let Some(layout) = run_steps(&page, STEPS) else {
        return;
    };
    let wanted = [
        "beginning, 200 ms; loss, 26 s",
        "x 25.992 26.209",
        "y 19999991891 20000109469",
        "rows 179: 26.000120 s, sent, 20000014480, 20000015928",
        "retransmitted 1",
        "focus 0",
        "back 0.000-29.992",
    ];
    assert_eq!(layout, [wanted, wanted], "on a desk, on a phone");
}

#[test]
#[ignore = "needs Chromium: make test-peers"]
fn fits_the_screen_and_is_accessible() {
    let page = html::html(&fixtures::report());
    assert_fits(&page);
    assert_accessible(&page);
}
