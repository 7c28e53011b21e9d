// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every HTML file of longhaul has: one look, charts by uPlot, and nothing from the network.
//! maud escapes every text.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;

/// The style of every page: `longhaul.css`.
pub const STYLE: &str = include_str!("../web/longhaul.css");
/// The charts of every page: `chart.js`.
pub const CHART: &str = include_str!("../web/chart.js");
/// The time diagram of segments: `segments.js`.
pub const SEGMENTS: &str = include_str!("../web/segments.js");
/// uPlot, minified.
pub const UPLOT: &str = include_str!("../web/vendor/uPlot.iife.min.js");
/// The style of uPlot.
pub const UPLOT_STYLE: &str = include_str!("../web/vendor/uPlot.min.css");
const UPLOT_LICENCE: &str = include_str!("../web/vendor/uPlot.LICENSE");

/// What a browser may do for such a page: run what stands in it, and load nothing at all.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      base-uri 'none'; form-action 'none'";

/// A page in its parts.
#[derive(Debug, Clone, Default)]
pub struct Page<'a> {
    /// What the window is called, besides the program's name.
    pub title: &'a str,
    /// The version of longhaul that made what is shown.
    pub longhaul: &'a str,
    /// A style that comes after the common one.
    pub more_style: &'a str,
    /// The heading, with what was found.
    pub header: Markup,
    /// The figures.
    pub main: Markup,
    /// The raw data; left out if it is empty.
    pub footer: Markup,
    /// Data and scripts.
    pub scripts: Markup,
}

impl Page<'_> {
    /// The whole file. The first stop of a keyboard leads past the heading.
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
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content={ "longhaul " (self.longhaul) };
                title { (self.title) " – longhaul" }
                style { (PreEscaped(UPLOT_STYLE)) (PreEscaped(STYLE)) (PreEscaped(self.more_style)) }
            }
        }
    }
}

/// A block of data for scripts. `<` is escaped inside it, so that no text can end the element.
pub fn data(id: &str, value: &impl Serialize) -> Markup {
    let json = serde_json::to_string(value)
        .unwrap_or_default()
        .replace('<', "\\u003c");
    html! { script type="application/json" id=(id) { (PreEscaped(json)) } }
}

/// uPlot and `chart.js`, which draws what stands in the data block `charts`.
pub fn scripts() -> Markup {
    html! {
        script { (PreEscaped(format!("/*! {UPLOT_LICENCE} */\n{UPLOT}"))) }
        script { (PreEscaped(CHART)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_testbed::browser;

    /// Lines across at these heights, in pixels from the top, 18 for a name: above its line, or below the lines that are
    /// near it.
    #[test]
    fn names_of_lines_across_stand_clear() {
        let script = CHART;
        let page = format!(
            "<!DOCTYPE html><html lang=\"en\"><head><title>t</title></head><body><main><h1>h</h1></main>\
         <script type=\"application/json\" id=\"charts\">[]</script><script>{script}</script></body></html>"
        );
        let places = "<script>addEventListener('load', () => {
        for (const heights of [[50], [90, 50], [50, 55], [50, 55, 60]]) tell(limitNames(heights, 18).join(' '));
    });</script>";
        let wanted = ["50", "90 50", "50 73", "50 78 96"];
        if let Some(told) = browser::told(&page, places) {
            assert_eq!(told, [wanted, wanted]);
        }
    }
}
