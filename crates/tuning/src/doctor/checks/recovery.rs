// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of TCP's loss recovery, and what a connection leaves for the next one
//! (Linux `Documentation/networking/ip-sysctl.rst`).

use super::{
    super::{
        facts::Facts,
        finding::{Finding, Severity},
        path::Path,
    },
    congestion,
    tcp::finding_unless,
};
use longhaul_units::{Bytes, Time};

/// Payload bytes of a packet of 1500 bytes.
const SEGMENT: u64 = 1448;
/// Default of `tcp_max_reordering`, in packets.
const MAX_REORDERING: i64 = 300;
/// Least time from a round trip to a timeout (TCP_RTO_MIN, `include/net/tcp.h`).
const RTO_MIN: Time = Time::from_millis(200);
/// First kernel that detects losses by RACK alone, whatever `tcp_recovery` says.
const RACK_ONLY: (u32, u32) = (6, 17);

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    let checks = [
        dsack,
        rack,
        max_reordering,
        frto,
        no_metrics_save,
        no_ssthresh_metrics_save,
    ];
    checks
        .iter()
        .filter_map(|check| check(facts, path))
        .collect()
}

/// Checks duplicate SACKs (RFC 2883), which this host sends as a receiver.
fn dsack(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_dsack";
    let found = facts.number(NAME)?;
    let why = || {
        format!(
            "the sender does not learn that a retransmission was needless, as after reordering: its window stays \
             reduced, and cubic needs {} to fill {} again",
            refill_time(path),
            path.bdp_text()
        )
    };
    Some(finding_unless(
        found != 0,
        Severity::Note,
        NAME,
        found,
        why,
        "1",
    ))
}

/// Returns the time that cubic needs after a reduction of its window.
fn refill_time(path: Path) -> Time {
    congestion::recovery("cubic", path).unwrap_or(path.rtt)
}

/// Whether losses are detected by RACK (RFC 8985), which needs SACK.
fn uses_rack(facts: &Facts) -> bool {
    let has_sack = facts.number("net.ipv4.tcp_sack") != Some(0);
    let setting = facts.number("net.ipv4.tcp_recovery");
    has_sack && (has_rack_only(facts) || setting.is_none_or(|bits| bits & 1 == 1))
}

fn has_rack_only(facts: &Facts) -> bool {
    facts.version().is_some_and(|version| version >= RACK_ONLY)
}

fn rack(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_recovery";
    let found = facts.number(NAME)?;
    let timeout = after_rtt(path, RTO_MIN);
    let why = || {
        format!(
            "without RACK a lost retransmission is noticed by a timeout: {timeout} or more without new data, {} at {}",
            Bytes::new(path.rate.bytes_in(timeout)),
            path.rate
        )
    };
    let good = has_rack_only(facts) || found & 1 == 1;
    let fixed = (found | 1).to_string();
    Some(finding_unless(
        good,
        Severity::Note,
        NAME,
        found,
        why,
        &fixed,
    ))
}

fn after_rtt(path: Path, time: Time) -> Time {
    Time::from_nanos(path.rtt.as_nanos().saturating_add(time.as_nanos()))
}

/// Checks the packets that may overtake another one. RACK counts time instead: a quarter of the round trip.
fn max_reordering(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_max_reordering";
    let found = facts.number(NAME)?;
    let overtaking = path.rate.time_for(found.max(0) as u64 * SEGMENT);
    let quarter = Time::from_nanos(path.rtt.as_nanos() / 4);
    let good = uses_rack(facts) || found >= MAX_REORDERING || overtaking >= quarter;
    let why = || {
        format!(
            "a packet that {found} others overtake counts as lost: at {} it is {overtaking} late",
            path.rate
        )
    };
    Some(finding_unless(
        good,
        Severity::Note,
        NAME,
        found,
        why,
        "300",
    ))
}

/// Checks F-RTO (RFC 5682), which recognizes a needless timeout.
fn frto(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_frto";
    let found = facts.number(NAME)?;
    let why = || {
        format!(
            "after a timeout that only a delay caused, the whole window may be sent again, {}, unless both ends \
             have timestamps",
            path.bdp()
        )
    };
    Some(finding_unless(
        found != 0,
        Severity::Note,
        NAME,
        found,
        why,
        "2",
    ))
}

const NO_METRICS: &str = "net.ipv4.tcp_no_metrics_save";
const NO_SSTHRESH: &str = "net.ipv4.tcp_no_ssthresh_metrics_save";

/// Checks what a connection leaves for the next (`net/ipv4/tcp_metrics.c`). Since Linux 5.6 the slow-start
/// threshold is not kept by default (commit 65e6d90168f3).
fn no_metrics_save(facts: &Facts, path: Path) -> Option<Finding> {
    let found = facts.number(NO_METRICS)?;
    let keeps_ssthresh = facts.number(NO_SSTHRESH).is_none_or(|set| set == 0);
    let why = || {
        if keeps_ssthresh {
            ssthresh_reason(path)
        } else {
            format!(
                "round-trip time, its variation and reordering are kept for the next connection to the same host (not \
         the slow-start threshold): reordering that is over may delay the detection of a loss by {}",
                Time::from_nanos(path.rtt.as_nanos() / 4)
            )
        }
    };
    Some(finding_unless(
        found != 0,
        Severity::Note,
        NO_METRICS,
        found,
        why,
        "1",
    ))
}

/// Checks the slow-start threshold, which is kept only if other metrics are.
fn no_ssthresh_metrics_save(facts: &Facts, path: Path) -> Option<Finding> {
    let found = facts.number(NO_SSTHRESH)?;
    let keeps_nothing = facts.number(NO_METRICS).is_some_and(|set| set != 0);
    Some(finding_unless(
        found != 0 || keeps_nothing,
        Severity::Note,
        NO_SSTHRESH,
        found,
        || ssthresh_reason(path),
        "1",
    ))
}

fn ssthresh_reason(path: Path) -> String {
    format!(
        "the slow-start threshold of a connection with losses is kept for the next to the same host, which leaves slow \
         start too early: from half the window cubic needs {} to fill {}",
        refill_time(path),
        path.bdp_text()
    )
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures::*, *};

    fn finding(kernel: &str, settings: &[(&str, &str)], name: &str) -> Finding {
        let mut facts = facts(settings);
        facts.kernel = kernel.to_owned();
        about(check(&facts, path()), name)
    }

    #[test]
    fn each_setting_has_a_number_and_a_fix() {
        for (name, good, bad, number, fix) in [
            ("tcp_dsack", "1", "0", "50.6 s", "1"),
            ("tcp_recovery", "1", "0", "500 MB", "1"),
            ("tcp_recovery", "5", "4", "400 ms", "5"),
            ("tcp_frto", "2", "0", "250 MB", "2"),
            ("tcp_no_metrics_save", "1", "0", "50.6 s", "1"),
            ("tcp_no_ssthresh_metrics_save", "1", "0", "50.6 s", "1"),
        ] {
            let name = format!("net.ipv4.{name}");
            let with = |value| finding("6.12.0", &[(&name, value)], &name);
            assert_eq!(with(good).severity, Severity::Ok, "{name}");
            let found = with(bad);
            assert_eq!(found.severity, Severity::Note, "{name}");
            assert!(found.reason.contains(number), "{}", found.reason);
            let command = format!("sysctl -w {name}='{fix}'");
            assert_eq!(found.fix.unwrap().text(), command);
        }
    }

    #[test]
    fn kernels_with_rack_alone_ignore_its_setting() {
        const NAME: &str = "net.ipv4.tcp_recovery";
        let with = |kernel| finding(kernel, &[(NAME, "0")], NAME).severity;
        assert_eq!(with("6.16.9"), Severity::Note);
        assert_eq!(with("6.17.0"), Severity::Ok);
        assert_eq!(with("6.18.5-cloud"), Severity::Ok);
    }

    #[test]
    fn reordering_in_packets_matters_without_rack() {
        const NAME: &str = "net.ipv4.tcp_max_reordering";
        let with = |kernel, recovery, sack, value| {
            let settings = [
                (NAME, value),
                ("net.ipv4.tcp_recovery", recovery),
                ("net.ipv4.tcp_sack", sack),
            ];
            finding(kernel, &settings, NAME)
        };
        let found = with("6.12.0", "0", "1", "3");
        assert_eq!(found.severity, Severity::Note);
        assert_eq!(
            found.reason,
            "a packet that 3 others overtake counts as lost: at 10 Gbit/s it is 3.48 us late"
        );
        assert_eq!(with("6.12.0", "0", "1", "300").severity, Severity::Ok);
        assert_eq!(with("6.12.0", "1", "1", "3").severity, Severity::Ok);
        assert_eq!(with("6.18.0", "0", "1", "3").severity, Severity::Ok);
        assert_eq!(with("6.18.0", "1", "0", "3").severity, Severity::Note);
    }

    #[test]
    fn kept_metrics_are_named_as_the_kernel_keeps_them() {
        let with = |settings: &[(&str, &str)]| finding("6.18.0", settings, NO_METRICS).reason;
        let old = with(&[(NO_METRICS, "0")]);
        assert!(old.starts_with("the slow-start threshold"), "{old}");
        let today = with(&[(NO_METRICS, "0"), (NO_SSTHRESH, "1")]);
        assert!(today.contains("not the slow-start threshold"), "{today}");
        assert!(today.ends_with("by 50 ms"), "{today}");
        let settings = [(NO_METRICS, "1"), (NO_SSTHRESH, "0")];
        let unused = finding("6.18.0", &settings, NO_SSTHRESH);
        assert_eq!(unused.severity, Severity::Ok);
    }
}
