// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection tracking (Linux `Documentation/networking/nf_conntrack-sysctl.rst`), if it is loaded.

use super::super::{
    facts::Facts,
    finding::{Finding, Severity},
    path::Path,
};

/// A half-closed connection may stay idle as long as a large file takes to come out of an archive.
const HALF_CLOSED_MIN: i64 = 3600;
/// Linux's keepalive time (tcp_keepalive_time) and nine probes: RFC 5382 wants 2 h 4 min at least.
const ESTABLISHED_MIN: i64 = 7440;

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    let mut findings: Vec<Finding> = entries(facts, path).into_iter().collect();
    for state in ["close_wait", "fin_wait"] {
        let why = |seconds| {
            format!(
                "a half-closed connection that says nothing for {seconds} s is forgotten, and what \
                 comes later is dropped or reset"
            )
        };
        findings.extend(timeout(facts, state, HALF_CLOSED_MIN, why));
    }
    let why = |seconds| {
        format!("an idle connection is forgotten after {seconds} s, before keepalive asks after it")
    };
    findings.extend(timeout(facts, "established", ESTABLISHED_MIN, why));
    findings
}

fn entries(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.netfilter.nf_conntrack_max";
    let most = facts.number(NAME)?;
    let used = facts
        .number("net.netfilter.nf_conntrack_count")
        .unwrap_or(0);
    // A relayed connection is two.
    let want = path.connections as i64 * 2 + used;
    // 0 is no limit.
    if most == 0 || most >= want {
        return Some(Finding::ok(NAME, most));
    }
    let why = format!(
        "{} relayed connections beside the {used} tracked now want {want}; beyond, packets of new \
         connections are dropped",
        path.connections
    );
    Some(Finding::limit(NAME, most, why).set(want.saturating_mul(2)))
}

fn timeout(
    facts: &Facts,
    state: &str,
    least: i64,
    why: impl FnOnce(i64) -> String,
) -> Option<Finding> {
    let name = format!("net.netfilter.nf_conntrack_tcp_timeout_{state}");
    let found = facts.number(&name)?;
    Some(match found >= least {
        true => Finding::ok(name, found),
        false => Finding::new(Severity::Note, name, found, why(found)).set(least),
    })
}

#[cfg(test)]
mod tests {
    use super::{super::bench::*, *};

    #[test]
    fn a_relayed_connection_is_two_entries() {
        let with = |most: &str| {
            let facts = facts(&[
                ("net.netfilter.nf_conntrack_max", most),
                ("net.netfilter.nf_conntrack_count", "50"),
            ]);
            entries(&facts, path()).unwrap().severity
        };
        assert_eq!(with("2050"), Severity::Ok);
        assert_eq!(with("2049"), Severity::Limit);
        assert_eq!(with("0"), Severity::Ok);
    }

    #[test]
    fn half_closed_connections_need_their_hour() {
        const NAME: &str = "net.netfilter.nf_conntrack_tcp_timeout_close_wait";
        let with = |value: &str| about(check(&facts(&[(NAME, value)]), path()), NAME);
        assert_eq!(with("3600").severity, Severity::Ok);
        assert_eq!(with("60").severity, Severity::Note);
        assert!(with("60").why.contains("60 s"));
    }

    #[test]
    fn without_conntrack_there_is_nothing_to_say() {
        assert_eq!(check(&facts(&[]), path()), []);
    }
}
