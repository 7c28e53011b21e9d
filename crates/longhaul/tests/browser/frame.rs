// SPDX-License-Identifier: MIT OR Apache-2.0
//! A page in a frame of any width: a headless window is never narrower than 500 px.

use super::browser::{self, Scheme};
use std::fs;

/// Hears what the page in the frame tells.
const OUTER: &str = r#"<!DOCTYPE html><pre id="told"></pre><script>
addEventListener("message", ({ data }) => { document.getElementById("told").textContent += `${data}\n`; });
</script>"#;

/// Lets a script in the frame tell a line.
const TELL: &str = "<script>const tell = (line) => parent.postMessage(String(line).replaceAll(\"\\n\", \" \"), \"*\");</script>";

/// What `scripts`, put at the end of `page`, tell; and what is said on the console. `None` if there is no
/// browser and ALLOW_SKIP=1.
pub(crate) fn told(
    page: &str,
    scripts: &str,
    width: u32,
    scheme: Scheme,
) -> Option<(Vec<String>, Vec<String>)> {
    let directory = tempfile::tempdir().unwrap();
    let [inner, outer] = ["inner.html", "outer.html"].map(|name| directory.path().join(name));
    let at = page.rfind("</body>").unwrap();
    fs::write(
        &inner,
        format!("{}{TELL}{scripts}{}", &page[..at], &page[at..]),
    )
    .unwrap();
    let frame = format!(
        "<iframe src=\"inner.html\" title=\"page\" width=\"{width}\" height=\"844\" style=\"border: 0\"></iframe>"
    );
    fs::write(&outer, format!("{OUTER}{frame}")).unwrap();
    let shown = browser::open_in(&format!("file://{}", outer.display()), width + 100, scheme)?;
    let (_, told) = shown.dom.split_once("<pre id=\"told\">").unwrap();
    let lines = told.split_once("</pre>").unwrap().0.lines();
    Some((lines.map(str::to_owned).collect(), shown.console))
}
