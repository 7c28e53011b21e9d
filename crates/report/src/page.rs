// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTML page of longhaul, with a common style, charts by uPlot and no network access. maud escapes all text.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;

/// Style of every page: `longhaul.css`.
pub const STYLE: &str = include_str!("../web/longhaul.css");
/// Script that draws the charts of a page: `chart.js`.
pub const CHART_SCRIPT: &str = include_str!("../web/chart.js");
/// Script that draws the time–sequence diagram of segments: `segments.js`.
pub const SEGMENTS_SCRIPT: &str = include_str!("../web/segments.js");
/// Chart library uPlot, minified.
pub const UPLOT_SCRIPT: &str = include_str!("../web/vendor/uPlot.iife.min.js");
/// Style of uPlot.
pub const UPLOT_STYLE: &str = include_str!("../web/vendor/uPlot.min.css");
const UPLOT_LICENCE: &str = include_str!("../web/vendor/uPlot.LICENSE");

/// Content security policy: inline scripts and styles may run, nothing may be loaded.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      base-uri 'none'; form-action 'none'";

/// Parts of a page.
#[derive(Debug, Clone, Default)]
pub struct Page<'a> {
    /// Title of the window, without the program's name.
    pub title: &'a str,
    /// Version of longhaul that produced the content.
    pub longhaul: &'a str,
    /// Additional style, after the common one.
    pub more_style: &'a str,
    /// Heading, with the findings.
    pub header: Markup,
    /// Figures.
    pub main: Markup,
    /// Raw data; left out if empty.
    pub footer: Markup,
    /// Data and scripts.
    pub scripts: Markup,
}

impl Page<'_> {
    /// Returns the whole HTML file. Its first link lets keyboard users skip the heading.
    pub fn html(&self) -> String {
        html! {
            (DOCTYPE)
            html lang="en" {
                (self.head())
                body {
                    a.skip href="#main" { "Skip to the figures" }
                    header { (self.header) }
                    main id="main" tabindex="-1" { (self.main) }
                    @if !self.footer.0.is_empty() { footer { (self.footer) } }
                    (self.scripts)
                }
            }
        }
        .into_string()
    }

    fn head(&self) -> Markup {
        html! {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(CONTENT_SECURITY_POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content={ "longhaul " (self.longhaul) };
                title { (self.title) " – longhaul" }
                style { (PreEscaped(UPLOT_STYLE)) (PreEscaped(STYLE)) (PreEscaped(self.more_style)) }
            }
        }
    }
}

/// Returns a data block for scripts. `<` is escaped in it, so that no text can end the element.
pub fn data_block(id: &str, value: &impl Serialize) -> Markup {
    let json = serde_json::to_string(value)
        .unwrap_or_default()
        .replace('<', "\\u003c");
    html! { script type="application/json" id=(id) { (PreEscaped(json)) } }
}

/// Returns the scripts uPlot and `chart.js`, which draws the data block `charts`.
pub fn scripts() -> Markup {
    html! {
        script { (PreEscaped(format!("/*! {UPLOT_LICENCE} */\n{UPLOT_SCRIPT}"))) }
        script { (PreEscaped(CHART_SCRIPT)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_testbed::browser;

    /// A label is drawn above its reference line, or below the lines near it. Heights are in pixels from the top, and a
    /// label takes 18 px.
    #[test]
    #[ignore = "needs Chromium: make test-peers"]
    fn keeps_names_of_reference_lines_apart() {
        let script = CHART_SCRIPT;
        let page = format!(
            "<!DOCTYPE html><html lang=\"en\"><head><title>t</title></head><body><main><h1>h</h1></main>\
         <script type=\"application/json\" id=\"charts\">[]</script><script>{script}</script></body></html>"
        );
        let script = "<script>addEventListener('load', () => {
        for (const heights of [[50], [90, 50], [50, 55], [50, 55, 60]]) report(labelPositions(heights, 18).join(' '));
    });</script>";
        let expected = ["50", "90 50", "50 73", "50 78 96"];
        if let Some(reports) = browser::script_output(&page, script) {
            assert_eq!(reports, [expected, expected], "on a desktop and on a phone");
        }
    }
}
