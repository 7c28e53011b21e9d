// SPDX-License-Identifier: MIT OR Apache-2.0
//! A page in a frame of any width: a headless window is never narrower than 500 px.

use super::{BUDGET, Scheme, open_in};
use std::{fs, time::Duration};

/// Hears what the page in the frame tells.
const OUTER: &str = r#"<!DOCTYPE html><pre id="told"></pre><script>
addEventListener("message", ({ data }) => { document.getElementById("told").textContent += `${data}\n`; });
</script>"#;

/// Lets a script in the frame tell a line.
const TELL: &str = "<script>const tell = (line) => parent.postMessage(String(line).replaceAll(\"\\n\", \" \"), \"*\");</script>";

/// Tells what is wider than the page, and on a phone what has become cards and still scrolls sideways.
pub const WIDE: &str = "<script>
addEventListener('load', () => setTimeout(() => {
  const aside = '.scroll, pre, svg, .skip';
  const wide = [...document.querySelectorAll('body *')].filter((e) => !e.closest(aside) && e.getBoundingClientRect().right > innerWidth + 1);
  const cards = [...document.querySelectorAll('.scroll:has(.cards)')].filter((e) => innerWidth <= 700 && e.scrollWidth > e.clientWidth);
  tell(`wide ${[...wide, ...cards].map((e) => `${e.tagName}.${e.className}#${e.id}`).join(' ')}`);
}, 300));
</script>";

/// `page` with `scripts` at its end, which may `tell(line)`.
pub fn telling(page: &str, scripts: &str) -> String {
    let at = page.rfind("</body>").unwrap();
    format!("{}{TELL}{scripts}{}", &page[..at], &page[at..])
}

/// What `scripts`, put at the end of `page`, tell; and what is said on the console. `None` if there is no
/// browser and ALLOW_SKIP=1.
#[allow(dead_code, reason = "not every test has its pages as text")]
pub fn told(
    page: &str,
    scripts: &str,
    width: u32,
    scheme: Scheme,
) -> Option<(Vec<String>, Vec<String>)> {
    let directory = tempfile::tempdir().unwrap();
    let [inner, outer] = ["inner.html", "outer.html"].map(|name| directory.path().join(name));
    fs::write(&inner, telling(page, scripts)).unwrap();
    fs::write(&outer, around("inner.html", width)).unwrap();
    heard(&format!("file://{}", outer.display()), width, scheme)
}

/// A page that hears what the one at `source` tells, which is in a frame of that width. Both must have one
/// origin: the browser's virtual time does not wait for a stranger.
pub fn around(source: &str, width: u32) -> String {
    format!(
        "{OUTER}<iframe src=\"{source}\" title=\"page\" width=\"{width}\" height=\"844\" style=\"border: 0\"></iframe>"
    )
}

/// Times the page is opened if it doesn't tell all: its scripts wait for what they watch to be drawn, and time in the page
/// may pass before that. Each time four times as much.
const LOOKS: u32 = 4;

/// What a script of several steps tells before the first.
const BEGUN: &str = "begun";
/// And after the last.
const OVER: &str = "over";

/// What such a page at `url` heard, and what is said on the console.
pub fn heard(url: &str, width: u32, scheme: Scheme) -> Option<(Vec<String>, Vec<String>)> {
    let mut heard = heard_within(url, width, scheme, BUDGET)?;
    for look in 1..LOOKS {
        if is_all(&heard.0) || !heard.1.is_empty() {
            break;
        }
        heard = heard_within(url, width, scheme, BUDGET * 4_u32.pow(look))?;
    }
    heard
        .0
        .retain(|line| ![BEGUN, OVER].contains(&line.as_str()));
    Some(heard)
}

fn is_all(told: &[String]) -> bool {
    match told {
        [] => false,
        [first, .., last] if first == BEGUN => last == OVER,
        [only] => only != BEGUN,
        _ => true,
    }
}

fn heard_within(
    url: &str,
    width: u32,
    scheme: Scheme,
    budget: Duration,
) -> Option<(Vec<String>, Vec<String>)> {
    let shown = open_in(url, width + 100, scheme, budget)?;
    let (_, told) = shown.dom.split_once("<pre id=\"told\">").unwrap();
    let lines = told.split_once("</pre>").unwrap().0.lines();
    Some((lines.map(str::to_owned).collect(), shown.console))
}
