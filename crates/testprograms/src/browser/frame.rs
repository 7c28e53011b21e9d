// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page in a frame. A frame can have any width; a headless window is never narrower than 500 px.

use super::{ColourScheme, VIRTUAL_TIME_BUDGET, open_in};
use std::{fs, time::Duration};

/// Outer page, which collects the messages of the page in the frame.
const OUTER: &str = r#"<!DOCTYPE html><pre id="output"></pre><script>
addEventListener("message", ({ data }) => { document.getElementById("output").textContent += `${data}\n`; });
</script>"#;

/// Script that defines `report(line)`, which sends a line to the outer page.
const REPORT: &str = "<script>const report = (line) => parent.postMessage(String(line).replaceAll(\"\\n\", \" \"), \"*\");</script>";

/// Script that prints the elements that are wider than the page. On a phone it also prints the cards that scroll
/// sideways.
pub const OVERFLOW_SCRIPT: &str = "<script>
addEventListener('load', () => setTimeout(() => {
  const exempt = '.scroll, pre, svg, .skip';
  const wide = [...document.querySelectorAll('body *')].filter((e) => !e.closest(exempt) && e.getBoundingClientRect().right > innerWidth + 1);
  const cards = [...document.querySelectorAll('.scroll:has(.cards)')].filter((e) => innerWidth <= 700 && e.scrollWidth > e.clientWidth);
  report(`wide ${[...wide, ...cards].map((e) => `${e.tagName}.${e.className}#${e.id}`).join(' ')}`);
}, 300));
</script>";

/// Returns `page` with `scripts` appended. The scripts may call `report(line)`.
pub fn with_scripts(page: &str, scripts: &str) -> String {
    let at = page.rfind("</body>").unwrap();
    format!("{}{REPORT}{scripts}{}", &page[..at], &page[at..])
}

/// Opens `page` with `scripts` appended. Returns the output of the scripts, and the lines on the console. `None` if
/// there is no browser and ALLOW_SKIP=1.
#[allow(dead_code, reason = "not every test has a page as text")]
pub fn script_output(
    page: &str,
    scripts: &str,
    width: u32,
    scheme: ColourScheme,
) -> Option<(Vec<String>, Vec<String>)> {
    let directory = tempfile::tempdir().unwrap();
    let [inner, outer] = ["inner.html", "outer.html"].map(|name| directory.path().join(name));
    fs::write(&inner, with_scripts(page, scripts)).unwrap();
    fs::write(&outer, framing_page("inner.html", width)).unwrap();
    collect_output(&format!("file://{}", outer.display()), width, scheme)
}

/// Returns an outer page with the page at `source` in a frame of that width. The outer page collects the output of the
/// inner one. Both must have the same origin: virtual time does not wait for pages of other origins.
pub fn framing_page(source: &str, width: u32) -> String {
    format!(
        "{OUTER}<iframe src=\"{source}\" title=\"page\" width=\"{width}\" height=\"844\" style=\"border: 0\"></iframe>"
    )
}

/// Maximum number of attempts with a page whose output is incomplete. Its scripts wait until elements are drawn, and
/// the page's virtual time may be over before that. Each attempt has four times as much time as the one before.
const ATTEMPTS_MAX: u32 = 4;

/// Line that a script with several steps prints first.
const FIRST_LINE: &str = "begun";
/// Line that a script with several steps prints last.
const LAST_LINE: &str = "over";

/// Opens an outer page at `url`. Returns the output that it collected, and the lines on the console.
pub fn collect_output(
    url: &str,
    width: u32,
    scheme: ColourScheme,
) -> Option<(Vec<String>, Vec<String>)> {
    let mut output = read_output(url, width, scheme, VIRTUAL_TIME_BUDGET)?;
    for attempt in 1..ATTEMPTS_MAX {
        if is_complete(&output.0) || !output.1.is_empty() {
            break;
        }
        output = read_output(url, width, scheme, VIRTUAL_TIME_BUDGET * 4_u32.pow(attempt))?;
    }
    output
        .0
        .retain(|line| ![FIRST_LINE, LAST_LINE].contains(&line.as_str()));
    Some(output)
}

/// Returns whether the scripts printed something, and the last line if they printed the first one.
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
    scheme: ColourScheme,
    budget: Duration,
) -> Option<(Vec<String>, Vec<String>)> {
    let page = open_in(url, width + 100, scheme, budget)?;
    let (_, text) = page.dom.split_once("<pre id=\"output\">").unwrap();
    let lines = text.split_once("</pre>").unwrap().0.lines();
    Some((lines.map(str::to_owned).collect(), page.console))
}
