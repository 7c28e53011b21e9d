// SPDX-License-Identifier: MIT OR Apache-2.0
//! The nft rules of one listener, as text. docs/relay.md explains them to the operator.

use crate::target::{Intercept, Target};
use longhaul_linux::netfilter::{
    Family, lease,
    marks::{DOWNSTREAM_MARK, DOWNSTREAM_ZONE, Marks, OWN_MARK, TABLE_PREFIX},
};
use std::{net::SocketAddr, time::Duration};

/// Time that a lease lasts: six renewals, and less than the second after which TCP sends a SYN again. A relay that is killed
/// or stopped lets connections pass after this long.
pub(crate) const LEASE: Duration = Duration::from_millis(900);

/// The name of the table for a listener on `port`.
pub(crate) fn table(port: u16) -> String {
    format!("{TABLE_PREFIX}{port}")
}

/// The chain that SYNs are queued from.
pub(crate) const HOLD: &str = "hold";

/// Only the first packet of a connection: connections from before the rules are left alone.
const SYN: &str = "tcp flags & (fin | syn | rst | ack) == syn";
const NOT_SYN: &str = "tcp flags & (fin | syn | rst | ack) != syn";
const ACK: &str = "tcp flags & (fin | syn | rst | ack) == ack";

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
    let mut parts = vec![
        lease::rules(Marks::of(listener.port()).lease(), LEASE),
        syns(listener),
        inbound(listener, intercept),
        divert(listener, intercept),
    ];
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

/// `socket transparent`: packets of the relay's own connections under foreign addresses, and ICMP errors that quote one
/// (net/ipv4/netfilter/nf_socket_ipv4.c). A listener at the unspecified address, this one's or another program's, matches
/// every destination that has its port. `socket wildcard` tells it from a connection. The expression matches nothing for a
/// socket in its handshake or in TIME-WAIT (net/netfilter/nft_socket.c).
fn inbound(listener: SocketAddr, intercept: &Intercept) -> String {
    let port = listener.port();
    let marks = Marks::of(port);
    let diverted = marks.diverted();
    let verdicts = match intercept.verify {
        false => format!("{} jump select\n", lease::CONDITION),
        true => verdicts(listener),
    };
    let (icmp, key) = (icmp(listener), key(listener));
    format!(
        "chain inbound {{ type filter hook prerouting priority mangle; policy accept;\n\
         meta l4proto {icmp} socket transparent 1 socket wildcard 0 meta mark set {diverted} accept\n\
         meta l4proto != tcp return\n\
         tcp dport != {port} socket transparent 1 socket wildcard 1 return\n\
         tcp dport != {port} tcp flags & (syn | ack) != syn socket transparent 1 meta mark set {diverted} accept\n\
         tcp dport {port} socket transparent 1 socket wildcard 0 meta mark set {diverted} accept\n\
         {ACK} {key} @{SYNS} goto deliver\n\
         {NOT_SYN} return\n\
         {verdicts}}}\n"
    )
}

/// The connections whose SYNs were diverted of late. A listener whose queue is full answers with SYN cookies and keeps no
/// socket (net/ipv4/tcp_input.c, `tcp_conn_request`): only this set knows that the client's ACK is for it. Memory: some
/// 100 bytes a connection, 6.5 MB at most for each listener.
const SYNS: &str = "syns";

fn syns(listener: SocketAddr) -> String {
    let address = match listener.is_ipv4() {
        true => "ipv4_addr",
        false => "ipv6_addr",
    };
    format!(
        "set {SYNS} {{ type {address} . inet_service . {address} . inet_service; flags dynamic, timeout; \
         timeout 10s; size 65536; }}\n"
    )
}

/// The connection of a packet, as the key of [`SYNS`].
fn key(listener: SocketAddr) -> String {
    let family = Family::of(listener.ip()).name();
    format!("{family} saddr . tcp sport . {family} daddr . tcp dport")
}

/// Verdicts on SYNs that were held. This host's own SYNs come from `lo`: the kernel sends no ICMP for
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

/// An address of its own keeps the listener out of reach of everyone else. A SYN beyond the capacity of [`SYNS`] goes directly:
/// its handshake might not come to an end here. One that was held goes on to the listener, where its upstream leg waits.
fn divert(listener: SocketAddr, intercept: &Intercept) -> String {
    let to = match listener.ip().is_unspecified() {
        true => format!(":{}", listener.port()),
        false => listener.to_string(),
    };
    let diverted = Marks::of(listener.port()).diverted();
    let key = key(listener);
    let beyond = match intercept.verify {
        true => "goto deliver",
        false => "return",
    };
    format!(
        "chain deliver {{ meta l4proto tcp tproxy to {to} meta mark set {diverted} accept; }}\n\
         chain divert {{\n\
         update @{SYNS} {{ {key} }} goto deliver\n\
         {beyond}\n}}\n"
    )
}

/// Sends what is to be intercepted to the chain `way`. A rule for each network and range: a set would refuse ranges that
/// overlap. Connections that can't be split bypass the relay. Those are connections with signed segments (RFC 2385, RFC 5925), as
/// of BGP, or with IPsec authentication, and subflows that join an MPTCP connection (RFC 8684 §3.2). Services of the
/// link and of the cloud bypass it too: they would take the relay's host for the client. Options have numbers, because older nft has no
/// names for them.
fn select(name: &str, way: &str, listener: SocketAddr, intercept: &Intercept) -> String {
    const SIGNATURE: u8 = 19;
    const AUTHENTICATION: u8 = 29;
    /// The kind of the option, and its subtype in the upper half of the third byte.
    const JOIN: &str = "@30,16,4 1";
    let family = Family::of(listener.ip()).name();
    let link = match listener.is_ipv4() {
        true => "ip daddr 169.254.0.0/16 return",
        false => "ip6 nexthdr ah return\nip6 daddr { fe80::/10, fd00:ec2::254 } return",
    };
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
         tcp option {SIGNATURE} exists return\n\
         tcp option {AUTHENTICATION} exists return\n\
         tcp option {JOIN} return\n\
         {link}\n\
         {}{}}}\n",
        listener.port(),
        rules(&intercept.bypass, "return"),
        rules(&intercept.targets, &format!("goto {way}")),
    )
}

/// Downstream legs have a zone of their own in connection tracking, because their upstream legs have the same addresses and ports:
/// there, these are a connection of this host's, which NAT and stateful rules know. A packet that comes over `lo` was
/// tracked when it left, and what others do not track stays untracked. SYNs that were held, and now go on to the relay, carry
/// a verdict's mark. Other programs have transparent sockets, too: a downstream leg is known by its mark, and while its handshake
/// or TIME-WAIT is on, when rules can't ask for that (net/netfilter/nft_socket.c), by its destination.
fn zones(listener: SocketAddr, intercept: &Intercept) -> String {
    let new = match intercept.verify {
        true => verdict_marks(listener),
        false => format!("{SYN} {} jump select_zone\n", lease::CONDITION),
    };
    let key = key(listener);
    let select = select("select_zone", "downstream_zone", listener, intercept);
    let icmp = icmp(listener);
    format!(
        "chain downstream_zone {{ ct zone set {DOWNSTREAM_ZONE}; }}\n\
         {select}\
         chain zones {{ type filter hook prerouting priority raw + 10; policy accept;\n\
         iifname lo return\n\
         ct state untracked return\n\
         meta l4proto {{ tcp, {icmp} }} socket wildcard 0 socket mark {DOWNSTREAM_MARK} goto downstream_zone\n\
         meta l4proto {{ tcp, {icmp} }} socket mark != {DOWNSTREAM_MARK} return\n\
         {NOT_SYN} socket transparent 1 jump select_zone\n\
         {ACK} {key} @{SYNS} goto downstream_zone\n\
         {new}}}\n\
         chain zones_out {{ type filter hook output priority raw + 10; policy accept;\n\
         ct state untracked return\n\
         oifname != lo meta mark {DOWNSTREAM_MARK} goto downstream_zone\n}}\n"
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
    format!("meta mark {{ {all} }} goto downstream_zone\n")
}

/// Answers to upstream legs whose source was translated on their way out: their destination is the client's again only here.
fn translated(listener: SocketAddr) -> String {
    let diverted = Marks::of(listener.port()).diverted();
    format!(
        "chain translated {{ type filter hook prerouting priority dstnat + 5; policy accept;\n\
         ct status snat meta l4proto {{ tcp, {} }} socket transparent 1 socket wildcard 0 meta mark set {diverted} accept\n}}\n",
        icmp(listener)
    )
}

/// A chain for the table, where the kernel has nft's `dup`: this host's own ICMP errors, which it sends to the client's address
/// because upstream legs have that, come to the upstream legs too. A neighbor that does not answer is such an error.
pub(crate) fn copied_errors(listener: SocketAddr) -> String {
    let (family, table) = (Family::of(listener.ip()).name(), table(listener.port()));
    let (errors, host) = match listener.is_ipv4() {
        true => ("icmp type destination-unreachable", "127.0.0.1"),
        false => ("icmpv6 type destination-unreachable", "::1"),
    };
    format!(
        "table {family} {table} {{ chain copied_errors {{ type filter hook output priority filter; policy accept;\n\
         oifname != lo {errors} dup to {host}\n}}\n}}\n"
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
/// tracking: only a SYN that goes on to the relay is tracked as one of a downstream leg.
fn hold(queue: Option<u16>) -> String {
    let rule = queue.map(|number| format!("queue num {number} bypass;"));
    format!(
        "chain {HOLD} {{ {} }}\n\
         chain ask {{ type filter hook prerouting priority raw - 5; policy accept;\n\
         {SYN} {} jump select\n}}\n",
        rule.unwrap_or_default(),
        lease::CONDITION
    )
}

/// This host's own connections: marked, so that they are routed once more, to `lo`, and come in again from there.
/// Connection tracking knows which connection a later packet belongs to; without it, they go directly.
fn outbound(listener: SocketAddr) -> String {
    let marks = Marks::of(listener.port());
    let (diverted, rerouted) = (marks.diverted(), marks.rerouted());
    format!(
        "chain outbound {{ type route hook output priority mangle; policy accept;\n\
         meta l4proto != tcp return\n\
         meta mark {{ {OWN_MARK}, {DOWNSTREAM_MARK} }} return\n\
         ct state untracked return\n\
         {SYN} ct mark {diverted} ct mark set 0\n\
         ct mark {diverted} ct direction original meta mark set {rerouted} accept\n\
         {NOT_SYN} return\n\
         oifname lo return\n\
         {} jump select_own\n}}\n\
         chain divert_own {{ ct mark set {diverted} meta mark set {rerouted} accept; }}\n",
        lease::CONDITION
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
    fn writes_a_rule_for_each_network_and_range() {
        let conditions = conditions(&"10.0.0.0/8,192.0.2.0/24:80,8000-8999".parse().unwrap());
        assert_eq!(conditions.len(), 4);
        assert_eq!(conditions[3], "192.0.2.0/24 tcp dport 8000-8999");
    }

    #[test]
    fn writes_one_rule_for_a_network_without_ports() {
        assert_eq!(
            super::conditions(&"10.0.0.0/8".parse().unwrap()),
            ["10.0.0.0/8"]
        );
    }

    #[test]
    fn diverts_to_the_address_of_the_listener() {
        let to = |listener: &str| divert(listener.parse().unwrap(), &Intercept::default());
        assert!(to("0.0.0.0:3129").contains("tproxy to :3129 "));
        assert!(to("[::1]:3129").contains("tproxy to [::1]:3129 "));
    }

    #[test]
    fn selects_nothing_without_the_lease() {
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
