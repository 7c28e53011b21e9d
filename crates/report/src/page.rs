// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTML page of longhaul, with a common style, charts by uPlot and no network access. maud escapes all text.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;

/// Style of every page: `longhaul.css`.
pub const STYLE: &str = include_str!("../web/longhaul.css");
/// Scripts that draw the charts of a page: `annotations.js` and `chart.js`.
pub const CHART_SCRIPT: &str = concat!(
    include_str!("../web/annotations.js"),
    include_str!("../web/chart.js")
);
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
    use longhaul_testprograms::browser;

    /// Asserts that the functions of the scripts give these results. `report` gets one of them.
    fn assert_reports(calls: &str, expected: &[&str]) {
        let scripts = scripts().into_string();
        let page = format!(
            "<!DOCTYPE html><html lang=\"en\"><head><title>t</title></head><body><main><h1>h</h1></main>\
             <script type=\"application/json\" id=\"charts\">[]</script>{scripts}</body></html>"
        );
        let calls = format!("<script>addEventListener('load', () => {{ {calls} }});</script>");
        if let Some(reports) = browser::script_output(&page, &calls) {
            assert_eq!(reports, [expected, expected], "on a desktop and on a phone");
        }
    }

    /// A label is drawn above its reference line, or below the lines near it. Heights are in pixels from the top, and a
    /// label takes 18 px.
    #[test]
    #[ignore = "needs Chromium: make test-peers"]
    fn keeps_names_apart() {
        let calls = "
        for (const heights of [[50], [90, 50], [50, 55], [50, 55, 60]]) report(labelPositions(heights, 18).join(' '));
        for (const heights of [[90, 90, 40], [19, 20, 18]]) report(separate(heights.map((y) => ({ y })), 18, 18).map(({ y }) => y).join(' '));
        const texts = fitting({ valToPos: (x) => x * 700 }, [0, 0.04, 0.3], ['512 kB', '640 kB', '1 MB']);
        report(texts.join('|'));";
        let names = ["50", "90 50", "50 73", "50 78 96", "90 72 40", "54 36 18"];
        assert_reports(calls, &[&names[..], &["512 kB||1 MB"]].concat());
    }

    #[test]
    #[ignore = "needs Chromium: make test-peers"]
    fn labels_logarithmic_axes_with_round_values() {
        let calls = "
        report(limits({ log: true }, 0.0004, 0.027).join(' '));
        report(limits({ log: true }, 10, 10).join(' '));
        for (const [low, high] of [[1e-5, 1e-2], [700, 3000]]) report(roundTicks(null, 0, low, high).join(' '));";
        let expected = [
            "0.0001 0.1",
            "10 100",
            "0.00001 0.0001 0.001 0.01",
            "1000 2000",
        ];
        assert_reports(calls, &expected);
    }

    #[test]
    #[ignore = "needs Chromium: make test-peers"]
    fn joins_lines_with_positions_of_their_own() {
        let calls = "
        const a = { label: 'a', mark: 0, x: [1, 3], values: [5, 6], low: [4, 6], high: [7, 6] };
        const b = { label: 'b', x: { from: 1, step: 1 }, values: [7, null] };
        const cdf = { label: 'c', stepped: true, x: [2], values: [9] };
        const chart = complete({ unit: 's', lines: [a, b, cdf] });
        dataRows(chart).forEach((cells) => report(cells.join(', ')));
        const other = complete({ unit: 's', ceiling: 50, lines: [{ label: 'd', x: [1, 9], values: [20, 100] }] });
        shareAxes([chart, other]);
        report([chart, other].map(({ range, domain }) => [...range, domain[1]].map(Math.round).join(' ')).join(', '));";
        let expected = [
            "1 s, 5 s [4 s – 7 s], 7 s, –",
            "2 s, –, –, 9 s",
            "3 s, 6 s, –, 9 s",
            "0 56 3, 0 56 9",
        ];
        assert_reports(calls, &expected);
    }
}
