// SPDX-License-Identifier: MIT OR Apache-2.0
//! Assertions about pages in a browser: they fit the window, draw charts, write nothing on the console, load nothing,
//! and are accessible.

use super::{ColourScheme, axe, frame};

/// Widths of a desktop and a phone, in pixels.
const WIDTHS: [u32; 2] = [1280, 390];

/// Script that prints the numbers of charts drawn and of resources loaded. The event `beforeprint` makes `chart.js` draw
/// the charts that are not in view.
const COUNT_SCRIPT: &str = "<script>
addEventListener('load', () => setTimeout(() => {
  dispatchEvent(new Event('beforeprint'));
  report(`drawn ${document.querySelectorAll('.plot canvas').length}`);
  report(`loaded ${performance.getEntriesByType('resource').length}`);
}, 300));
</script>";

/// Opens `page` with `scripts` appended, at the widths of a desktop and of a phone. Returns the output of the scripts
/// at each width. The console must be empty.
pub fn script_output(page: &str, scripts: &str) -> Option<[Vec<String>; 2]> {
    let at = |width| {
        let (lines, console) = frame::script_output(page, scripts, width, ColourScheme::Light)?;
        assert!(console.is_empty(), "{console:#?}");
        Some(lines)
    };
    let [desktop, phone] = WIDTHS.map(at);
    Some([desktop?, phone?])
}

/// Asserts that `page` fits both widths, draws this number of charts with `chart.js`, writes nothing on the console,
/// and is accessible in both colour schemes.
pub fn assert_good(page: &str, charts: usize) {
    let expected = ["wide ", &format!("drawn {charts}"), "loaded 0"];
    let Some(output) = script_output(page, &[frame::OVERFLOW_SCRIPT, COUNT_SCRIPT].concat()) else {
        return;
    };
    assert_eq!(output, [expected, expected], "on a desktop, on a phone");
    assert_accessible(page);
}

/// Asserts that `page` fits both widths.
pub fn assert_fits(page: &str) {
    if let Some(output) = script_output(page, frame::OVERFLOW_SCRIPT) {
        assert_eq!(output, [["wide "]; 2], "on a desktop, on a phone");
    }
}

/// Asserts that `page` is accessible, at both widths and in both colour schemes.
pub fn assert_accessible(page: &str) {
    let schemes = |width| [(width, ColourScheme::Light), (width, ColourScheme::Dark)];
    for (width, scheme) in WIDTHS.into_iter().flat_map(schemes) {
        let Some(found) = axe::violations(page, width, scheme) else {
            return;
        };
        assert!(found.is_empty(), "{width} px, {scheme:?}: {found:#?}");
    }
}

/// Returns the structure of `page`: each heading, answer, caption and summary on a line.
pub fn outline(page: &str) -> String {
    const KEPT: [&str; 10] = [
        "title>",
        "h1",
        "h2",
        "h3",
        "p class=\"answer",
        "strong",
        "caption",
        "summary",
        "dt",
        "span class=\"title",
    ];
    let (_, body) = page.split_once("<body>").unwrap();
    let (shown, _) = body.split_once("<script").unwrap_or((body, ""));
    let openings = shown.split('<').skip(1);
    let lines = openings.filter(|part| KEPT.iter().any(|tag| part.starts_with(tag)));
    lines
        .map(|part| part.replacen('>', ": ", 1) + "\n")
        .collect()
}

/// Asserts that `page` refers to no resource that a browser would load, and forbids loading.
pub fn assert_loads_nothing(page: &str) {
    for loads in ["src=", "<link", "@import", "url("] {
        assert!(!page.contains(loads), "{loads}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checker runs, and finds the violations of an inaccessible page.
    #[test]
    #[ignore = "needs Chromium: make test-peers"]
    fn finds_violations() {
        let page = "<!DOCTYPE html><html><head><title>t</title></head><body><main><h1>h</h1>\
                <img src=\"data:,\"><p style=\"color:#777;background:#888\">faint</p></main></body></html>";
        let Some(found) = axe::violations(page, 1280, ColourScheme::Light) else {
            return;
        };
        for rule in ["image-alt: ", "color-contrast: ", "html-has-lang: "] {
            assert!(
                found.iter().any(|line| line.starts_with(rule)),
                "{rule} in {found:#?}"
            );
        }
    }
}
