// SPDX-License-Identifier: MIT OR Apache-2.0
//! The nft rules of one listener, as text. docs/relay.md explains them to the operator.

use crate::target::{InterceptConfig, Target};
use longhaul_linux::netfilter::{
    Family, lease,
    marks::{
        ARRIVED_SYNS, DIVERTED_SYNS, DOWNSTREAM_MARK, DOWNSTREAM_ZONE, Marks, OWN_MARK,
        TABLE_PREFIX,
    },
};
use std::{net::SocketAddr, time::Duration};

/// Duration of a lease: six renewal intervals, and less than the second after which TCP retransmits a SYN. If the relay
/// is killed or stopped, new connections bypass it after this time.
pub(crate) const LEASE: Duration = Duration::from_millis(900);

/// The name of the table for a listener on `port`.
pub(crate) fn table(port: u16) -> String {
    format!("{TABLE_PREFIX}{port}")
}

/// The chain that queues SYNs for the relay.
pub(crate) const QUEUE_CHAIN: &str = "queue_syns";

/// Matches the first packet of a connection only. Connections that are older than the rules are left alone.
const SYN: &str = "tcp flags & (fin | syn | rst | ack) == syn";
const NOT_SYN: &str = "tcp flags & (fin | syn | rst | ack) != syn";
const ACK: &str = "tcp flags & (fin | syn | rst | ack) == ack";

/// Returns the script that creates the table, in place of an earlier one of the same name. SYNs to hold go to the
/// kernel queue `queue`. `is_tracked` means that something else on this host tracks connections.
pub(crate) fn script(
    listener: SocketAddr,
    intercept: &InterceptConfig,
    queue: Option<u16>,
    is_tracked: bool,
) -> String {
    let family = Family::of(listener.ip()).name();
    let table = table(listener.port());
    let mut parts = vec![
        lease::rules(Marks::of(listener.port()).lease(), LEASE),
        syn_sets(listener),
        arrive(listener),
        inbound(listener, intercept),
        divert(listener, intercept),
    ];
    let chain = if intercept.verify {
        QUEUE_CHAIN
    } else {
        "divert"
    };
    parts.push(select("select", chain, listener, intercept));
    if intercept.verify {
        parts.push(hold_chains(queue, listener));
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

/// Returns the chain for arriving packets. `socket transparent` matches packets to sockets of the relay that are bound
/// to addresses of other hosts, and ICMP errors that quote such a packet (net/ipv4/netfilter/nf_socket_ipv4.c). It also
/// matches a listener at the unspecified address, the relay's or another program's, for every destination with its
/// port. `socket wildcard` distinguishes such a listener from a connection. The expression matches nothing for a socket
/// in its handshake or in TIME-WAIT (net/netfilter/nft_socket.c).
fn inbound(listener: SocketAddr, intercept: &InterceptConfig) -> String {
    let port = listener.port();
    let marks = Marks::of(port);
    let diverted = marks.diverted();
    let verdicts = if !intercept.verify {
        format!("{} jump select\n", lease::CONDITION)
    } else {
        verdicts(listener)
    };
    let (icmp, key) = (icmp(listener), connection_key(listener));
    format!(
        "chain inbound {{ type filter hook prerouting priority mangle; policy accept;\n\
         meta l4proto {icmp} socket transparent 1 socket wildcard 0 meta mark set {diverted} accept\n\
         meta l4proto != tcp return\n\
         tcp dport != {port} socket transparent 1 socket wildcard 1 return\n\
         tcp dport != {port} tcp flags & (syn | ack) != syn socket transparent 1 meta mark set {diverted} accept\n\
         tcp dport {port} socket transparent 1 socket wildcard 0 meta mark set {diverted} accept\n\
         {ACK} {key} @{ARRIVED_SET} goto deliver\n\
         {NOT_SYN} return\n\
         {verdicts}}}\n"
    )
}

/// Name of the set of connections whose SYNs were diverted in the last 10 s. A listener whose queue is full answers
/// with SYN cookies and keeps no socket (net/ipv4/tcp_input.c, `tcp_conn_request`). Then only this set shows that the
/// client's ACK is for the relay. Memory: about 100 bytes a connection, 6.5 MB at most for each listener.
const SYN_SET: &str = "syns";

/// Name of the set of those connections of [`SYN_SET`] whose SYNs all INPUT rules of this host have accepted. Other
/// connections get no answer from the listener. Memory: as for [`SYN_SET`].
const ARRIVED_SET: &str = "arrived";

/// Priority of the chain behind the INPUT rules of other programs.
const LAST: u16 = 1000;

fn syn_sets(listener: SocketAddr) -> String {
    let address = if listener.is_ipv4() {
        "ipv4_addr"
    } else {
        "ipv6_addr"
    };
    [SYN_SET, ARRIVED_SET]
        .map(|set| {
            format!(
                "set {set} {{ type {address} . inet_service . {address} . inet_service; flags dynamic, timeout; \
                 timeout 10s; size 65536; }}\n"
            )
        })
        .concat()
}

/// Returns the counters, and the chain that notes which diverted SYNs all INPUT rules have accepted.
fn arrive(listener: SocketAddr) -> String {
    let key = connection_key(listener);
    format!(
        "counter {DIVERTED_SYNS} {{ }}\ncounter {ARRIVED_SYNS} {{ }}\n\
         chain arrive {{ type filter hook input priority {LAST}; policy accept;\n\
         {SYN} {key} @{SYN_SET} update @{ARRIVED_SET} {{ {key} }} counter name {ARRIVED_SYNS}\n}}\n"
    )
}

/// Returns the rule by which a SYN that is retransmitted, because INPUT rules dropped it when it was diverted, bypasses
/// the relay. This host's own SYNs can't: they have left once already.
fn pass_lost(listener: SocketAddr) -> String {
    let key = connection_key(listener);
    format!("{SYN} iifname != lo {key} @{SYN_SET} {key} != @{ARRIVED_SET} return\n")
}

/// Returns the expression for a packet's connection, the key of [`SYN_SET`].
fn connection_key(listener: SocketAddr) -> String {
    let family = Family::of(listener.ip()).name();
    format!("{family} saddr . tcp sport . {family} daddr . tcp dport")
}

/// Returns the rules for SYNs that were held: they carry the mark of their verdict. This host's own SYNs arrive from
/// `lo`. The kernel sends no ICMP for them, because its source would have to be the destination's address
/// (net/ipv4/icmp.c, `icmp_send`).
fn verdicts(listener: SocketAddr) -> String {
    let marks = Marks::of(listener.port());
    let (icmp, [host_unreachable, network_unreachable, prohibited]) = if listener.is_ipv4() {
        (
            "icmp",
            ["host-unreachable", "net-unreachable", "admin-prohibited"],
        )
    } else {
        (
            "icmpv6",
            ["addr-unreachable", "no-route", "admin-prohibited"],
        )
    };
    format!(
        "meta mark {} goto divert\n\
         meta mark {} meta l4proto tcp reject with tcp reset\n\
         iifname lo meta mark {{ {}, {}, {} }} meta l4proto tcp reject with tcp reset\n\
         meta mark {} reject with {icmp} type {host_unreachable}\n\
         meta mark {} reject with {icmp} type {network_unreachable}\n\
         meta mark {} reject with {icmp} type {prohibited}\n",
        marks.accepted(),
        marks.refused(),
        marks.host_unreachable(),
        marks.network_unreachable(),
        marks.prohibited(),
        marks.host_unreachable(),
        marks.network_unreachable(),
        marks.prohibited(),
    )
}

/// Returns the chains that divert packets to the listener. Its address may be one that other hosts can't reach, such as
/// loopback. If [`SYN_SET`] is full, a SYN bypasses the relay, because its handshake might not complete here. A SYN
/// that was held still goes to the listener, where its upstream leg waits.
fn divert(listener: SocketAddr, intercept: &InterceptConfig) -> String {
    let to = if listener.ip().is_unspecified() {
        format!(":{}", listener.port())
    } else {
        listener.to_string()
    };
    let diverted = Marks::of(listener.port()).diverted();
    let key = connection_key(listener);
    let (pass_lost, when_full) = if intercept.verify {
        (String::new(), "goto deliver")
    } else {
        (pass_lost(listener), "return")
    };
    format!(
        "chain deliver {{\n\
         meta l4proto tcp tproxy to {to} meta mark set {diverted} accept\n}}\n\
         chain divert {{\n\
         {pass_lost}\
         update @{SYN_SET} {{ {key} }} counter name {DIVERTED_SYNS} goto deliver\n\
         {when_full}\n}}\n"
    )
}

/// Returns the chain that sends the packets to intercept to the chain `target`. Each network and range has its own
/// rule, because a set would refuse ranges that overlap. Connections that can't be split bypass the relay: those with
/// signed segments (RFC 2385, RFC 5925; BGP) or IPsec authentication, and subflows that join an MPTCP connection (RFC
/// 8684 §3.2). Link-local and cloud metadata services bypass it too, since they would take the relay's host for the
/// client. TCP options have numbers, because older versions of nft have no names for them.
fn select(name: &str, target: &str, listener: SocketAddr, intercept: &InterceptConfig) -> String {
    const SIGNATURE: u8 = 19;
    const AUTHENTICATION: u8 = 29;
    /// The kind of the option, and its subtype in the upper half of the third byte.
    const JOIN: &str = "@30,16,4 1";
    let family = Family::of(listener.ip()).name();
    let link = if listener.is_ipv4() {
        "ip daddr 169.254.0.0/16 return"
    } else {
        "ip6 nexthdr ah return\nip6 daddr { fe80::/10, fd00:ec2::254 } return"
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
        rules(&intercept.targets, &format!("goto {target}")),
    )
}

/// Returns the chains that put downstream legs into a connection-tracking zone of their own. Upstream legs have the
/// same addresses and ports, and stay in the default zone, where NAT and stateful rules know them as connections of
/// this host. A packet that arrives over `lo` was tracked when it left, and a packet that others leave untracked stays
/// untracked. A held SYN that goes on to the relay carries the mark of its verdict.
///
/// Other programs may have transparent sockets too, so the mark of its socket identifies a downstream leg. During the
/// handshake and in TIME-WAIT, rules can't match this mark (net/netfilter/nft_socket.c), and the destination identifies
/// it.
fn zones(listener: SocketAddr, intercept: &InterceptConfig) -> String {
    let first_packets = if intercept.verify {
        verdict_marks(listener)
    } else {
        let pass_lost = pass_lost(listener);
        format!("{pass_lost}{SYN} {} jump select_zone\n", lease::CONDITION)
    };
    let key = connection_key(listener);
    let select = select("select_zone", "downstream_zone", listener, intercept);
    let icmp = icmp(listener);
    format!(
        "chain downstream_zone {{\n\
         ct zone set {DOWNSTREAM_ZONE}\n}}\n\
         {select}\
         chain zones {{ type filter hook prerouting priority raw + 10; policy accept;\n\
         iifname lo return\n\
         ct state untracked return\n\
         meta l4proto {{ tcp, {icmp} }} socket wildcard 0 socket mark {DOWNSTREAM_MARK} goto downstream_zone\n\
         meta l4proto {{ tcp, {icmp} }} socket mark != {DOWNSTREAM_MARK} return\n\
         {NOT_SYN} socket transparent 1 jump select_zone\n\
         {ACK} {key} @{ARRIVED_SET} goto downstream_zone\n\
         {first_packets}}}\n\
         chain zones_out {{ type filter hook output priority raw + 10; policy accept;\n\
         ct state untracked return\n\
         oifname != lo meta mark {DOWNSTREAM_MARK} goto downstream_zone\n}}\n"
    )
}

fn verdict_marks(listener: SocketAddr) -> String {
    let marks = Marks::of(listener.port());
    let all = [
        marks.accepted(),
        marks.refused(),
        marks.host_unreachable(),
        marks.network_unreachable(),
        marks.prohibited(),
    ];
    let all = all.map(|mark| mark.to_string()).join(", ");
    format!("meta mark {{ {all} }} goto downstream_zone\n")
}

/// Returns the chain that diverts replies to upstream legs whose source NAT has translated on the way out. Only in this
/// chain, after NAT, is their destination the client's address again.
fn translated(listener: SocketAddr) -> String {
    let diverted = Marks::of(listener.port()).diverted();
    format!(
        "chain translated {{ type filter hook prerouting priority dstnat + 5; policy accept;\n\
         ct status snat meta l4proto {{ tcp, {} }} socket transparent 1 socket wildcard 0 meta mark set {diverted} accept\n}}\n",
        icmp(listener)
    )
}

/// Returns a further chain for the table, with one rule; the kernel must have nft's `dup`, and the table must exist.
/// Upstream legs have the client's address, so this host sends its own ICMP errors about them to the client. The chain
/// copies these errors to the upstream legs. A neighbor that does not answer causes such an error.
pub(crate) fn copied_errors(listener: SocketAddr) -> String {
    let (family, table) = (Family::of(listener.ip()).name(), table(listener.port()));
    let (errors, host) = if listener.is_ipv4() {
        ("icmp type destination-unreachable", "127.0.0.1")
    } else {
        ("icmpv6 type destination-unreachable", "::1")
    };
    format!(
        "add chain {family} {table} copied_errors {{ type filter hook output priority filter; policy accept; }}\n\
         add rule {family} {table} copied_errors oifname != lo {errors} dup to {host}\n"
    )
}

/// Returns the number of rules that a [`script`] adds. Each is a line of its own.
pub(crate) fn count(script: &str) -> usize {
    const OTHERS: [&str; 6] = ["table ", "delete ", "set ", "counter ", "chain ", "}"];
    let is_rule = |line: &&str| !OTHERS.iter().any(|other| line.starts_with(other));
    script.lines().filter(is_rule).count()
}

fn icmp(listener: SocketAddr) -> &'static str {
    if listener.is_ipv4() { "icmp" } else { "icmpv6" }
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

/// Returns the chains that hold SYNs. They come before the chain that diverts, because a packet with a verdict
/// continues after the chain that queued it. They also come before connection tracking: only a SYN that goes on to the
/// relay is tracked as part of a downstream leg.
fn hold_chains(queue: Option<u16>, listener: SocketAddr) -> String {
    let pass_lost = pass_lost(listener);
    let rule = queue.map(|number| format!("queue num {number} bypass\n"));
    format!(
        "chain {QUEUE_CHAIN} {{\n\
         {}}}\n\
         chain hold_syns {{ type filter hook prerouting priority raw - 5; policy accept;\n\
         {pass_lost}\
         {SYN} {} jump select\n}}\n",
        rule.unwrap_or_default(),
        lease::CONDITION
    )
}

/// Returns the chains for this host's own connections. Their packets are marked, so that the kernel routes them again,
/// to `lo`, and they arrive from there. Connection tracking assigns later packets to their connection; untracked
/// connections bypass the relay.
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
         chain divert_own {{\n\
         ct mark set {diverted} meta mark set {rerouted} accept\n}}\n",
        lease::CONDITION
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intercept(target: &str) -> InterceptConfig {
        InterceptConfig {
            targets: vec![target.parse().unwrap()],
            ..InterceptConfig::default()
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
        let to = |listener: &str| divert(listener.parse().unwrap(), &InterceptConfig::default());
        assert!(to("0.0.0.0:3129").contains("tproxy to :3129 "));
        assert!(to("[::1]:3129").contains("tproxy to [::1]:3129 "));
    }

    #[test]
    fn selects_nothing_without_the_lease() {
        for (local, verify) in [(false, false), (true, true), (true, false)] {
            let intercept = InterceptConfig {
                local,
                verify,
                keeps_source: true,
                ..intercept("10.0.0.0/8")
            };
            let script = script("0.0.0.0:3129".parse().unwrap(), &intercept, Some(1), true);
            // A packet that already has a socket of the relay needs no lease.
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
