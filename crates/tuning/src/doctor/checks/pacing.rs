// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rate at which TCP paces a connection: a share of its window in a round trip
//! (`net/ipv4/tcp_input.c`, `tcp_update_pacing_rate`).

use super::super::{
    facts::Facts,
    finding::{Finding, Severity},
    path::Path,
};
use longhaul_units::BitRate;

/// Settings and their defaults, in percent of a window in a round trip.
const RATIOS: [(&str, i64); 2] = [
    ("net.ipv4.tcp_pacing_ss_ratio", 200),
    ("net.ipv4.tcp_pacing_ca_ratio", 120),
];

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    RATIOS
        .iter()
        .filter_map(|(name, default)| ratio(facts, path, name, *default))
        .collect()
}

/// Checks a ratio. A connection that sends less than its window in a round trip does not enlarge it either
/// (`include/net/tcp.h`, `tcp_is_cwnd_limited`).
fn ratio(facts: &Facts, path: Path, name: &str, default: i64) -> Option<Finding> {
    let found = facts.number(name)?;
    if found >= 100 {
        return Some(Finding::ok(name, found));
    }
    let percent = found.max(0).cast_unsigned();
    let reached =
        BitRate::from_bits((u128::from(path.rate.bits()) * u128::from(percent) / 100) as u64);
    let why = format!(
        "a paced connection sends {percent} % of its window in a round trip, and then does not enlarge it: {reached} \
         of {}",
        path.rate
    );
    let severity = if is_paced(facts) {
        Severity::Limit
    } else {
        Severity::Note
    };
    Some(Finding::new(severity, name, found, why).set(default))
}

/// Whether all connections are paced by these ratios: by fq, and without a pacing of the congestion control's own.
/// Without fq, only connections with `SO_MAX_PACING_RATE` are.
fn is_paced(facts: &Facts) -> bool {
    let is_fq = |kind: &String| kind == "fq";
    let by_interface = facts.interfaces.iter().any(|i| i.qdiscs.iter().any(is_fq));
    let congestion_control = facts.setting("net.ipv4.tcp_congestion_control");
    let paces_itself = congestion_control.is_some_and(|name| name.starts_with("bbr"));
    by_interface && !paces_itself
}

#[cfg(test)]
mod tests {
    use super::{
        super::{super::facts::Interface, fixtures::*},
        *,
    };

    fn with(qdisc: &str, congestion_control: &str, name: &str, value: &str) -> Finding {
        let mut facts = facts(&[
            (name, value),
            ("net.ipv4.tcp_congestion_control", congestion_control),
        ]);
        facts.interfaces = vec![Interface {
            qdiscs: vec![qdisc.to_owned()],
            ..Interface::default()
        }];
        about(check(&facts, path()), name)
    }

    #[test]
    fn ratio_below_a_window_limits_paced_connections() {
        for (name, default) in RATIOS {
            let found = with("fq", "cubic", name, "10");
            assert_eq!(found.severity, Severity::Limit);
            assert!(
                found.reason.ends_with("1 Gbit/s of 10 Gbit/s"),
                "{}",
                found.reason
            );
            let fix = found.fix.unwrap().text();
            assert_eq!(fix, format!("sysctl -w {name}='{default}'"));
            assert_eq!(with("fq", "bbr", name, "99").severity, Severity::Note);
            assert_eq!(
                with("pfifo_fast", "cubic", name, "99").severity,
                Severity::Note
            );
            assert_eq!(with("fq", "cubic", name, "100").severity, Severity::Ok);
        }
    }
}
