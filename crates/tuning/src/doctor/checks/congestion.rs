// SPDX-License-Identifier: MIT OR Apache-2.0
//! Congestion controls: the default, those available, and those allowed without root.

use super::super::{
    facts::Facts,
    finding::{Finding, Severity},
    path::Path,
};
use longhaul_units::Time;

/// Payload of a segment on Ethernet with timestamps.
const MSS: u64 = 1448;
/// Recovery time after one loss beyond which a path with any loss is never filled.
const RECOVERY_MAX: Time = Time::from_millis(60_000);

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    [
        default_congestion_control(facts, path),
        allowed_congestion_controls(facts),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn default_congestion_control(facts: &Facts, path: Path) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_congestion_control";
    let found = facts.setting(NAME)?;
    let Some(recovery) = recovery(found, path) else {
        return Some(Finding::ok(NAME, found));
    };
    let why = format!(
        "after one loss {found} needs {recovery} to fill {} again",
        path.bdp_text()
    );
    let severity = match recovery > RECOVERY_MAX {
        true => Severity::Limit,
        false if recovery > note_threshold(path) => Severity::Note,
        false => return Some(Finding::ok(NAME, found)),
    };
    let finding = Finding::new(severity, NAME, found, why);
    Some(match better_congestion_control(facts, found) {
        Some(name) => finding.set(name),
        None => finding.advise("the kernel has nothing faster: load one (modprobe tcp_bbr)"),
    })
}

/// Returns the recovery time that is worth a note: more than fifty round trips.
fn note_threshold(path: Path) -> Time {
    Time::from_nanos(path.rtt.as_nanos().saturating_mul(50))
}

/// Returns the time from one loss until the window is the BDP again, for Reno and CUBIC.
pub(super) fn recovery(congestion_control: &str, path: Path) -> Option<Time> {
    let segments = path.bdp().get() / MSS;
    let seconds = |s: f64| Time::from_nanos((s * 1e9) as u64);
    match congestion_control {
        // Half the window, one segment a round trip (RFC 5681).
        "reno" => Some(Time::from_nanos(
            path.rtt.as_nanos().saturating_mul(segments / 2),
        )),
        // K = cubic root of (W × 0.3 / 0.4) seconds (RFC 9438, section 4.2).
        "cubic" => Some(seconds((segments as f64 * 0.75).cbrt())),
        _ => None,
    }
}

/// Returns the best available congestion control that recovers sooner than `found`.
fn better_congestion_control(facts: &Facts, found: &str) -> Option<&'static str> {
    let available = facts.setting("net.ipv4.tcp_available_congestion_control")?;
    let has = |name: &&&str| available.split(' ').any(|other| other == **name);
    let sooner = ["bbr", "cubic"].iter().find(has).copied();
    sooner.filter(|name| *name != found)
}

fn allowed_congestion_controls(facts: &Facts) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_allowed_congestion_control";
    let allowed = facts.setting(NAME)?;
    let available = facts.setting("net.ipv4.tcp_available_congestion_control")?;
    let may = |name: &&str| allowed.split(' ').any(|other| other == *name);
    let forbidden: Vec<&str> = available.split(' ').filter(|name| !may(name)).collect();
    if forbidden.is_empty() {
        return Some(Finding::ok(NAME, allowed));
    }
    let why = format!(
        "programs without CAP_NET_ADMIN may not choose {}",
        forbidden.join(" ")
    );
    let all: Vec<&str> = allowed.split(' ').chain(forbidden).collect();
    Some(Finding::note(NAME, allowed, why).set(all.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{super::finding::Fix, fixtures::*},
        *,
    };

    fn with(name: &str, there: &str) -> Finding {
        let facts = facts(&[
            ("net.ipv4.tcp_congestion_control", name),
            ("net.ipv4.tcp_available_congestion_control", there),
        ]);
        default_congestion_control(&facts, path()).unwrap()
    }

    #[test]
    fn rates_recovery_of_reno_cubic_and_bbr() {
        let reno = with("reno", "reno cubic bbr");
        assert_eq!(reno.severity, Severity::Limit);
        assert!(reno.reason.contains("287 min 45 s"), "{}", reno.reason);
        assert_eq!(
            reno.fix.unwrap().text(),
            "sysctl -w net.ipv4.tcp_congestion_control='bbr'"
        );
        assert_eq!(with("cubic", "reno cubic bbr").severity, Severity::Note);
        assert_eq!(with("bbr", "reno cubic bbr").severity, Severity::Ok);
    }

    #[test]
    fn does_not_set_unavailable_congestion_controls() {
        let better = |name, there| with(name, there).fix.unwrap();
        assert!(better("reno", "reno cubic").text().contains("'cubic'"));
        assert!(matches!(better("reno", "reno"), Fix::Advice(_)));
        assert!(matches!(better("cubic", "reno cubic"), Fix::Advice(_)));
    }

    #[test]
    fn reno_is_good_enough_on_a_short_path() {
        let facts = facts(&[("net.ipv4.tcp_congestion_control", "reno")]);
        let short = |rtt| {
            let rtt = Time::from_nanos(rtt);
            let rate = longhaul_units::BitRate::from_bits(1_000_000_000);
            let path = Path {
                rate,
                rtt,
                ..path()
            };
            default_congestion_control(&facts, path).unwrap().severity
        };
        // 101 segments: 50 round trips; 102: 51.
        assert_eq!(short(101 * 1448 * 8), Severity::Ok);
        assert_eq!(short(102 * 1448 * 8), Severity::Note);
    }

    #[test]
    fn allows_all_available_congestion_controls() {
        let facts = facts(&[
            ("net.ipv4.tcp_allowed_congestion_control", "reno bbr"),
            (
                "net.ipv4.tcp_available_congestion_control",
                "reno bbr cubic",
            ),
        ]);
        let fix = allowed_congestion_controls(&facts)
            .unwrap()
            .fix
            .unwrap()
            .text();
        assert!(fix.ends_with("='reno bbr cubic'"), "{fix}");
    }
}
