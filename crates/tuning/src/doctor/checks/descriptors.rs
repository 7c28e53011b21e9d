// SPDX-License-Identifier: MIT OR Apache-2.0
//! File descriptors: two a connection, four more for the pipes of one that moves data.

use super::super::{facts::Facts, finding::Finding, path::Path};

/// Standard streams, event queues, listeners.
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

/// The relay raises its soft limit to the hard one, so that only the hard one counts.
fn process(facts: &Facts, path: Path) -> Finding {
    const PLACE: &str = "RLIMIT_NOFILE (hard)";
    let Some(most) = facts.files_hard else {
        return Finding::ok(PLACE, "unlimited");
    };
    let finding = if most < sockets(path) {
        let why = format!(
            "{} connections take {} descriptors for their sockets alone; this has room for {}",
            path.connections,
            sockets(path),
            most.saturating_sub(RESERVE) / 2
        );
        Finding::limit(PLACE, most, why)
    } else if most < with_pipes(path) {
        let why = format!(
            "{} connections that all move data take {}; without pipes bytes are copied",
            path.connections,
            with_pipes(path)
        );
        Finding::note(PLACE, most, why)
    } else {
        return Finding::ok(PLACE, most);
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

#[cfg(test)]
mod tests {
    use super::{
        super::{super::finding::Severity, bench::*},
        *,
    };

    #[test]
    fn sockets_limit_and_pipes_only_cost() {
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
    fn the_kernel_s_ceilings_count_too() {
        let with = |most: &str| {
            let facts = facts(&[("fs.nr_open", most)]);
            about(check(&facts, path()), "fs.nr_open")
        };
        assert_eq!(with("6064").severity, Severity::Ok);
        let finding = with("6063");
        assert_eq!(finding.severity, Severity::Limit);
        assert_eq!(finding.fix.unwrap().text(), "sysctl -w fs.nr_open='6144'");
        // Beyond i64: what a kernel without a limit says.
        assert_eq!(with("18446744073709551615").severity, Severity::Ok);
    }
}
