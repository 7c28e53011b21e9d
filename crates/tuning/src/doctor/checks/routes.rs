// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics of routes that limit TCP (`ip-route(8)`).

use super::super::{
    facts::Facts,
    finding::{Finding, Severity},
    path::Path,
};
use longhaul_linux::routes::Route;
use longhaul_report::count::counted;
use longhaul_units::{BitRate, Bytes, Time};

/// Payload bytes of a packet of 1500 bytes.
const SEGMENT: u64 = 1448;
/// Packets that a connection may start with (RFC 6928).
const INITIAL_WINDOW: u64 = 10;
/// Least time from a round trip to a timeout by default (TCP_RTO_MIN, `include/net/tcp.h`).
const RTO_MIN: Time = Time::from_millis(200);
/// Bytes that a packet has beside its payload on Ethernet: IPv4, TCP with timestamps, frame, preamble and gap.
const OVERHEAD: u64 = 20 + 32 + 38;
/// Bytes of the headers that the MSS does not count (RFC 9293, section 3.7.1).
const HEADERS: u64 = 40;
/// Least MSS of every path (RFC 9293, section 3.7.1), and that of IPv6.
const MSS_MIN: u64 = 536;
const MSS_MIN_IPV6: u64 = 1220;

/// Finding about a metric without its fix, and the names of the metrics.
type MetricFinding = (Finding, &'static str);

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    let routes = facts.routes.iter();
    routes.flat_map(|route| check_route(route, path)).collect()
}

fn check_route(route: &Route, path: Path) -> Vec<Finding> {
    let checks = [window, cwnd, initcwnd, initrwnd, advmss, mtu, rto_min];
    let found: Vec<MetricFinding> = checks
        .iter()
        .filter_map(|check| check(route, path))
        .collect();
    let bad = found
        .iter()
        .filter(|(finding, _)| finding.severity != Severity::Ok);
    let names: Vec<&str> = bad.map(|(_, name)| *name).collect();
    let fixed = |(finding, _): MetricFinding| match finding.severity {
        Severity::Ok => finding,
        _ => change(route, &names, finding),
    };
    found.into_iter().map(fixed).collect()
}

/// Adds the command that states the route without the metrics in question.
fn change(route: &Route, names: &[&str], finding: Finding) -> Finding {
    let ip = if route.is_ipv6 { "ip -6" } else { "ip" };
    match route.words_without(names) {
        Some(words) => finding.run(format!("{ip} route change {words}")),
        None => finding.advise(format!(
            "state the route without {}: {ip} route show {}",
            names.join(", "),
            route.destination
        )),
    }
}

fn metric_name(route: &Route, name: &str) -> String {
    let family = if route.is_ipv6 { "IPv6 " } else { "" };
    format!("{family}route {} {name}", route.destination)
}

fn metric(route: &Route, name: &str) -> Option<u64> {
    route.metrics.get(name).copied().map(u64::from)
}

fn finding_unless(
    good: bool,
    severity: Severity,
    setting: String,
    value: String,
    why: impl FnOnce() -> String,
) -> Finding {
    if good {
        Finding::ok(setting, value)
    } else {
        Finding::new(severity, setting, value, why())
    }
}

/// Checks the largest receive window that is offered to the peer.
fn window(route: &Route, path: Path) -> Option<MetricFinding> {
    let found = Bytes::new(metric(route, "window")?);
    let why = || {
        format!(
            "a receive window of {found} is {} at {}; {}",
            path.rate_of_window(found),
            path.rtt,
            path.bdp_text()
        )
    };
    let (setting, good) = (metric_name(route, "window"), found >= path.bdp());
    let value = found.get().to_string();
    Some((
        finding_unless(good, Severity::Limit, setting, value, why),
        "window",
    ))
}

/// Checks the largest congestion window, which counts only if it is locked (`net/ipv4/tcp_metrics.c`).
fn cwnd(route: &Route, path: Path) -> Option<MetricFinding> {
    let packets = metric(route, "cwnd").filter(|_| route.is_cwnd_locked())?;
    let found = Bytes::new(packets * SEGMENT);
    let why = || {
        format!(
            "a congestion window of {packets} packets is {} at {}; {}",
            path.rate_of_window(found),
            path.rtt,
            path.bdp_text()
        )
    };
    let (setting, good) = (metric_name(route, "cwnd lock"), found >= path.bdp());
    let value = packets.to_string();
    Some((
        finding_unless(good, Severity::Limit, setting, value, why),
        "cwnd",
    ))
}

fn initcwnd(route: &Route, path: Path) -> Option<MetricFinding> {
    let start = |packets| format!("a connection starts with {}", counted(packets, "packet"));
    initial_window(route, path, "initcwnd", start)
}

fn initrwnd(route: &Route, path: Path) -> Option<MetricFinding> {
    let start = |packets| format!("a peer may send {} first", counted(packets, "packet"));
    initial_window(route, path, "initrwnd", start)
}

/// Checks an initial window, by the round trips that slow start takes longer.
fn initial_window(
    route: &Route,
    path: Path,
    name: &'static str,
    start: impl Fn(u64) -> String,
) -> Option<MetricFinding> {
    let found = metric(route, name)?;
    let more = doublings(path, found).saturating_sub(doublings(path, INITIAL_WINDOW));
    let why = || {
        format!(
            "{} instead of {INITIAL_WINDOW}: {more} more round trips, {}, until the path is filled",
            start(found),
            Time::from_nanos(path.rtt.as_nanos().saturating_mul(more))
        )
    };
    let setting = metric_name(route, name);
    Some((
        finding_unless(more == 0, Severity::Note, setting, found.to_string(), why),
        name,
    ))
}

/// Returns the round trips in which a window of so many packets grows to the BDP.
fn doublings(path: Path, packets: u64) -> u64 {
    let times = path.bdp().get().div_ceil(packets.max(1) * SEGMENT);
    u64::from(times.max(1).next_power_of_two().ilog2())
}

fn advmss(route: &Route, path: Path) -> Option<MetricFinding> {
    let found = metric(route, "advmss")?;
    Some((segments(route, path, "advmss", found, found), "advmss"))
}

fn mtu(route: &Route, path: Path) -> Option<MetricFinding> {
    let found = metric(route, "mtu")?;
    Some((
        segments(route, path, "mtu", found, found.saturating_sub(HEADERS)),
        "mtu",
    ))
}

/// Checks the size of segments, by the payload that a line of the rate carries.
fn segments(route: &Route, path: Path, name: &str, found: u64, mss: u64) -> Finding {
    let mss = mss.max(1);
    let payload = u128::from(path.rate.bits()) * u128::from(mss) / u128::from(mss + OVERHEAD);
    let why = || {
        format!(
            "in segments of {mss} bytes, {} are {} packets a second and {} of payload",
            path.rate,
            path.rate.bits() / 8 / (mss + OVERHEAD),
            BitRate::from_bits(payload as u64)
        )
    };
    let severity = if mss < MSS_MIN {
        Severity::Limit
    } else {
        Severity::Note
    };
    let setting = metric_name(route, name);
    finding_unless(
        mss >= MSS_MIN_IPV6,
        severity,
        setting,
        found.to_string(),
        why,
    )
}

fn rto_min(route: &Route, path: Path) -> Option<MetricFinding> {
    let found = Time::from_millis(metric(route, "rto_min")?);
    let why = || {
        format!(
            "a timeout comes {found} after a round trip or later: {} less at {}",
            Bytes::new(path.rate.bytes_in(found)),
            path.rate
        )
    };
    let (setting, good) = (metric_name(route, "rto_min"), found <= RTO_MIN);
    let finding = finding_unless(good, Severity::Note, setting, found.to_string(), why);
    Some((finding, "rto_min"))
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures::*, *};

    fn route(metrics: &[(&str, u32)]) -> Route {
        let metrics = metrics
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value));
        Route {
            destination: "default".to_owned(),
            words: Some("default via 10.0.0.1 dev eth0".to_owned()),
            metrics: metrics.collect(),
            ..Route::default()
        }
    }

    /// Returns the findings at 1 Gbit/s and 100 ms: a BDP of 12.5 MB.
    fn findings(route: Route) -> Vec<Finding> {
        let mut facts = facts(&[]);
        facts.routes = vec![route];
        let path = Path {
            rate: BitRate::from_bits(1_000_000_000),
            rtt: Time::from_millis(100),
            ..path()
        };
        check(&facts, path)
    }

    fn one(name: &str, value: u32) -> Finding {
        about(
            findings(route(&[(name, value)])),
            &format!("route default {name}"),
        )
    }

    #[test]
    fn window_of_a_route_limits_by_its_rate() {
        let found = one("window", 10_000);
        assert_eq!(found.severity, Severity::Limit);
        assert_eq!(
            found.reason,
            "a receive window of 10 KB is 800 kbit/s at 100 ms; 1 Gbit/s × 100 ms = 12.5 MB"
        );
        let fix = found.fix.unwrap().text();
        assert_eq!(fix, "ip route change default via 10.0.0.1 dev eth0");
        assert_eq!(one("window", 12_499_999).severity, Severity::Limit);
        assert_eq!(one("window", 12_500_000).severity, Severity::Ok);
    }

    #[test]
    fn initial_window_costs_round_trips() {
        let found = one("initcwnd", 1);
        assert_eq!(found.severity, Severity::Note);
        assert_eq!(
            found.reason,
            "a connection starts with 1 packet instead of 10: 4 more round trips, 400 ms, until the path is filled"
        );
        assert_eq!(one("initcwnd", 10).severity, Severity::Ok);
        assert_eq!(one("initcwnd", 100).severity, Severity::Ok);
        assert_eq!(one("initrwnd", 2).severity, Severity::Note);
    }

    #[test]
    fn small_segments_cost_payload() {
        let found = one("advmss", 256);
        assert_eq!(found.severity, Severity::Limit);
        assert_eq!(
            found.reason,
            "in segments of 256 bytes, 1 Gbit/s are 361271 packets a second and 740 Mbit/s of payload"
        );
        assert_eq!(one("advmss", 536).severity, Severity::Note);
        assert_eq!(one("advmss", 1220).severity, Severity::Ok);
        assert_eq!(one("mtu", 1259).severity, Severity::Note);
        assert_eq!(one("mtu", 1260).severity, Severity::Ok);
        assert_eq!(one("mtu", 10).severity, Severity::Limit);
    }

    #[test]
    fn least_timeout_costs_what_is_not_sent() {
        let found = one("rto_min", 5000);
        assert_eq!(found.severity, Severity::Note);
        assert_eq!(
            (found.value.as_str(), one("rto_min", 200).severity),
            ("5 s", Severity::Ok)
        );
        assert!(found.reason.contains("625 MB"), "{}", found.reason);
    }

    #[test]
    fn congestion_window_counts_if_it_is_locked() {
        let mut unlocked = route(&[("cwnd", 10)]);
        assert_eq!(findings(unlocked.clone()), []);
        unlocked.locked = 1 << 7;
        let found = findings(unlocked).remove(0);
        assert_eq!(found.severity, Severity::Limit);
        assert!(found.reason.contains("1.16 Mbit/s"), "{}", found.reason);
    }

    #[test]
    fn fix_removes_all_bad_metrics_and_keeps_the_others() {
        let route = route(&[("window", 10_000), ("rto_min", 5000), ("advmss", 1400)]);
        let found = findings(route.clone());
        let fixes: Vec<String> = found
            .iter()
            .filter_map(|finding| Some(finding.fix.as_ref()?.text()))
            .collect();
        let fix = "ip route change default via 10.0.0.1 dev eth0 advmss 1400";
        assert_eq!(fixes, [fix; 2]);
        let many = Route {
            words: None,
            is_ipv6: true,
            ..route
        };
        let found = findings(many).remove(0);
        assert_eq!(found.setting, "IPv6 route default window");
        assert_eq!(
            found.fix.unwrap().text(),
            "state the route without window, rto_min: ip -6 route show default"
        );
    }
}
