// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that running relays divert: whether INPUT rules of this host accept them.

use super::super::{
    facts::{Facts, Interception},
    finding::Finding,
    path::Path,
};
use longhaul_linux::netfilter::{Family, marks::Marks};

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    match &facts.interceptions {
        Some(interceptions) => interceptions.iter().map(arrivals).collect(),
        None if path.transparent => vec![unread()],
        None => Vec::new(),
    }
}

fn unread() -> Finding {
    let why = "whether INPUT rules accept what relays intercept is known from the relays' tables, which can't be read";
    Finding::note("intercepted connections", "unknown", why)
        .advise("run it as root (CAP_NET_ADMIN), with nft installed")
}

fn arrivals(interception: &Interception) -> Finding {
    let (family, place) = match interception.is_ipv6 {
        false => (Family::Ip, "IPv4"),
        true => (Family::Ip6, "IPv6"),
    };
    let place = format!("{place} to relay on port {}", interception.port);
    let (diverted, arrived) = (interception.diverted_syns, interception.arrived_syns);
    let value = format!("{arrived} of {diverted} SYNs pass INPUT");
    let lost = diverted.saturating_sub(arrived);
    if lost == 0 {
        return Finding::ok(place, value);
    }
    let why = format!("INPUT rules of this host dropped {lost} SYNs since the relay's start");
    let finding = match interception.active && arrived > 0 {
        true => {
            let effect = "their connections bypassed it, a second late";
            Finding::note(place, value, format!("{why}: {effect}"))
        }
        false => Finding::limit(place, value, format!("{why}: connections bypass it")),
    };
    finding.advise(Marks::of(interception.port).input_advice(family))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{super::finding::Severity, fixtures::*},
        *,
    };

    fn finding(active: bool, diverted_syns: u64, arrived_syns: u64) -> Finding {
        let interception = Interception {
            is_ipv6: true,
            port: 3129,
            active,
            diverted_syns,
            arrived_syns,
        };
        let facts = Facts {
            interceptions: Some(vec![interception]),
            ..facts(&[])
        };
        about(check(&facts, path()), "IPv6 to relay on port 3129")
    }

    #[test]
    fn finds_dropped_syns_and_names_the_rule() {
        assert_eq!(finding(true, 0, 0).severity, Severity::Ok);
        assert_eq!(finding(true, 7, 7).severity, Severity::Ok);
        assert_eq!(finding(true, 7, 5).severity, Severity::Note);
        assert_eq!(finding(true, 2, 0).severity, Severity::Limit);
        let blocked = finding(false, 7, 5);
        assert_eq!(blocked.severity, Severity::Limit);
        assert_eq!(blocked.value, "5 of 7 SYNs pass INPUT");
        let advice = blocked.fix.unwrap().text();
        assert!(advice.contains("meta mark 0x4c480c39 accept"), "{advice}");
        assert!(advice.contains("ip6tables"), "{advice}");
    }

    #[test]
    fn unread_tables_are_no_silence_for_transparent_relays() {
        let mut path = path();
        assert_eq!(check(&facts(&[]), path), []);
        path.transparent = true;
        let findings = check(&facts(&[]), path);
        assert_eq!(findings[0].severity, Severity::Note, "{findings:?}");
    }
}
