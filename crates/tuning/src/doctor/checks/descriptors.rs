// SPDX-License-Identifier: MIT OR Apache-2.0
//! File descriptors and pipes. A connection takes two descriptors, and four more for its pipes while data moves.

use super::super::{facts::Facts, finding::Finding, path::Path};
use longhaul_units::Bytes;

/// Descriptors reserved for standard streams, event queues and listeners.
const RESERVED: u64 = 64;

/// Returns the descriptors of sockets alone.
fn socket_descriptors(path: Path) -> u64 {
    path.connections * 2 + RESERVED
}

/// Returns the descriptors of sockets and pipes.
fn all_descriptors(path: Path) -> u64 {
    path.connections * 6 + RESERVED
}

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    let system_limits = ["fs.nr_open", "fs.file-max"];
    let mut findings = vec![process_limit(facts, path)];
    findings.extend(
        system_limits
            .iter()
            .filter_map(|name| system_limit(facts, path, name)),
    );
    findings
}

/// Checks the hard limit of the process; the relay raises its soft limit to it.
fn process_limit(facts: &Facts, path: Path) -> Finding {
    const SETTING: &str = "RLIMIT_NOFILE (hard)";
    let Some(limit) = facts.files_hard else {
        return Finding::ok(SETTING, "unlimited");
    };
    let finding = if limit < socket_descriptors(path) {
        let why = format!(
            "{} connections take {} descriptors for their sockets alone; this limit allows {}",
            path.connections,
            socket_descriptors(path),
            limit.saturating_sub(RESERVED) / 2
        );
        Finding::limit(SETTING, limit, why)
    } else if limit < all_descriptors(path) {
        let why = format!(
            "{} connections that all move data take {}; without pipes bytes are copied",
            path.connections,
            all_descriptors(path)
        );
        Finding::note(SETTING, limit, why)
    } else {
        return Finding::ok(SETTING, limit);
    };
    let want = all_descriptors(path);
    finding.advise(format!(
        "LimitNOFILE={want} in the systemd unit, or 'ulimit -n {want}' as root"
    ))
}

fn system_limit(facts: &Facts, path: Path, name: &str) -> Option<Finding> {
    let found = facts.setting(name)?;
    let limit: u64 = found.parse().ok()?;
    let want = all_descriptors(path);
    if limit >= want {
        return Some(Finding::ok(name, found));
    }
    let why = format!(
        "{} connections take up to {want} descriptors",
        path.connections
    );
    Some(Finding::limit(name, found, why).set(want.next_multiple_of(1024)))
}

/// Size of a relay's pipe, in bytes.
const PIPE_SIZE: u64 = 1 << 20;

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
    if found >= PIPE_SIZE as i64 {
        return Some(Finding::ok(NAME, found));
    }
    let why = format!(
        "a relay without root gets pipes of at most {}; splicing through 64 KiB costs up to 1.7 \
         times the CPU that 1 MiB does",
        Bytes::new(found.max(0) as u64)
    );
    Some(Finding::note(NAME, found, why).set(PIPE_SIZE))
}

/// Checks the pages that one user's pipes may hold together; 0 is no limit, and root has none.
fn pages(facts: &Facts, path: Path, name: &str) -> Option<Finding> {
    let found = facts.number(name)?;
    let each = PIPE_SIZE / facts.page.max(1);
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
        let with = |limit| {
            let mut facts = facts(&[]);
            facts.files_hard = limit;
            process_limit(&facts, path()).severity
        };
        assert_eq!(with(Some(2063)), Severity::Limit);
        assert_eq!(with(Some(2064)), Severity::Note);
        assert_eq!(with(Some(6063)), Severity::Note);
        assert_eq!(with(Some(6064)), Severity::Ok);
        assert_eq!(with(None), Severity::Ok);
    }

    #[test]
    fn checks_kernel_wide_limits() {
        let with = |limit: &str| {
            let facts = facts(&[("fs.nr_open", limit)]);
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
