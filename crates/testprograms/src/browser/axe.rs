// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accessibility of a page, checked by axe-core.

use super::{ColourScheme, frame};
use std::{fs, process::Command};

/// Script that runs axe-core and prints the violations. It first opens every `details` element, so that its contents
/// are checked, too.
const RUN: &str = "<script>
addEventListener('load', () => setTimeout(async () => {
  for (const details of document.querySelectorAll('details')) details.open = true;
  const { passes, violations } = await axe.run(document);
  report(`${passes.length} rules passed`);
  for (const rule of violations) for (const node of rule.nodes) report(`${rule.id}: ${node.target.join(' ')}: ${node.failureSummary}`);
}, 300));
</script>";

/// Returns a line for each violation in `page`; `None` if a tool is missing and ALLOW_SKIP=1.
#[allow(dead_code, reason = "not every test has a page as text")]
pub fn violations(page: &str, width: u32, scheme: ColourScheme) -> Option<Vec<String>> {
    Some(violation_lines(frame::script_output(
        page,
        &scripts()?,
        width,
        scheme,
    )?))
}

/// Returns scripts that check the page to whose end they are appended; `None` if a tool is missing and ALLOW_SKIP=1.
pub fn scripts() -> Option<String> {
    Some(format!("<script>{}</script>{RUN}", axe_core()?))
}

/// Returns the violations from the output of [`scripts`]: its lines, and the lines on the console.
pub fn violation_lines((mut lines, console): (Vec<String>, Vec<String>)) -> Vec<String> {
    let did_run = lines
        .first()
        .is_some_and(|line| line.ends_with("rules passed"));
    assert!(did_run, "axe-core printed nothing: {lines:#?} {console:#?}");
    lines.remove(0);
    lines
}

/// Returns the source text of axe-core.
fn axe_core() -> Option<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/axe-core");
    let output = Command::new(script).arg("--where").output().unwrap();
    let path = String::from_utf8(output.stdout).unwrap();
    let found = fs::read_to_string(path.trim()).ok();
    let _ = crate::skip::require(found.is_some(), "axe-core (scripts/setup fetches it)");
    found
}
