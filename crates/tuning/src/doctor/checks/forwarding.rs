// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwarded packets: whether the kernel forwards them, and whether it tracks their connections.

use super::{
    super::{
        facts::Facts,
        finding::{Finding, Fix, Severity},
        path::Path,
    },
    features::TRANSPARENT,
};

/// Checks the requirements of a transparent relay: packets of other hosts must reach it and be forwarded.
pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    if !path.transparent {
        return Vec::new();
    }
    let mut findings: Vec<Finding> = facts
        .interfaces
        .iter()
        .filter_map(|interface| reverse_path(facts, &interface.name))
        .collect();
    findings.extend(reverse_path_of_all(facts));
    let forwarding = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];
    findings.extend(forwarding.iter().filter_map(|name| forward(facts, name)));
    if !facts.is_tried(TRANSPARENT) {
        findings.push(tproxy(facts));
    }
    findings
}

const RP_FILTER_OF_ALL: &str = "net.ipv4.conf.all.rp_filter";
const RP_FILTER_STRICT: i64 = 1;

/// Checks the reverse-path filter. The greater of `all` and the interface's own value applies
/// (`include/linux/inetdevice.h`, `IN_DEV_RPFILTER`), and loose (2) is greater than strict (1).
fn reverse_path(facts: &Facts, interface: &str) -> Option<Finding> {
    let all = facts.number(RP_FILTER_OF_ALL)?;
    let own = facts.number(&format!("net/ipv4/conf/{interface}/rp_filter"))?;
    let place = format!("{interface} rp_filter");
    if own.max(all) != RP_FILTER_STRICT || all == RP_FILTER_STRICT {
        return Some(Finding::ok(place, own));
    }
    let mut finding = Finding::limit(place, own, strict_filter_reason());
    finding.fix = Some(Fix::Sysctl {
        key: RP_FILTER_OF_ALL.to_owned(),
        value: "2".to_owned(),
    });
    Some(finding)
}

fn reverse_path_of_all(facts: &Facts) -> Option<Finding> {
    let found = facts.number(RP_FILTER_OF_ALL)?;
    Some(match found {
        RP_FILTER_STRICT => Finding::limit(RP_FILTER_OF_ALL, found, strict_filter_reason()).set(2),
        _ => Finding::ok(RP_FILTER_OF_ALL, found),
    })
}

fn strict_filter_reason() -> String {
    "strict: packets are dropped if the route back to their source leads through another interface, as on \
     asymmetric paths through a transparent relay"
        .to_owned()
}

fn forward(facts: &Facts, name: &str) -> Option<Finding> {
    let found = facts.number(name)?;
    if found != 0 {
        return Some(Finding::ok(name, found));
    }
    let why =
        "packets that the relay does not intercept, or lets pass when it is down, are dropped";
    Some(if name.contains("ipv6") {
        Finding::note(name, found, why).run(format!(
            "sysctl -w {name}=1 (with accept_ra=2 where routes come from advertisements)"
        ))
    } else {
        Finding::limit(name, found, why).set(1)
    })
}

/// Checks the build options for TPROXY, if it could not be tried.
fn tproxy(facts: &Facts) -> Finding {
    const SETTING: &str = "TPROXY";
    match facts.kernel_options.get("NFT_TPROXY").map(String::as_str) {
        Some("n") => Finding::limit(
            SETTING,
            "absent",
            "connections can't be intercepted without it",
        )
        .advise("this kernel was built without CONFIG_NFT_TPROXY: use another"),
        Some(_) => Finding::ok(SETTING, "present"),
        None => Finding::note(
            SETTING,
            "unknown",
            "this kernel does not show its build options",
        )
        .run("modprobe nft_tproxy"),
    }
}

/// Minimum timeout of half-closed connections, in seconds. One may be idle while an archive retrieves a large file.
const HALF_CLOSED_MIN: i64 = 3600;
/// Minimum timeout of established connections, in seconds. RFC 5382 requires 2 h 4 min, as does tcp_keepalive_time.
const ESTABLISHED_MIN: i64 = 7440;

/// Checks connection tracking (Linux `Documentation/networking/nf_conntrack-sysctl.rst`), if it is loaded.
pub(super) fn tracking(facts: &Facts, path: Path) -> Vec<Finding> {
    let mut findings: Vec<Finding> = entries(facts, path).into_iter().collect();
    for state in ["close_wait", "fin_wait"] {
        let why = |seconds| {
            format!(
                "a half-closed connection that is idle for {seconds} s is forgotten, and later packets are \
                 dropped or reset"
            )
        };
        findings.extend(timeout(facts, state, HALF_CLOSED_MIN, why));
    }
    let why = |seconds| {
        format!(
            "an idle connection is forgotten after {seconds} s, before the first keepalive probe"
        )
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
    // A relayed connection has two entries.
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
    Some(if found >= least {
        Finding::ok(name, found)
    } else {
        Finding::new(Severity::Note, name, found, why(found)).set(least)
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{super::facts::Interface, fixtures::*},
        *,
    };

    fn filters(all: &str, own: &str) -> Facts {
        let mut facts = facts(&[
            (RP_FILTER_OF_ALL, all),
            ("net/ipv4/conf/eth0/rp_filter", own),
        ]);
        facts.interfaces = vec![Interface {
            name: "eth0".to_owned(),
            ..Interface::default()
        }];
        facts
    }

    fn limits(facts: &Facts) -> Vec<String> {
        let path = Path {
            transparent: true,
            ..path()
        };
        let limits = check(facts, path).into_iter();
        limits
            .filter(|f| f.severity == Severity::Limit)
            .map(|f| f.setting)
            .collect()
    }

    #[test]
    fn applies_the_greater_reverse_path_filter() {
        assert_eq!(limits(&filters("0", "0")), [""; 0]);
        assert_eq!(limits(&filters("2", "1")), [""; 0]);
        assert_eq!(limits(&filters("0", "1")), ["eth0 rp_filter"]);
        assert_eq!(limits(&filters("1", "0")), [RP_FILTER_OF_ALL]);
    }

    #[test]
    fn checks_forwarding_and_tproxy_for_transparent_relays_only() {
        let mut facts = facts(&[("net.ipv4.ip_forward", "0")]);
        facts
            .kernel_options
            .insert("NFT_TPROXY".to_owned(), "n".to_owned());
        assert_eq!(limits(&facts), ["net.ipv4.ip_forward", "TPROXY"]);
        assert_eq!(check(&facts, path()), []);
    }

    #[test]
    fn counts_two_conntrack_entries_per_relayed_connection() {
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
    fn requires_an_hour_for_half_closed_connections() {
        const NAME: &str = "net.netfilter.nf_conntrack_tcp_timeout_close_wait";
        let with = |value: &str| about(tracking(&facts(&[(NAME, value)]), path()), NAME);
        assert_eq!(with("3600").severity, Severity::Ok);
        assert_eq!(with("60").severity, Severity::Note);
        assert!(with("60").reason.contains("60 s"));
    }

    #[test]
    fn no_findings_without_conntrack() {
        assert_eq!(tracking(&facts(&[]), path()), []);
    }
}
