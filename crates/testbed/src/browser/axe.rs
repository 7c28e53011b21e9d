// SPDX-License-Identifier: MIT OR Apache-2.0
//! Violations that axe-core, the accessibility checker, finds in a page.

use super::{Scheme, frame};
use std::{fs, process::Command};

/// Script that opens every `details` element, so that its contents are checked too, and prints the violations.
const RUN: &str = "<script>
addEventListener('load', () => setTimeout(async () => {
  for (const fold of document.querySelectorAll('details')) fold.open = true;
  const { passes, violations } = await axe.run(document);
  report(`${passes.length} rules kept`);
  for (const rule of violations) for (const node of rule.nodes) report(`${rule.id}: ${node.target.join(' ')}: ${node.failureSummary}`);
}, 300));
</script>";

/// Returns a line for each violation in `page`; `None` if a tool is missing and ALLOW_SKIP=1.
#[allow(dead_code, reason = "not every test has its pages as text")]
pub fn violations(page: &str, width: u32, scheme: Scheme) -> Option<Vec<String>> {
    Some(violation_lines(frame::script_output(
        page,
        &scripts()?,
        width,
        scheme,
    )?))
}

/// Returns the scripts that check a page at whose end they are; `None` as above.
pub fn scripts() -> Option<String> {
    Some(format!("<script>{}</script>{RUN}", checker()?))
}

/// Returns the violations from the output of such a page.
pub fn violation_lines((mut lines, console): (Vec<String>, Vec<String>)) -> Vec<String> {
    let has_run = lines
        .first()
        .is_some_and(|line| line.ends_with("rules kept"));
    assert!(has_run, "axe-core printed nothing: {lines:#?} {console:#?}");
    lines.remove(0);
    lines
}

fn checker() -> Option<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/axe-core");
    let output = Command::new(script).arg("--where").output().unwrap();
    let path = String::from_utf8(output.stdout).unwrap();
    let found = fs::read_to_string(path.trim()).ok();
    let _ = crate::skip::require(found.is_some(), "axe-core (scripts/setup fetches it)");
    found
}
