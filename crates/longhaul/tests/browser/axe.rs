// SPDX-License-Identifier: MIT OR Apache-2.0
//! What axe-core, the accessibility checker, finds wrong with a page.

use super::browser::{self, Scheme};
use std::{fs, process::Command};

/// Opens every fold, so that what is in it is judged too, and writes down what breaks a rule.
const RUN: &str = r#"<pre id="axe" hidden></pre><script>
addEventListener("load", () => setTimeout(async () => {
  for (const fold of document.querySelectorAll("details")) fold.open = true;
  const { passes, violations } = await axe.run(document);
  const line = (rule, node) => `${rule.id}: ${node.target.join(" ")}: ${node.failureSummary}`.replaceAll("\n", " ");
  const lines = violations.flatMap((rule) => rule.nodes.map((node) => line(rule, node)));
  document.getElementById("axe").textContent = [`${passes.length} rules kept`, ...lines].join("\n");
}, 300));
</script></body>"#;

/// A line for each place of `page` that breaks a rule; `None` if a tool is missing and ALLOW_SKIP=1.
pub(crate) fn violations(page: &str, width: u32, scheme: Scheme) -> Option<Vec<String>> {
    let checker = format!("<script>{}</script>{RUN}", checker()?);
    let at = page.rfind("</body>").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("page.html");
    fs::write(&path, format!("{}{checker}{}", &page[..at], &page[at + "</body>".len()..])).unwrap();
    let shown = browser::open_in(&format!("file://{}", path.display()), width, scheme)?;
    let (_, found) = shown.dom.split_once("<pre id=\"axe\" hidden=\"\">").unwrap();
    let mut lines = found.split_once("</pre>").unwrap().0.lines();
    let kept = lines.next().unwrap_or_default();
    assert!(kept.ends_with("rules kept"), "axe-core said nothing: {:#?}", shown.console);
    Some(lines.map(str::to_owned).collect())
}

fn checker() -> Option<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/axe-core");
    let asked = Command::new(script).arg("--where").output().unwrap();
    let path = String::from_utf8(asked.stdout).unwrap();
    let found = fs::read_to_string(path.trim()).ok();
    let allowed = std::env::var_os("ALLOW_SKIP").is_some_and(|value| value == "1");
    assert!(found.is_some() || allowed, "needs axe-core (scripts/setup fetches it); ALLOW_SKIP=1 skips");
    if found.is_none() {
        eprintln!("skipped: needs axe-core");
    }
    found
}
