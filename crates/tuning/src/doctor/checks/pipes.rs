// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipes: splice is cheapest through pipes of 1 MiB (pipe(7)).

use super::super::{facts::Facts, finding::Finding, path::Path};
use longhaul_units::Bytes;

const PIPE: u64 = 1 << 20;

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    let limits = ["fs.pipe-user-pages-soft", "fs.pipe-user-pages-hard"];
    let mut findings: Vec<Finding> = size(facts).into_iter().collect();
    findings.extend(limits.iter().filter_map(|name| pages(facts, path, name)));
    findings
}

fn size(facts: &Facts) -> Option<Finding> {
    const NAME: &str = "fs.pipe-max-size";
    let found = facts.number(NAME)?;
    if found >= PIPE as i64 {
        return Some(Finding::ok(NAME, found));
    }
    let why = format!(
        "a relay without root gets pipes of at most {}; splicing through 64 KiB costs up to 1.7 \
         times the CPU that 1 MiB does",
        Bytes::new(found.max(0) as u64)
    );
    Some(Finding::note(NAME, found, why).set(PIPE))
}

/// What one user's pipes may hold together; 0 is no limit, nor is there one for root.
fn pages(facts: &Facts, path: Path, name: &str) -> Option<Finding> {
    let found = facts.number(name)?;
    let each = PIPE / facts.page.max(1);
    // A pipe a direction. What all of them would hold at worst must leave memory for the rest.
    let affordable = facts.memory.get() / 4 / facts.page.max(1);
    let want = (path.connections * 2 * each).min(affordable);
    if found == 0 || found >= want as i64 {
        return Some(Finding::ok(name, found));
    }
    let why = format!(
        "a user without root has 1 MiB pipes for {} of {} busy connections; further ones get pipes \
         of two pages or none, and are copied",
        found as u64 / each / 2,
        path.connections
    );
    Some(Finding::note(name, found, why).set(want))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{super::finding::Severity, bench::*},
        *,
    };

    #[test]
    fn one_mebibyte_is_enough() {
        let with = |value: &str| size(&facts(&[("fs.pipe-max-size", value)])).unwrap();
        assert_eq!(with("1048576").severity, Severity::Ok);
        assert_eq!(with("1048575").severity, Severity::Note);
    }

    #[test]
    fn two_pipes_a_connection_as_far_as_memory_goes() {
        const NAME: &str = "fs.pipe-user-pages-soft";
        let with = |value: &str| pages(&facts(&[(NAME, value)]), path(), NAME).unwrap();
        assert_eq!(with("512000").severity, Severity::Ok);
        assert_eq!(with("511999").severity, Severity::Note);
        assert_eq!(with("0").severity, Severity::Ok);
        let mut small = facts(&[(NAME, "16384")]);
        small.memory = Bytes::new(4096 * 4 * 20_000);
        let fix = pages(&small, path(), NAME).unwrap().fix.unwrap();
        assert!(fix.text().ends_with("='20000'"), "{}", fix.text());
    }
}
