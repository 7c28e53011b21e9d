// SPDX-License-Identifier: MIT OR Apache-2.0
//! Socket buffers: whether one connection's window may grow to the BDP, and whether there is memory for
//! all connections together.

use super::super::{facts::Facts, finding::Finding, path::Path};
use longhaul_units::Bytes;

/// Maximum of a buffer setting, which is a C int.
const BUFFER_MAX: u64 = i32::MAX as u64;
/// Maximum window of TCP: 65,535 shifted by 14 (RFC 7323, section 2.3).
const WINDOW_MAX: u64 = 65_535 << 14;

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    let maxima = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"];
    let mut findings: Vec<Finding> = maxima
        .into_iter()
        .filter_map(|name| maximum(facts, path, name))
        .collect();
    findings.extend(window(path));
    findings.extend(memory(facts, path));
    findings.extend(cgroup(facts, path));
    findings
}

/// Returns the buffer for a window of `bytes`. It is twice as large, because the kernel counts the memory of
/// packets, not their payload (`net/ipv4/tcp_input.c`, `tcp_rcv_space_adjust` and `tcp_sndbuf_expand`).
fn buffer_for(bytes: Bytes) -> u64 {
    (bytes.get() * 2).next_multiple_of(4096)
}

fn maximum(facts: &Facts, path: Path, name: &str) -> Option<Finding> {
    let [min, initial, max] = facts.numbers(name)?;
    let want = buffer_for(path.bdp()).min(BUFFER_MAX);
    let found = facts.setting(name)?;
    if max >= want {
        return Some(Finding::ok(name, found));
    }
    let why = format!(
        "a maximum of {} allows one connection {} at {}; {} needs {}",
        Bytes::new(max),
        path.rate_of_window(Bytes::new(max / 2)),
        path.rtt,
        path.bdp_text(),
        Bytes::new(want),
    );
    Some(Finding::limit(name, found, why).set(format!("{min} {initial} {want}")))
}

fn window(path: Path) -> Option<Finding> {
    let window_max = Bytes::new(WINDOW_MAX);
    (path.bdp() > window_max).then(|| {
        let streams = path.bdp().get().div_ceil(WINDOW_MAX);
        let why = format!(
            "TCP's window is at most {window_max}, which is {} at {}; {}",
            path.rate_of_window(window_max),
            path.rtt,
            path.bdp_text()
        );
        Finding::limit("TCP window", window_max, why)
            .advise(format!("use {streams} or more parallel connections"))
    })
}

/// Returns the kernel memory that the path's data and the connections need, in bytes. A relay may hold a full
/// send buffer and, after a loss, a full receive buffer. Each is twice the BDP, for all connections
/// together. Besides, each connection's two sockets hold about a page for each direction.
fn required_memory(path: Path, page: u64) -> u64 {
    path.bdp().get() * 4 + path.connections * 4 * page
}

fn memory(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_mem";
    let [low, pressure, high] = facts.numbers(NAME)?;
    let page = facts.page.max(1);
    let want = required_memory(path, page);
    let pages = want.div_ceil(page);
    let found = facts.setting(NAME)?;
    if pressure >= pages {
        return Some(Finding::ok(NAME, found));
    }
    let why = format!(
        "TCP shrinks windows beyond {} pages ({}); {} connections and {} in both directions need {}",
        pressure,
        Bytes::new(pressure.saturating_mul(page)),
        path.connections,
        path.bdp_text(),
        Bytes::new(want),
    );
    let finding = Finding::limit(NAME, found, why);
    let raised = [low.max(pages / 4 * 3), pages, high.max(pages / 2 * 3)];
    Some(if raised[2] * page > facts.memory.get() / 2 {
        finding.advise(format!(
            "that is more than half of this host's {}: more memory, or fewer connections",
            facts.memory
        ))
    } else {
        finding.set(raised.map(|n| n.to_string()).join(" "))
    })
}

/// Checks the control group's memory, to which socket buffers are charged.
fn cgroup(facts: &Facts, path: Path) -> Option<Finding> {
    let limit = facts.cgroup_memory?;
    let want = Bytes::new(required_memory(path, facts.page));
    if limit >= want {
        return Some(Finding::ok("cgroup memory", limit));
    }
    let why = format!(
        "socket buffers count against the control group's memory; {} connections and {} need {want}",
        path.connections,
        path.bdp_text()
    );
    let finding = Finding::limit("cgroup memory", limit, why);
    Some(finding.advise("raise memory.max (systemd: MemoryMax=) or use another control group"))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            super::finding::{Fix, Severity},
            fixtures::*,
        },
        *,
    };
    use longhaul_units::BitRate;

    fn rmem(most: u64) -> Finding {
        let value = format!("4096 131072 {most}");
        let facts = facts(&[("net.ipv4.tcp_rmem", value.as_str())]);
        about(check(&facts, path()), "net.ipv4.tcp_rmem")
    }

    #[test]
    fn accepts_buffer_of_twice_the_bdp_and_not_a_byte_less() {
        // 500,000,000 bytes, rounded up to a multiple of 4 KiB.
        assert_eq!(rmem(500_002_816).severity, Severity::Ok);
        assert_eq!(rmem(500_002_815).severity, Severity::Limit);
    }

    #[test]
    fn reports_rate_of_buffer_and_required_buffer() {
        let finding = rmem(6_291_456);
        assert_eq!(
            finding.reason,
            "a maximum of 6.29 MB allows one connection 126 Mbit/s at 200 ms; \
             10 Gbit/s × 200 ms = 250 MB needs 500 MB"
        );
        let fix = finding.fix.unwrap();
        assert_eq!(
            fix.text(),
            "sysctl -w net.ipv4.tcp_rmem='4096 131072 500002816'"
        );
    }

    #[test]
    fn fix_satisfies_the_check() {
        let facts = facts(&[
            ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
            ("net.ipv4.tcp_mem", "1 2 3"),
        ]);
        let mut fixed = facts.clone();
        for finding in check(&facts, path()) {
            let Some(Fix::Sysctl { key, value }) = finding.fix else {
                panic!("{finding:?}")
            };
            fixed.sysctl.insert(key, value);
        }
        let after = check(&fixed, path());
        assert!(
            after.iter().all(|f| f.severity == Severity::Ok),
            "{after:?}"
        );
    }

    #[test]
    fn window_beyond_one_gibibyte_needs_more_connections() {
        let rate = |bits| Path {
            rate: BitRate::from_bits(bits),
            ..path()
        };
        // 8 × 1,073,725,440 B / 0.2 s.
        assert_eq!(window(rate(42_949_017_600)), None);
        let finding = window(rate(42_949_017_640)).unwrap();
        let more = Fix::Advice("use 2 or more parallel connections".to_owned());
        assert_eq!(finding.fix, Some(more));
        // No buffer can be larger, so the check asks for nothing that the kernel would refuse.
        let settings = facts(&[("net.ipv4.tcp_rmem", "4096 131072 2147483647")]);
        let enough = about(check(&settings, rate(100_000_000_000)), "net.ipv4.tcp_rmem");
        assert_eq!(enough.severity, Severity::Ok);
    }

    #[test]
    fn tcp_memory_counts_connections_and_the_path() {
        // (4 × 250 MB + 1000 × 16 KiB) / 4 KiB, rounded up.
        let pages = 248_141;
        let tcp_mem = |pressure: u64| {
            let value = format!("1 {pressure} 400000");
            memory(&facts(&[("net.ipv4.tcp_mem", value.as_str())]), path()).unwrap()
        };
        assert_eq!(tcp_mem(pages).severity, Severity::Ok);
        assert_eq!(tcp_mem(pages - 1).severity, Severity::Limit);
    }

    #[test]
    fn advises_if_the_host_lacks_memory() {
        let mut small = facts(&[("net.ipv4.tcp_mem", "1 2 3")]);
        small.memory = Bytes::new(1_000_000_000);
        let fix = memory(&small, path()).unwrap().fix.unwrap();
        assert!(matches!(fix, Fix::Advice(_)), "{fix:?}");
    }

    #[test]
    fn checks_cgroup_memory_against_buffers() {
        let with = |bytes| {
            let mut facts = facts(&[]);
            facts.cgroup_memory = Some(Bytes::new(bytes));
            cgroup(&facts, path()).unwrap().severity
        };
        assert_eq!(with(1_016_384_000), Severity::Ok);
        assert_eq!(with(1_016_383_999), Severity::Limit);
        assert_eq!(cgroup(&facts(&[]), path()), None);
    }
}
