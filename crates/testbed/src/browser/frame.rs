// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page in a frame of any width: a headless window is never narrower than 500 px.

use super::{BUDGET, Scheme, open_in};
use std::{fs, time::Duration};

/// Outer page, which collects the messages of the page in the frame.
const OUTER: &str = r#"<!DOCTYPE html><pre id="output"></pre><script>
addEventListener("message", ({ data }) => { document.getElementById("output").textContent += `${data}\n`; });
</script>"#;

/// Script that defines `report(line)`, which sends a line to the outer page.
const REPORT: &str = "<script>const report = (line) => parent.postMessage(String(line).replaceAll(\"\\n\", \" \"), \"*\");</script>";

/// Script that prints the elements wider than the page, and on a phone the cards that still scroll sideways.
pub const OVERFLOW_SCRIPT: &str = "<script>
addEventListener('load', () => setTimeout(() => {
  const aside = '.scroll, pre, svg, .skip';
  const wide = [...document.querySelectorAll('body *')].filter((e) => !e.closest(aside) && e.getBoundingClientRect().right > innerWidth + 1);
  const cards = [...document.querySelectorAll('.scroll:has(.cards)')].filter((e) => innerWidth <= 700 && e.scrollWidth > e.clientWidth);
  report(`wide ${[...wide, ...cards].map((e) => `${e.tagName}.${e.className}#${e.id}`).join(' ')}`);
}, 300));
</script>";

/// Returns `page` with `scripts` at its end, which may call `report(line)`.
pub fn with_scripts(page: &str, scripts: &str) -> String {
    let at = page.rfind("</body>").unwrap();
    format!("{}{REPORT}{scripts}{}", &page[..at], &page[at..])
}

/// Returns the output of `scripts` at the end of `page`, and the lines on the console. `None` if there is no
/// browser and ALLOW_SKIP=1.
#[allow(dead_code, reason = "not every test has its pages as text")]
pub fn script_output(
    page: &str,
    scripts: &str,
    width: u32,
    scheme: Scheme,
) -> Option<(Vec<String>, Vec<String>)> {
    let directory = tempfile::tempdir().unwrap();
    let [inner, outer] = ["inner.html", "outer.html"].map(|name| directory.path().join(name));
    fs::write(&inner, with_scripts(page, scripts)).unwrap();
    fs::write(&outer, framing_page("inner.html", width)).unwrap();
    collect_output(&format!("file://{}", outer.display()), width, scheme)
}

/// Returns a page that collects the output of the one at `source` in a frame of that width. Both must have the same
/// origin: the browser's virtual time does not wait for pages of other origins.
pub fn framing_page(source: &str, width: u32) -> String {
    format!(
        "{OUTER}<iframe src=\"{source}\" title=\"page\" width=\"{width}\" height=\"844\" style=\"border: 0\"></iframe>"
    )
}

/// Most attempts with a page whose output is incomplete: its scripts wait until elements are drawn, and the time in the
/// page may elapse before that. Each attempt has four times as much time.
const ATTEMPTS: u32 = 4;

/// Line that a script of several steps prints first.
const FIRST_LINE: &str = "begun";
/// Line that a script of several steps prints last.
const LAST_LINE: &str = "over";

/// Opens such a page at `url`; returns the output that it collected, and the lines on the console.
pub fn collect_output(url: &str, width: u32, scheme: Scheme) -> Option<(Vec<String>, Vec<String>)> {
    let mut output = read_output(url, width, scheme, BUDGET)?;
    for attempt in 1..ATTEMPTS {
        if is_complete(&output.0) || !output.1.is_empty() {
            break;
        }
        output = read_output(url, width, scheme, BUDGET * 4_u32.pow(attempt))?;
    }
    output
        .0
        .retain(|line| ![FIRST_LINE, LAST_LINE].contains(&line.as_str()));
    Some(output)
}

fn is_complete(lines: &[String]) -> bool {
    match lines {
        [] => false,
        [first, .., last] if first == FIRST_LINE => last == LAST_LINE,
        [only] => only != FIRST_LINE,
        _ => true,
    }
}

fn read_output(
    url: &str,
    width: u32,
    scheme: Scheme,
    budget: Duration,
) -> Option<(Vec<String>, Vec<String>)> {
    let page = open_in(url, width + 100, scheme, budget)?;
    let (_, text) = page.dom.split_once("<pre id=\"output\">").unwrap();
    let lines = text.split_once("</pre>").unwrap().0.lines();
    Some((lines.map(str::to_owned).collect(), page.console))
}
