// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a transparent relay needs: packets of others must reach it and pass.

use super::super::{
    facts::Facts,
    finding::{Finding, Fix},
    path::Path,
};

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
    findings.push(tproxy(facts));
    findings
}

const ALL: &str = "net.ipv4.conf.all.rp_filter";
const STRICT: i64 = 1;

/// The greater of `all` and the interface's own value holds (`include/linux/inetdevice.h`,
/// `IN_DEV_RPFILTER`), and loose (2) is greater than strict (1).
fn reverse_path(facts: &Facts, interface: &str) -> Option<Finding> {
    let all = facts.number(ALL)?;
    let own = facts.number(&format!("net/ipv4/conf/{interface}/rp_filter"))?;
    let place = format!("{interface} rp_filter");
    if own.max(all) != STRICT || all == STRICT {
        return Some(Finding::ok(place, own));
    }
    let mut finding = Finding::limit(place, own, why());
    finding.fix = Some(Fix::Sysctl {
        key: ALL.to_owned(),
        value: "2".to_owned(),
    });
    Some(finding)
}

fn reverse_path_of_all(facts: &Facts) -> Option<Finding> {
    let found = facts.number(ALL)?;
    Some(match found {
        STRICT => Finding::limit(ALL, found, why()).set(2),
        _ => Finding::ok(ALL, found),
    })
}

fn why() -> String {
    "strict: packets are dropped whose way back leads elsewhere, as a transparent relay's do on \
     paths that are not symmetric"
        .to_owned()
}

fn forward(facts: &Facts, name: &str) -> Option<Finding> {
    let found = facts.number(name)?;
    if found != 0 {
        return Some(Finding::ok(name, found));
    }
    let why = "what the relay does not catch, or lets pass when it is down, goes no further";
    Some(match name.contains("ipv6") {
        // Forwarding stops taking routes from router advertisements: not for a program to decide.
        true => Finding::note(name, found, why).run(format!(
            "sysctl -w {name}=1 (with accept_ra=2 where routes come from advertisements)"
        )),
        false => Finding::limit(name, found, why).set(1),
    })
}

fn tproxy(facts: &Facts) -> Finding {
    const PLACE: &str = "TPROXY";
    match facts.kernel_options.get("NFT_TPROXY").map(String::as_str) {
        Some("n") => Finding::limit(PLACE, "absent", "connections can't be caught without it")
            .advise("this kernel was built without CONFIG_NFT_TPROXY: take another"),
        Some(_) => Finding::ok(PLACE, "present"),
        None => Finding::note(PLACE, "unknown", "this kernel does not tell its options")
            .run("modprobe nft_tproxy"),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            super::{facts::Interface, finding::Severity},
            bench::*,
        },
        *,
    };

    fn filters(all: &str, own: &str) -> Facts {
        let mut facts = facts(&[(ALL, all), ("net/ipv4/conf/eth0/rp_filter", own)]);
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
            .map(|f| f.place)
            .collect()
    }

    #[test]
    fn the_greater_of_both_filters_holds() {
        assert_eq!(limits(&filters("0", "0")), [""; 0]);
        assert_eq!(limits(&filters("2", "1")), [""; 0]);
        assert_eq!(limits(&filters("0", "1")), ["eth0 rp_filter"]);
        assert_eq!(limits(&filters("1", "0")), [ALL]);
    }

    #[test]
    fn forwarding_and_tproxy_are_wanted_for_transparent_relays_only() {
        let mut facts = facts(&[("net.ipv4.ip_forward", "0")]);
        facts
            .kernel_options
            .insert("NFT_TPROXY".to_owned(), "n".to_owned());
        assert_eq!(limits(&facts), ["net.ipv4.ip_forward", "TPROXY"]);
        assert_eq!(check(&facts, path()), []);
    }
}
