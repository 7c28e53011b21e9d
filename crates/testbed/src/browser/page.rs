// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages in a real browser: whether they fit, draw, say nothing on the console and load nothing; and
//! what the accessibility checker finds.

use super::{Scheme, axe, frame};

/// A desk and a phone.
const WIDTHS: [u32; 2] = [1280, 390];

/// Tells how many charts were drawn and how much was loaded.
const LOOK: &str = "<script>
addEventListener('load', () => setTimeout(() => {
  tell(`drawn ${document.querySelectorAll('.plot canvas').length}`);
  tell(`loaded ${performance.getEntriesByType('resource').length}`);
}, 300));
</script>";

/// What `scripts`, put at the end of `page`, tell on a desk and on a phone, with nothing on the console.
pub fn told(page: &str, scripts: &str) -> Option<[Vec<String>; 2]> {
    let at = |width| {
        let (told, console) = frame::told(page, scripts, width, Scheme::Light)?;
        assert!(console.is_empty(), "{console:#?}");
        Some(told)
    };
    let [desk, phone] = WIDTHS.map(at);
    Some([desk?, phone?])
}

/// Asserts that `page` fits both widths, draws `charts` of `chart.js` and is silent; and that it keeps the
/// rules of accessibility in light and in dark.
pub fn assert_good(page: &str, charts: usize) {
    let wanted = ["wide ", &format!("drawn {charts}"), "loaded 0"];
    let Some(told) = told(page, &[frame::WIDE, LOOK].concat()) else {
        return;
    };
    assert_eq!(told, [wanted, wanted], "on a desk, on a phone");
    assert_accessible(page);
}

/// Asserts that `page` fits both widths.
pub fn assert_fits(page: &str) {
    if let Some(told) = told(page, frame::WIDE) {
        assert_eq!(told, [["wide "]; 2], "on a desk, on a phone");
    }
}

/// Asserts that `page` keeps the rules of accessibility, at both widths, in light and in dark.
pub fn assert_accessible(page: &str) {
    let schemes = |width| [(width, Scheme::Light), (width, Scheme::Dark)];
    for (width, scheme) in WIDTHS.into_iter().flat_map(schemes) {
        let Some(found) = axe::violations(page, width, scheme) else {
            return;
        };
        assert!(found.is_empty(), "{width} px, {scheme:?}: {found:#?}");
    }
}

/// The structure of `page`: each heading, answer, caption and summary on a line.
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

/// Asserts that `page` names nothing that a browser would load, and forbids it to load anything.
pub fn assert_loads_nothing(page: &str) {
    for loads in ["src=", "<link", "@import", "url("] {
        assert!(!page.contains(loads), "{loads}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checker is there and judges: a page with faults is not good.
    #[test]
    fn faults_are_found() {
        let page = "<!DOCTYPE html><html><head><title>t</title></head><body><main><h1>h</h1>\
                <img src=\"data:,\"><p style=\"color:#777;background:#888\">faint</p></main></body></html>";
        let Some(found) = axe::violations(page, 1280, Scheme::Light) else {
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
