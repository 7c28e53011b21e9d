// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits for many connections: listen queues and ports.

use super::super::{facts::Facts, finding::Finding, path::Path};

/// Maximum burst of connections that a listener should accept. More in a round trip are an attack.
const BURST_MAX: u64 = 4096;

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    let queues = ["net.core.somaxconn", "net.ipv4.tcp_max_syn_backlog"];
    let mut findings: Vec<Finding> = queues
        .iter()
        .filter_map(|name| queue(facts, path, name))
        .collect();
    findings.extend(ports(facts, path));
    findings.extend(reuse(facts, path));
    findings
}

fn queue(facts: &Facts, path: Path, name: &str) -> Option<Finding> {
    let found = facts.number(name)?;
    let want = path.connections.min(BURST_MAX);
    if found >= want as i64 {
        return Some(Finding::ok(name, found));
    }
    let why = format!(
        "of {want} clients that connect at once, {} wait at least a second for their second SYN",
        want - found.max(0) as u64
    );
    Some(Finding::note(name, found, why).set(want))
}

/// Returns the number of ports for connections to one destination.
fn free_ports(facts: &Facts) -> Option<u64> {
    let [first, last] = facts.numbers("net.ipv4.ip_local_port_range")?;
    Some((last + 1).saturating_sub(first))
}

fn ports(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.ip_local_port_range";
    const WIDEST_RANGE: &str = "10240 65535";
    let free = free_ports(facts)?;
    let found = facts.setting(NAME)?;
    if free >= path.connections {
        return Some(Finding::ok(NAME, found));
    }
    let why = format!(
        "{free} ports are {free} connections to one peer or server, not {}",
        path.connections
    );
    let finding = Finding::limit(NAME, found, why);
    Some(if path.connections <= 55_296 && free < 55_296 {
        finding.set(WIDEST_RANGE)
    } else {
        finding.advise("give this host or the peer more addresses")
    })
}

/// Checks the reuse of ports: closed connections keep them for a minute (`TCP_TIMEWAIT_LEN`).
fn reuse(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_tw_reuse";
    let found = facts.number(NAME)?;
    let free = free_ports(facts).unwrap_or(28_232);
    if found == 1 || free >= path.connections * 4 {
        return Some(Finding::ok(NAME, found));
    }
    let why = format!(
        "a closed connection keeps its port for 60 s: beside {} open ones, {} new ones a second to \
         one peer use the {free} ports up",
        path.connections,
        free.saturating_sub(path.connections) / 60 + 1
    );
    Some(Finding::note(NAME, found, why).set(1))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{super::finding::Severity, fixtures::*},
        *,
    };

    fn path_of(connections: u64) -> Path {
        Path {
            connections,
            ..path()
        }
    }

    #[test]
    fn listen_queue_must_hold_a_burst() {
        let with = |value: &str, connections| {
            let facts = facts(&[("net.core.somaxconn", value)]);
            queue(&facts, path_of(connections), "net.core.somaxconn")
                .unwrap()
                .severity
        };
        assert_eq!(with("1000", 1000), Severity::Ok);
        assert_eq!(with("999", 1000), Severity::Note);
        assert_eq!(with("4096", 1_000_000), Severity::Ok);
    }

    #[test]
    fn requires_a_port_per_connection() {
        let facts = facts(&[("net.ipv4.ip_local_port_range", "32768 60999")]);
        let with = |connections| ports(&facts, path_of(connections)).unwrap();
        assert_eq!(with(28_232).severity, Severity::Ok);
        let finding = with(28_233);
        assert_eq!(finding.severity, Severity::Limit);
        assert!(finding.fix.unwrap().text().ends_with("='10240 65535'"));
        assert!(!with(60_000).fix.unwrap().text().contains("sysctl"));
    }

    #[test]
    fn checks_tw_reuse_only_if_ports_are_scarce() {
        let with = |value: &str, connections| {
            let facts = facts(&[("net.ipv4.tcp_tw_reuse", value)]);
            reuse(&facts, path_of(connections)).unwrap().severity
        };
        assert_eq!(with("2", 7_058), Severity::Ok);
        assert_eq!(with("2", 7_059), Severity::Note);
        assert_eq!(with("1", 7_059), Severity::Ok);
    }
}
