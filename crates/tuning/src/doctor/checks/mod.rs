// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks: each returns findings about [`Facts`] for a [`Path`], and changes nothing.

mod buffers;
mod congestion;
mod descriptors;
mod features;
mod forwarding;
mod interception;
mod interfaces;
mod listening;
mod machine;
mod pacing;
mod queueing;
mod recovery;
mod routes;
mod tcp;
mod tools;
mod unknown;

use super::{facts::Facts, finding::Finding, path::Path};

/// Returns the findings of all checks, in ascending order of severity.
pub(super) fn all(facts: &Facts, path: Path) -> Vec<Finding> {
    let checks = [
        buffers::check,
        tcp::check,
        recovery::check,
        pacing::check,
        routes::check,
        congestion::check,
        interfaces::qdiscs,
        interfaces::check,
        queueing::check,
        descriptors::pipes,
        descriptors::check,
        listening::check,
        forwarding::check,
        forwarding::tracking,
        interception::check,
        machine::processors,
        machine::clock,
        machine::kernel,
        tools::check,
        features::check,
        unknown::check,
    ];
    let mut findings: Vec<Finding> = checks.iter().flat_map(|check| check(facts, path)).collect();
    findings.sort_by_key(|finding| finding.severity);
    findings
}

#[cfg(test)]
mod fixtures {
    //! Fixtures of the checks' tests.

    use super::*;
    use longhaul_units::{BitRate, Bytes, Time};

    /// 10 Gbit/s at 200 ms: a BDP of 250 MB.
    pub(super) fn path() -> Path {
        Path {
            rate: BitRate::from_bits(10_000_000_000),
            rtt: Time::from_millis(200),
            connections: 1000,
            transparent: false,
        }
    }

    /// Returns the facts of a host with these settings.
    pub(super) fn facts(settings: &[(&str, &str)]) -> Facts {
        let mut facts = Facts {
            kernel: "6.12.0-test".to_owned(),
            page: 4096,
            memory: Bytes::new(64_000_000_000),
            cpus: 16,
            ..Facts::default()
        };
        for (name, value) in settings {
            facts.sysctl.insert((*name).to_owned(), (*value).to_owned());
        }
        facts
    }

    /// Returns the finding about `place`.
    pub(super) fn about(findings: Vec<Finding>, place: &str) -> Finding {
        let found = findings.into_iter().find(|f| f.setting == place);
        found.unwrap_or_else(|| panic!("no finding about {place}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Severity, fixtures::*, *};

    #[test]
    fn no_findings_about_unknown_settings() {
        let findings = all(&facts(&[]), path());
        let settings = findings.iter().filter(|f| f.setting.starts_with("net."));
        assert_eq!(settings.count(), 0, "{findings:?}");
    }

    #[test]
    fn sorts_findings_by_severity() {
        let facts = facts(&[
            ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
            ("net.ipv4.tcp_sack", "1"),
        ]);
        let findings = all(&facts, path());
        assert!(findings.is_sorted_by_key(|f| f.severity));
        assert_eq!(findings.last().unwrap().severity, Severity::Limit);
    }

    #[test]
    fn fixes_change_only_known_settings() {
        // Values that no check accepts, so that every check has a finding.
        let bad = |name: &str| match name {
            "net.ipv4.tcp_rmem" | "net.ipv4.tcp_wmem" | "net.ipv4.tcp_mem" => "1 2 3",
            "net.ipv4.ip_local_port_range" => "1024 1030",
            "net.ipv4.conf.all.rp_filter" => "1",
            "net.ipv4.tcp_available_congestion_control" => "reno cubic bbr",
            "net.ipv4.tcp_congestion_control" => "reno",
            "net.core.default_qdisc" => "pfifo_fast",
            _ => "0",
        };
        let known = super::super::host_facts::SETTINGS;
        let settings: Vec<_> = known.iter().map(|name| (*name, bad(name))).collect();
        let path = Path {
            transparent: true,
            ..path()
        };
        let mut fixes = 0;
        for finding in all(&facts(&settings), path) {
            if let Some(super::super::finding::Fix::Sysctl { key, .. }) = &finding.fix {
                assert!(known.contains(&key.as_str()), "{key}");
                fixes += 1;
            }
        }
        assert!(fixes >= 15, "{fixes}");
    }
}
