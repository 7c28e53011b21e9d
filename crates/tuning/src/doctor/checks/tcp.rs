// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP settings (Linux `Documentation/networking/ip-sysctl.rst`).

use super::super::{
    facts::Facts,
    finding::{Finding, Severity},
    path::Path,
};
use longhaul_units::{Bytes, Time};

/// Payload bytes of a packet of 1500 bytes.
const SEGMENT: u64 = 1448;

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    let checks = [
        window_scaling,
        timestamps,
        sack,
        moderate_rcvbuf,
        adv_win_scale,
        slow_start_after_idle,
        mtu_probing,
        notsent_lowat,
        limit_output,
        min_tso_segs,
        ecn,
    ];
    checks
        .iter()
        .filter_map(|check| check(facts, path))
        .collect()
}

/// Returns a finding of `severity` unless the setting is `good`.
pub(super) fn finding_unless(
    good: bool,
    severity: Severity,
    name: &str,
    found: i64,
    why: impl FnOnce() -> String,
    value: &str,
) -> Finding {
    if good {
        Finding::ok(name, found)
    } else {
        Finding::new(severity, name, found, why()).set(value)
    }
}

/// Checks window scaling (RFC 7323, section 2): without it a window is 16 bits.
fn window_scaling(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_window_scaling";
    let unscaled = Bytes::new(65_535);
    let found = facts.number(NAME)?;
    let good = found != 0 || path.bdp() <= unscaled;
    let why = || {
        format!(
            "without it a window ends at 64 KiB: {} at {}",
            path.rate_of_window(unscaled),
            path.rtt
        )
    };
    Some(finding_unless(good, Severity::Limit, NAME, found, why, "1"))
}

/// Checks timestamps (RFC 7323, section 5), which protect against wrapped sequence numbers (PAWS).
fn timestamps(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_timestamps";
    let found = facts.number(NAME)?;
    let why = || {
        let lap = path.rate.time_for(1 << 32);
        format!(
            "at {} the sequence numbers come round in {lap}; without timestamps a late segment may \
             be taken for a new one",
            path.rate
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

fn sack(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_sack";
    let found = facts.number(NAME)?;
    let why = || {
        let thousand = Time::from_nanos(path.rtt.as_nanos().saturating_mul(1000));
        format!("without it each lost segment costs a round trip: 1,000 losses cost {thousand}")
    };
    Some(finding_unless(
        found != 0,
        Severity::Limit,
        NAME,
        found,
        why,
        "1",
    ))
}

fn moderate_rcvbuf(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_moderate_rcvbuf";
    let found = facts.number(NAME)?;
    let [_, start, _] = facts
        .numbers("net.ipv4.tcp_rmem")
        .unwrap_or([0, 131_072, 0]);
    let fixed = Bytes::new(start / 2);
    let good = found != 0 || fixed >= path.bdp();
    let why = || {
        format!(
            "receive buffers stay at tcp_rmem's second value, {}: {} at {}",
            Bytes::new(start),
            path.rate_of_window(fixed),
            path.rtt
        )
    };
    Some(finding_unless(good, Severity::Limit, NAME, found, why, "1"))
}

/// Checks the share of a buffer that is window; obsolete since Linux 6.6.
fn adv_win_scale(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_adv_win_scale";
    let found = facts.number(NAME)?;
    let obsolete = facts.version().is_some_and(|version| version >= (6, 6));
    // 0 means all of it, n > 0 all but 2^-n, n < 0 only 2^n; 1 and -1 are the same half.
    let good = obsolete || found >= -1;
    let why = || {
        let part = 1_u64 << found.unsigned_abs().min(31);
        format!(
            "only 1/{part} of a receive buffer becomes window: {} wants {} of buffer",
            path.bdp(),
            Bytes::new(path.bdp().get().saturating_mul(part))
        )
    };
    Some(finding_unless(good, Severity::Limit, NAME, found, why, "1"))
}

/// Checks slow start after idle (RFC 2861); the initial window of RFC 6928 is ten segments.
fn slow_start_after_idle(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_slow_start_after_idle";
    let found = facts.number(NAME)?;
    let why = || {
        let doublings = (path.bdp().get() / 14_480).max(1).ilog2() + 1;
        let climb = Time::from_nanos(path.rtt.as_nanos() * u64::from(doublings));
        format!(
            "a connection that paused starts again from ten segments: {doublings} round trips, \
             {climb}, to fill the path; pooled connections lose what they learnt"
        )
    };
    Some(finding_unless(
        found == 0,
        Severity::Note,
        NAME,
        found,
        why,
        "0",
    ))
}

/// Checks path MTU probing (RFC 4821).
fn mtu_probing(facts: &Facts, _: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_mtu_probing";
    let found = facts.number(NAME)?;
    let why = || {
        "where a router drops large packets silently, a connection hangs for good; 1 probes once \
         that has happened"
            .to_owned()
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

/// Checks the limit of unsent data. A millisecond may pass before a program that is woken writes again. With
/// less data than that at the rate, the send buffer may run empty.
fn notsent_lowat(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_notsent_lowat";
    let found = facts.number(NAME)?;
    let wanted = path.rate.bytes_in(Time::from_millis(1)) as i64;
    // -1 and 2^32-1 both mean no limit.
    let good = found < 0 || found >= wanted;
    let why = || {
        format!(
            "a program is woken only when {} are left to send, {} at {}: the send buffer may run empty \
             before it has written again",
            Bytes::new(found as u64),
            path.rate.time_for(found as u64),
            path.rate
        )
    };
    let severity = Severity::Note;
    Some(finding_unless(
        good,
        severity,
        NAME,
        found,
        why,
        &wanted.to_string(),
    ))
}

/// Maximum time that a burst of one connection takes on the link.
const BURST_TIME_MAX: Time = Time::from_micros(250);
/// Number of segments that suffice for a burst.
const BURST_SEGMENTS: u64 = 16;
/// Round-trip time below which Linux makes bursts large (`tcp_tso_rtt_log`).
const LARGE_BURST_RTT: Time = Time::from_millis(16);

/// Checks the minimum burst of a paced connection. It sends about a millisecond of its rate at a time
/// (`net/ipv4/tcp_output.c`, `tcp_tso_autosize`), so many slow connections cost several times the CPU of few fast ones.
fn min_tso_segs(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_min_tso_segs";
    let found = facts.number(NAME)?;
    let wanted = (path.rate.bytes_in(BURST_TIME_MAX) / SEGMENT).min(BURST_SEGMENTS);
    let own = path.rate.bits() / path.connections.max(1) / 8 / 1024 / SEGMENT;
    let good = path.rtt < LARGE_BURST_RTT || found.cast_unsigned().max(own) >= wanted;
    let why = || {
        format!(
            "each of {} connections sends {} segments at a time, which costs CPUs several times as much as {wanted} would",
            path.connections,
            found.cast_unsigned().max(own),
        )
    };
    let wanted = wanted.to_string();
    Some(finding_unless(
        good,
        Severity::Note,
        NAME,
        found,
        why,
        &wanted,
    ))
}

/// Checks TCP small queues: they allow a socket about a millisecond of its pacing rate below TCP, if this
/// setting allows as much (`net/ipv4/tcp_output.c`, `tcp_small_queue_check`).
fn limit_output(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_limit_output_bytes";
    let found = facts.number(NAME)?;
    let wanted = (path.rate.bits() / 8 / 1024).next_multiple_of(4096) as i64;
    let why = || {
        format!(
            "a connection may have {} in the device's queue; {} a millisecond are {}",
            Bytes::new(found as u64),
            path.rate,
            Bytes::new(wanted as u64)
        )
    };
    let good = found >= wanted;
    Some(finding_unless(
        good,
        Severity::Note,
        NAME,
        found,
        why,
        &wanted.to_string(),
    ))
}

/// Checks ECN (RFC 3168). The default, 2, accepts it when a peer requests it.
fn ecn(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_ecn";
    let found = facts.number(NAME)?;
    let why = || {
        format!(
            "routers can only drop, not mark: each congestion costs a retransmission of {} or more",
            path.rtt
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

#[cfg(test)]
mod tests {
    use super::{super::fixtures::*, *};
    use longhaul_units::BitRate;

    fn severity(name: &str, value: &str) -> Severity {
        let name = format!("net.ipv4.{name}");
        about(check(&facts(&[(&name, value)]), path()), &name).severity
    }

    #[test]
    fn checks_good_and_bad_value_of_each_setting() {
        use Severity::{Limit, Note, Ok};
        for (name, good, bad, grave) in [
            ("tcp_window_scaling", "1", "0", Limit),
            ("tcp_timestamps", "1", "0", Note),
            ("tcp_sack", "1", "0", Limit),
            ("tcp_moderate_rcvbuf", "1", "0", Limit),
            ("tcp_slow_start_after_idle", "0", "1", Note),
            ("tcp_mtu_probing", "1", "0", Note),
            ("tcp_ecn", "2", "0", Note),
            ("tcp_notsent_lowat", "1250000", "1249999", Note),
            ("tcp_limit_output_bytes", "1224704", "1224703", Note),
        ] {
            assert_eq!(severity(name, good), Ok, "{name} {good}");
            assert_eq!(severity(name, bad), grave, "{name} {bad}");
        }
        for unlimited in ["4294967295", "-1"] {
            assert_eq!(severity("tcp_notsent_lowat", unlimited), Ok);
        }
    }

    #[test]
    fn short_path_needs_no_window_scaling() {
        let facts = facts(&[("net.ipv4.tcp_window_scaling", "0")]);
        let of = |bits| {
            let rate = BitRate::from_bits(bits);
            let path = Path { rate, ..path() };
            window_scaling(&facts, path).unwrap().severity
        };
        // 65,535 B in 200 ms are 2,621,400 bit/s.
        assert_eq!(of(2_621_400), Severity::Ok);
        assert_eq!(of(2_621_440), Severity::Limit);
    }

    #[test]
    fn notes_small_bursts_of_many_slow_connections() {
        let with = |segments: &str, connections, rtt_ms, mbit: u64| {
            let path = Path {
                rate: BitRate::from_bits(mbit * 1_000_000),
                rtt: Time::from_millis(rtt_ms),
                connections,
                ..path()
            };
            let facts = facts(&[("net.ipv4.tcp_min_tso_segs", segments)]);
            let finding = min_tso_segs(&facts, path).unwrap();
            (finding.severity, finding.fix.map(|fix| fix.text()))
        };
        let (ok, note) = (Severity::Ok, Severity::Note);
        assert_eq!(with("2", 32, 350, 1000).0, note);
        assert_eq!(with("16", 32, 350, 1000).0, ok);
        assert_eq!(with("2", 4, 350, 1000).0, ok, "21 by themselves");
        assert_eq!(with("2", 32, 15, 1000).0, ok, "short");
        assert_eq!(
            with("2", 32, 350, 90).0,
            ok,
            "they would be long on the line"
        );
        let fix = with("2", 32, 350, 500).1.unwrap();
        assert!(fix.ends_with("'10'"), "{fix}");
    }

    #[test]
    fn checks_adv_win_scale_before_linux_6_6() {
        let with = |kernel: &str, value: &str| {
            let mut facts = facts(&[("net.ipv4.tcp_adv_win_scale", value)]);
            facts.kernel = kernel.to_owned();
            adv_win_scale(&facts, path()).unwrap().severity
        };
        assert_eq!(with("5.14.0-427.el9", "-2"), Severity::Limit);
        assert_eq!(with("5.14.0-427.el9", "1"), Severity::Ok);
        assert_eq!(with("6.5.13", "-2"), Severity::Limit);
        assert_eq!(with("6.6.0", "-2"), Severity::Ok);
    }

    #[test]
    fn reports_slow_start_in_round_trips() {
        let facts = facts(&[("net.ipv4.tcp_slow_start_after_idle", "1")]);
        let why = slow_start_after_idle(&facts, path()).unwrap().reason;
        assert!(why.contains("15 round trips, 3 s"), "{why}");
    }
}
