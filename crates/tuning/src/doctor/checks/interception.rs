// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that running relays divert: whether INPUT rules of this host accept them.

use super::super::{
    facts::{Facts, Interception},
    finding::Finding,
    path::Path,
};
use longhaul_linux::netfilter::{Family, marks::Marks};

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    let (Some(running), Some(chains)) = (&facts.interceptions, &facts.input_drops) else {
        return path.transparent.then(unread).into_iter().collect();
    };
    let is_wanted = path.transparent || !running.is_empty();
    // The first SYN shows what the rules do with it.
    let is_unknown = is_wanted && running.iter().all(|relay| relay.diverted_syns == 0);
    let inputs = chains.iter().filter(|_| is_unknown).map(input);
    running.iter().map(arrivals).chain(inputs).collect()
}

/// Returns what a transparent relay would need of an INPUT chain. The mark is that of any listener.
fn input(chain: &String) -> Finding {
    let mark = Marks::of(0).diverted();
    let why =
        "connections that a relay intercepts bypass it unless a rule of the chain accepts them";
    Finding::note("INPUT", chain, why).advise(format!(
        "if no rule accepts them yet, add `meta mark & 0xffff0000 == {mark:#x} accept` before those that drop (or: \
         iptables -I INPUT -m mark --mark {mark:#x}/0xffff0000 -j ACCEPT)"
    ))
}

fn unread() -> Finding {
    let why = "whether INPUT rules accept what relays intercept is known from the relays' tables, which can't be read";
    Finding::note("intercepted connections", "unknown", why)
        .advise("run it as root (CAP_NET_ADMIN), with nft installed")
}

fn arrivals(interception: &Interception) -> Finding {
    let (family, place) = if !interception.is_ipv6 {
        (Family::Ip, "IPv4")
    } else {
        (Family::Ip6, "IPv6")
    };
    let place = format!("{place} to relay on port {}", interception.port);
    let (diverted, arrived) = (interception.diverted_syns, interception.arrived_syns);
    let value = format!("{arrived} of {diverted} SYNs pass INPUT");
    let lost = diverted.saturating_sub(arrived);
    if lost == 0 {
        return Finding::ok(place, value);
    }
    let why = format!("INPUT rules of this host dropped {lost} SYNs since the relay's start");
    let finding = if interception.active && arrived > 0 {
        let effect = "their connections bypassed it, a second late";
        Finding::note(place, value, format!("{why}: {effect}"))
    } else {
        Finding::limit(place, value, format!("{why}: connections bypass it"))
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
            input_drops: Some(["ip6 filter INPUT".to_owned()].into()),
            ..facts(&[])
        };
        let findings = check(&facts, path());
        assert_eq!(findings.len() > 1, diverted_syns == 0, "{findings:?}");
        about(findings, "IPv6 to relay on port 3129")
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
    fn chains_that_drop_are_noted_before_a_relay_runs() {
        let transparent = Path {
            transparent: true,
            ..path()
        };
        let mut facts = facts(&[]);
        facts.interceptions = Some(Vec::new());
        facts.input_drops = Some(["ip filter INPUT".to_owned()].into());
        let finding = about(check(&facts, transparent), "INPUT");
        assert_eq!(finding.severity, Severity::Note);
        let advice = finding.fix.unwrap().text();
        assert!(advice.contains("0x4c480000"), "{advice}");
        assert_eq!(check(&facts, path()), []);
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
