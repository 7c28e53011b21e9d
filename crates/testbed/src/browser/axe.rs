// SPDX-License-Identifier: MIT OR Apache-2.0
//! What axe-core, the accessibility checker, finds wrong with a page.

use super::{Scheme, frame};
use std::{fs, process::Command};

/// Opens every fold, so that what is in it is judged too, and tells what breaks a rule.
const RUN: &str = "<script>
addEventListener('load', () => setTimeout(async () => {
  for (const fold of document.querySelectorAll('details')) fold.open = true;
  const { passes, violations } = await axe.run(document);
  tell(`${passes.length} rules kept`);
  for (const rule of violations) for (const node of rule.nodes) tell(`${rule.id}: ${node.target.join(' ')}: ${node.failureSummary}`);
}, 300));
</script>";

/// A line for each place of `page` that breaks a rule; `None` if a tool is missing and ALLOW_SKIP=1.
#[allow(dead_code, reason = "not every test has its pages as text")]
pub fn violations(page: &str, width: u32, scheme: Scheme) -> Option<Vec<String>> {
    Some(found(frame::told(page, &scripts()?, width, scheme)?))
}

/// What a page must have at its end to be judged; `None` as above.
pub fn scripts() -> Option<String> {
    Some(format!("<script>{}</script>{RUN}", checker()?))
}

/// Those lines of what such a page told.
pub fn found((mut told, console): (Vec<String>, Vec<String>)) -> Vec<String> {
    let kept = told
        .first()
        .is_some_and(|line| line.ends_with("rules kept"));
    assert!(kept, "axe-core said nothing: {told:#?} {console:#?}");
    told.remove(0);
    told
}

fn checker() -> Option<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/axe-core");
    let asked = Command::new(script).arg("--where").output().unwrap();
    let path = String::from_utf8(asked.stdout).unwrap();
    let found = fs::read_to_string(path.trim()).ok();
    let _ = crate::skip::unless(found.is_some(), "axe-core (scripts/setup fetches it)");
    found
}
