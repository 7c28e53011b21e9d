// SPDX-License-Identifier: MIT OR Apache-2.0
//! The status page: plain files that are part of the program. What they show comes from the JSON
//! interface, and none of it is ever taken for HTML.

const FILES: [(&str, &str, &str); 7] = [
    ("/", HTML, include_str!("../../web/admin.html")),
    ("/web/admin.css", CSS, include_str!("../../web/admin.css")),
    ("/web/admin.js", JS, include_str!("../../web/admin.js")),
    ("/web/chart.js", JS, include_str!("../../web/chart.js")),
    (
        "/web/longhaul.css",
        CSS,
        include_str!("../../web/longhaul.css"),
    ),
    (
        "/web/uPlot.js",
        JS,
        include_str!("../../web/vendor/uPlot.iife.min.js"),
    ),
    (
        "/web/uPlot.css",
        CSS,
        include_str!("../../web/vendor/uPlot.min.css"),
    ),
];

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

/// Content type and content.
pub(super) fn file(path: &str) -> Option<(&'static str, &'static str)> {
    let found = FILES.iter().find(|(name, ..)| *name == path);
    found.map(|(_, kind, content)| (*kind, *content))
}
