// SPDX-License-Identifier: MIT OR Apache-2.0
//! The nft rules of one listener, as text. docs/relay.md explains them to the operator.

use crate::target::{Intercept, Target};
use longhaul_linux::netfilter::{
    Family, lease,
    marks::{Marks, NEAR_MARK, NEAR_ZONE, OWN_MARK, TABLE_PREFIX},
};
use std::net::SocketAddr;

/// The name of the table for a listener on `port`.
pub(crate) fn table(port: u16) -> String {
    format!("{TABLE_PREFIX}{port}")
}

/// The chain that SYNs are queued from.
pub(crate) const HOLD: &str = "hold";

/// Only the first packet of a connection: connections from before the rules are left alone.
const SYN: &str = "tcp flags & (fin | syn | rst | ack) == syn";
const NOT_SYN: &str = "tcp flags & (fin | syn | rst | ack) != syn";

/// The table, which takes the place of an earlier one of its name. SYNs that are held go to `queue`. `is_tracked`:
/// something else on this host tracks connections.
pub(crate) fn script(
    listener: SocketAddr,
    intercept: &Intercept,
    queue: Option<u16>,
    is_tracked: bool,
) -> String {
    let family = Family::of(listener.ip()).name();
    let table = table(listener.port());
    let mut parts = vec![set(), inbound(listener, intercept), divert(listener)];
    let way = if intercept.verify { HOLD } else { "divert" };
    parts.push(select("select", way, listener, intercept));
    if intercept.verify {
        parts.push(hold(queue));
    }
    if intercept.local {
        parts.push(outbound(listener));
        parts.push(select("select_own", "divert_own", listener, intercept));
    }
    if intercept.keeps_source && is_tracked {
        parts.push(zones(listener, intercept));
        parts.push(translated(listener));
    }
    let body = parts.concat();
    format!(
        "table {family} {table}\ndelete table {family} {table}\ntable {family} {table} {{\n{body}}}\n"
    )
}

fn set() -> String {
    format!("set {} {{ type inet_proto; flags timeout; }}\n", lease::SET)
}

/// `socket transparent`: packets of the relay's own connections under foreign addresses, and ICMP errors that quote one
/// (net/ipv4/netfilter/nf_socket_ipv4.c). The listener itself is no such socket, but would look like one for its port.
fn inbound(listener: SocketAddr, intercept: &Intercept) -> String {
    let port = listener.port();
    let marks = Marks::of(port);
    let diverted = marks.diverted();
    let verdicts = match intercept.verify {
        false => format!("meta l4proto @{} jump select\n", lease::SET),
        true => verdicts(listener),
    };
    let icmp = icmp(listener);
    format!(
        "chain inbound {{ type filter hook prerouting priority mangle; policy accept;\n\
         meta l4proto {icmp} socket transparent 1 socket wildcard 0 meta mark set {diverted} accept\n\
         meta l4proto != tcp return\n\
         tcp dport != {port} tcp flags & (syn | ack) != syn socket transparent 1 meta mark set {diverted} accept\n\
         tcp dport {port} socket transparent 1 socket wildcard 0 meta mark set {diverted} accept\n\
         {NOT_SYN} return\n\
         {verdicts}}}\n"
    )
}

/// What becomes of SYNs that were held. This host's own come from `lo`: the kernel sends no ICMP for
/// them, because it would have to come from the destination's address (net/ipv4/icmp.c,
/// `icmp_send`).
fn verdicts(listener: SocketAddr) -> String {
    let marks = Marks::of(listener.port());
    let (icmp, [no_host, no_network, prohibited]) = match listener.is_ipv4() {
        true => (
            "icmp",
            ["host-unreachable", "net-unreachable", "admin-prohibited"],
        ),
        false => (
            "icmpv6",
            ["addr-unreachable", "no-route", "admin-prohibited"],
        ),
    };
    format!(
        "meta mark {} goto divert\n\
         meta mark {} meta l4proto tcp reject with tcp reset\n\
         iifname lo meta mark {{ {}, {}, {} }} meta l4proto tcp reject with tcp reset\n\
         meta mark {} reject with {icmp} type {no_host}\n\
         meta mark {} reject with {icmp} type {no_network}\n\
         meta mark {} reject with {icmp} type {prohibited}\n",
        marks.approved(),
        marks.refused(),
        marks.no_host(),
        marks.no_network(),
        marks.prohibited(),
        marks.no_host(),
        marks.no_network(),
        marks.prohibited(),
    )
}

/// An address of its own keeps the listener out of reach of everyone else.
fn divert(listener: SocketAddr) -> String {
    let to = match listener.ip().is_unspecified() {
        true => format!(":{}", listener.port()),
        false => listener.to_string(),
    };
    let diverted = Marks::of(listener.port()).diverted();
    format!("chain divert {{ meta l4proto tcp tproxy to {to} meta mark set {diverted} accept; }}\n")
}

/// Sends what is to be intercepted to the chain `way`. A rule for each network and range: a set
/// would refuse ranges that overlap. Segments signed end to end (RFC 2385, RFC 5925), as BGP has them, can't be split.
fn select(name: &str, way: &str, listener: SocketAddr, intercept: &Intercept) -> String {
    const AUTHENTICATION: u8 = 29;
    let family = Family::of(listener.ip()).name();
    let rules = |targets: &[Target], verdict: &str| -> String {
        let conditions = targets.iter().flat_map(conditions);
        conditions
            .map(|condition| format!("{family} daddr {condition} {verdict}\n"))
            .collect()
    };
    format!(
        "chain {name} {{\n\
         tcp dport {} return\n\
         fib daddr type {{ local, broadcast, multicast, anycast }} return\n\
         tcp option md5sig exists return\n\
         tcp option {AUTHENTICATION} exists return\n\
         {}{}}}\n",
        listener.port(),
        rules(&intercept.bypass, "return"),
        rules(&intercept.targets, &format!("goto {way}")),
    )
}

/// Near legs have a zone of their own in connection tracking, because their far legs have the same addresses and ports:
/// there, these are a connection of this host's, which NAT and stateful rules know. A packet that comes over `lo` was
/// tracked when it left, and what others do not track stays untracked. SYNs that were held, and now go on to the relay, carry
/// a verdict's mark. Other programs have transparent sockets, too: a near leg is known by its mark, and while its handshake
/// or TIME-WAIT is on, when rules can't ask for that (net/netfilter/nft_socket.c), by its destination.
fn zones(listener: SocketAddr, intercept: &Intercept) -> String {
    let new = match intercept.verify {
        true => verdict_marks(listener),
        false => format!("{SYN} meta l4proto @{} jump select_zone\n", lease::SET),
    };
    let select = select("select_zone", "near_zone", listener, intercept);
    let icmp = icmp(listener);
    format!(
        "chain near_zone {{ ct zone set {NEAR_ZONE}; }}\n\
         {select}\
         chain zones {{ type filter hook prerouting priority raw + 10; policy accept;\n\
         iifname lo return\n\
         ct state untracked return\n\
         meta l4proto {{ tcp, {icmp} }} socket wildcard 0 socket mark {NEAR_MARK} goto near_zone\n\
         meta l4proto {{ tcp, {icmp} }} socket mark != {NEAR_MARK} return\n\
         {NOT_SYN} socket transparent 1 jump select_zone\n\
         {new}}}\n\
         chain zones_out {{ type filter hook output priority raw + 10; policy accept;\n\
         ct state untracked return\n\
         oifname != lo meta mark {NEAR_MARK} goto near_zone\n}}\n"
    )
}

fn verdict_marks(listener: SocketAddr) -> String {
    let marks = Marks::of(listener.port());
    let all = [
        marks.approved(),
        marks.refused(),
        marks.no_host(),
        marks.no_network(),
        marks.prohibited(),
    ];
    let all = all.map(|mark| mark.to_string()).join(", ");
    format!("meta mark {{ {all} }} goto near_zone\n")
}

/// Answers to far legs whose source was translated on their way out: their destination is the client's again only here.
fn translated(listener: SocketAddr) -> String {
    let diverted = Marks::of(listener.port()).diverted();
    format!(
        "chain translated {{ type filter hook prerouting priority dstnat + 5; policy accept;\n\
         ct status snat meta l4proto {{ tcp, {} }} socket transparent 1 socket wildcard 0 meta mark set {diverted} accept\n}}\n",
        icmp(listener)
    )
}

fn icmp(listener: SocketAddr) -> &'static str {
    match listener.is_ipv4() {
        true => "icmp",
        false => "icmpv6",
    }
}

fn conditions(target: &Target) -> Vec<String> {
    let with_ports = |network: &String| -> Vec<String> {
        match &target.ports[..] {
            [] => vec![network.clone()],
            ports => ports
                .iter()
                .map(|p| format!("{network} tcp dport {p}"))
                .collect(),
        }
    };
    let networks = target.networks.iter().map(ToString::to_string);
    networks.flat_map(|network| with_ports(&network)).collect()
}

/// Before the chain that diverts: a verdict lets a packet go on behind the chain that queued it. Before connection
/// tracking: only a SYN that goes on to the relay is tracked as one of a near leg.
fn hold(queue: Option<u16>) -> String {
    let rule = queue.map(|number| format!("queue num {number} bypass;"));
    format!(
        "chain {HOLD} {{ {} }}\n\
         chain ask {{ type filter hook prerouting priority raw - 5; policy accept;\n\
         {SYN} meta l4proto @{} jump select\n}}\n",
        rule.unwrap_or_default(),
        lease::SET
    )
}

/// This host's own connections: marked, so that they are routed once more, to `lo`, and come in
/// again from there. Which connection a later packet belongs to is connection tracking's to know.
fn outbound(listener: SocketAddr) -> String {
    let diverted = Marks::of(listener.port()).diverted();
    format!(
        "chain outbound {{ type route hook output priority mangle; policy accept;\n\
         meta l4proto != tcp return\n\
         meta mark {{ {OWN_MARK}, {NEAR_MARK} }} return\n\
         {SYN} ct mark {diverted} ct mark set 0\n\
         ct mark {diverted} ct direction original meta mark set {diverted} accept\n\
         {NOT_SYN} return\n\
         oifname lo return\n\
         meta l4proto @{} jump select_own\n}}\n\
         chain divert_own {{ ct mark set {diverted} meta mark set {diverted} accept; }}\n",
        lease::SET
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intercept(target: &str) -> Intercept {
        Intercept {
            targets: vec![target.parse().unwrap()],
            ..Intercept::default()
        }
    }

    #[test]
    fn each_network_and_range_has_a_rule() {
        let conditions = conditions(&"10.0.0.0/8,192.0.2.0/24:80,8000-8999".parse().unwrap());
        assert_eq!(conditions.len(), 4);
        assert_eq!(conditions[3], "192.0.2.0/24 tcp dport 8000-8999");
    }

    #[test]
    fn a_network_without_ports_has_one_rule() {
        assert_eq!(
            super::conditions(&"10.0.0.0/8".parse().unwrap()),
            ["10.0.0.0/8"]
        );
    }

    #[test]
    fn an_address_of_its_own_is_where_connections_go() {
        let to = |listener: &str| divert(listener.parse().unwrap());
        assert!(to("0.0.0.0:3129").contains("tproxy to :3129 "));
        assert!(to("[::1]:3129").contains("tproxy to [::1]:3129 "));
    }

    #[test]
    fn nothing_is_selected_without_the_lease() {
        for (local, verify) in [(false, false), (true, true), (true, false)] {
            let intercept = Intercept {
                local,
                verify,
                keeps_source: true,
                ..intercept("10.0.0.0/8")
            };
            let script = script("0.0.0.0:3129".parse().unwrap(), &intercept, Some(1), true);
            // What has a socket of the relay's already is not taken in by this.
            let jumps = script.lines().filter(|line| {
                line.contains("jump select") && !line.contains("socket transparent 1")
            });
            assert!(jumps.clone().count() >= 1);
            assert!(
                jumps.clone().all(|line| line.contains("@lease")),
                "{script}"
            );
        }
    }
}
