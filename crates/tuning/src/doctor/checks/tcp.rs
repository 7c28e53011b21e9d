// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP's own switches (Linux `Documentation/networking/ip-sysctl.rst`).

use super::super::{
    facts::Facts,
    finding::{Finding, Severity},
    path::Path,
};
use longhaul_units::{Bytes, Time};

/// Bytes of data in a segment of 1500 bytes.
const SEGMENT: u64 = 1448;

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    let checks = [
        window_scaling,
        timestamps,
        sack,
        moderate_rcvbuf,
        adv_win_scale,
        slow_start_after_idle,
        no_metrics_save,
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

/// A finding of `severity` unless the setting is `good`.
fn unless(
    good: bool,
    severity: Severity,
    name: &str,
    found: i64,
    why: impl FnOnce() -> String,
    value: &str,
) -> Finding {
    match good {
        true => Finding::ok(name, found),
        false => Finding::new(severity, name, found, why()).set(value),
    }
}

/// RFC 7323, section 2: without it a window is 16 bits.
fn window_scaling(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_window_scaling";
    let unscaled = Bytes::new(65_535);
    let found = facts.number(NAME)?;
    let good = found != 0 || path.bdp() <= unscaled;
    let why = || {
        format!(
            "without it a window ends at 64 KiB: {} at {}",
            path.carried_by(unscaled),
            path.rtt
        )
    };
    Some(unless(good, Severity::Limit, NAME, found, why, "1"))
}

/// RFC 7323, section 5: old segments of an earlier lap of the sequence space must be told apart.
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
    Some(unless(found != 0, Severity::Note, NAME, found, why, "1"))
}

fn sack(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_sack";
    let found = facts.number(NAME)?;
    let why = || {
        let thousand = Time::from_nanos(path.rtt.as_nanos().saturating_mul(1000));
        format!("without it each lost segment costs a round trip: 1,000 losses cost {thousand}")
    };
    Some(unless(found != 0, Severity::Limit, NAME, found, why, "1"))
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
            path.carried_by(fixed),
            path.rtt
        )
    };
    Some(unless(good, Severity::Limit, NAME, found, why, "1"))
}

/// Obsolete since Linux 6.6; before, how much of a buffer is window.
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
    Some(unless(good, Severity::Limit, NAME, found, why, "1"))
}

/// RFC 2861; RFC 6928's initial window is ten segments.
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
    Some(unless(found == 0, Severity::Note, NAME, found, why, "0"))
}

fn no_metrics_save(facts: &Facts, _: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_no_metrics_save";
    let found = facts.number(NAME)?;
    let why = || {
        "the threshold of one connection's bad moment is kept for the next to the same host, which \
         leaves slow start too early"
            .to_owned()
    };
    Some(unless(found != 0, Severity::Note, NAME, found, why, "1"))
}

/// RFC 4821.
fn mtu_probing(facts: &Facts, _: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_mtu_probing";
    let found = facts.number(NAME)?;
    let why = || {
        "where a router drops large packets silently, a connection hangs for good; 1 probes once \
         that has happened"
            .to_owned()
    };
    Some(unless(found != 0, Severity::Note, NAME, found, why, "1"))
}

/// What may wait unsent. A millisecond may pass before a program that is woken writes again, so with
/// less than that of the rate the line may run dry.
fn notsent_lowat(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_notsent_lowat";
    let found = facts.number(NAME)?;
    let wanted = path.rate.bytes_in(Time::from_millis(1)) as i64;
    // -1 and 2^32-1 both mean no limit.
    let good = found < 0 || found >= wanted;
    let why = || {
        format!(
            "a program is woken only when {} are left to send, {} at {}: the line may run dry \
             before it has written again",
            Bytes::new(found as u64),
            path.rate.time_for(found as u64),
            path.rate
        )
    };
    let severity = Severity::Note;
    Some(unless(
        good,
        severity,
        NAME,
        found,
        why,
        &wanted.to_string(),
    ))
}

/// How long a burst of one connection may be on the line, and of how many segments it needs be at most.
const BURST: Time = Time::from_micros(250);
const SEGMENTS: u64 = 16;
/// Linux: below 16 ms, `tcp_tso_rtt_log` makes bursts large.
const LONG: Time = Time::from_millis(16);

/// A paced connection sends about a millisecond of its rate at a time (`net/ipv4/tcp_output.c`, `tcp_tso_autosize`): many
/// slow ones cost several times the CPU of few fast ones.
fn min_tso_segs(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_min_tso_segs";
    let found = facts.number(NAME)?;
    let wanted = (path.rate.bytes_in(BURST) / SEGMENT).min(SEGMENTS);
    let own = path.rate.bits() / path.connections.max(1) / 8 / 1024 / SEGMENT;
    let good = path.rtt < LONG || found.cast_unsigned().max(own) >= wanted;
    let why = || {
        format!(
            "each of {} connections sends {} segments at a time, which costs CPUs several times as much as {wanted} would",
            path.connections,
            found.cast_unsigned().max(own),
        )
    };
    let wanted = wanted.to_string();
    Some(unless(good, Severity::Note, NAME, found, why, &wanted))
}

/// TCP small queues let a socket have about a millisecond of its pacing rate below TCP, if this
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
    Some(unless(
        good,
        Severity::Note,
        NAME,
        found,
        why,
        &wanted.to_string(),
    ))
}

/// RFC 3168. 2, the default, answers those that ask.
fn ecn(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_ecn";
    let found = facts.number(NAME)?;
    let why = || {
        format!(
            "routers can only drop, not mark: each congestion costs a retransmission of {} or more",
            path.rtt
        )
    };
    Some(unless(found != 0, Severity::Note, NAME, found, why, "2"))
}

#[cfg(test)]
mod tests {
    use super::{super::bench::*, *};
    use longhaul_units::BitRate;

    fn severity(name: &str, value: &str) -> Severity {
        let name = format!("net.ipv4.{name}");
        about(check(&facts(&[(&name, value)]), path()), &name).severity
    }

    #[test]
    fn each_switch_on_both_sides() {
        use Severity::{Limit, Note, Ok};
        for (name, good, bad, grave) in [
            ("tcp_window_scaling", "1", "0", Limit),
            ("tcp_timestamps", "1", "0", Note),
            ("tcp_sack", "1", "0", Limit),
            ("tcp_moderate_rcvbuf", "1", "0", Limit),
            ("tcp_slow_start_after_idle", "0", "1", Note),
            ("tcp_no_metrics_save", "1", "0", Note),
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
    fn a_short_path_needs_no_scaling() {
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
    fn many_slow_connections_send_too_little_at_a_time() {
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
    fn the_share_of_the_window_matters_before_6_6() {
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
    fn the_climb_is_counted_in_round_trips() {
        let facts = facts(&[("net.ipv4.tcp_slow_start_after_idle", "1")]);
        let why = slow_start_after_idle(&facts, path()).unwrap().why;
        assert!(why.contains("15 round trips, 3 s"), "{why}");
    }
}
