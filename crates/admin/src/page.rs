// SPDX-License-Identifier: MIT OR Apache-2.0
//! The status page: plain files that are part of the program. What they show comes from the JSON
//! interface, and none of it is ever taken for HTML.

use longhaul_report::page;

const FILES: [(&str, &str, &str); 7] = [
    ("/", HTML, include_str!("../web/admin.html")),
    ("/web/admin.css", CSS, include_str!("../web/admin.css")),
    ("/web/admin.js", JS, include_str!("../web/admin.js")),
    ("/web/chart.js", JS, page::CHART),
    ("/web/longhaul.css", CSS, page::STYLE),
    ("/web/uPlot.js", JS, page::UPLOT),
    ("/web/uPlot.css", CSS, page::UPLOT_STYLE),
];

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

/// Content type and content.
pub(super) fn file(path: &str) -> Option<(&'static str, &'static str)> {
    let found = FILES.iter().find(|(name, ..)| *name == path);
    found.map(|(_, kind, content)| (*kind, *content))
}
