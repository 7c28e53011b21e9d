// SPDX-License-Identifier: MIT OR Apache-2.0
//! File descriptors and pipes. A connection takes two descriptors, and four more for its pipes while data moves.

use super::super::{facts::Facts, finding::Finding, path::Path};
use longhaul_units::Bytes;

/// Descriptors reserved for standard streams, event queues and listeners.
const RESERVE: u64 = 64;

fn sockets(path: Path) -> u64 {
    path.connections * 2 + RESERVE
}

fn with_pipes(path: Path) -> u64 {
    path.connections * 6 + RESERVE
}

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    let ceilings = ["fs.nr_open", "fs.file-max"];
    let mut findings = vec![process(facts, path)];
    findings.extend(
        ceilings
            .iter()
            .filter_map(|name| ceiling(facts, path, name)),
    );
    findings
}

/// Checks the hard limit of the process; the relay raises its soft limit to it.
fn process(facts: &Facts, path: Path) -> Finding {
    const SETTING: &str = "RLIMIT_NOFILE (hard)";
    let Some(most) = facts.files_hard else {
        return Finding::ok(SETTING, "unlimited");
    };
    let finding = if most < sockets(path) {
        let why = format!(
            "{} connections take {} descriptors for their sockets alone; this has room for {}",
            path.connections,
            sockets(path),
            most.saturating_sub(RESERVE) / 2
        );
        Finding::limit(SETTING, most, why)
    } else if most < with_pipes(path) {
        let why = format!(
            "{} connections that all move data take {}; without pipes bytes are copied",
            path.connections,
            with_pipes(path)
        );
        Finding::note(SETTING, most, why)
    } else {
        return Finding::ok(SETTING, most);
    };
    let want = with_pipes(path);
    finding.advise(format!(
        "LimitNOFILE={want} in the systemd unit, or 'ulimit -n {want}' as root"
    ))
}

fn ceiling(facts: &Facts, path: Path, name: &str) -> Option<Finding> {
    let found = facts.setting(name)?;
    let most: u64 = found.parse().ok()?;
    let want = with_pipes(path);
    if most >= want {
        return Some(Finding::ok(name, found));
    }
    let why = format!(
        "{} connections take up to {want} descriptors",
        path.connections
    );
    Some(Finding::limit(name, found, why).set(want.next_multiple_of(1024)))
}

const PIPE: u64 = 1 << 20;

/// Checks pipes: splice is cheapest through pipes of 1 MiB (pipe(7)).
pub(super) fn pipes(facts: &Facts, path: Path) -> Vec<Finding> {
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

/// Checks the pages that one user's pipes may hold together; 0 is no limit, and root has none.
fn pages(facts: &Facts, path: Path, name: &str) -> Option<Finding> {
    let found = facts.number(name)?;
    let each = PIPE / facts.page.max(1);
    // A pipe a direction. Full pipes of all connections must leave memory for the rest.
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
        super::{super::finding::Severity, fixtures::*},
        *,
    };

    #[test]
    fn too_few_descriptors_limit_sockets_but_only_note_pipes() {
        let with = |most| {
            let mut facts = facts(&[]);
            facts.files_hard = most;
            process(&facts, path()).severity
        };
        assert_eq!(with(Some(2063)), Severity::Limit);
        assert_eq!(with(Some(2064)), Severity::Note);
        assert_eq!(with(Some(6063)), Severity::Note);
        assert_eq!(with(Some(6064)), Severity::Ok);
        assert_eq!(with(None), Severity::Ok);
    }

    #[test]
    fn checks_kernel_wide_limits() {
        let with = |most: &str| {
            let facts = facts(&[("fs.nr_open", most)]);
            about(check(&facts, path()), "fs.nr_open")
        };
        assert_eq!(with("6064").severity, Severity::Ok);
        let finding = with("6063");
        assert_eq!(finding.severity, Severity::Limit);
        assert_eq!(finding.fix.unwrap().text(), "sysctl -w fs.nr_open='6144'");
        // Beyond i64: the value of a kernel without a limit.
        assert_eq!(with("18446744073709551615").severity, Severity::Ok);
    }

    #[test]
    fn accepts_pipes_of_one_mebibyte() {
        let with = |value: &str| size(&facts(&[("fs.pipe-max-size", value)])).unwrap();
        assert_eq!(with("1048576").severity, Severity::Ok);
        assert_eq!(with("1048575").severity, Severity::Note);
    }

    #[test]
    fn requires_two_pipes_a_connection_within_memory() {
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
