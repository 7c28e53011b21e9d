// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that run compiled filters on packets, and compare them with tcpdump's programs.

use super::*;
use proptest::prelude::*;
use std::net::IpAddr;

const SNAPLEN: u32 = 128;

/// Header fields of a packet.
#[derive(Debug, Clone)]
struct Packet {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    ports: [u16; 2],
    /// Length of the IPv4 options in words of 32 bits.
    options: u8,
    fragment_offset: u16,
}

impl Packet {
    fn between(source: &str, destination: &str, protocol: u8, ports: [u16; 2]) -> Self {
        Self {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            protocol,
            ports,
            options: 0,
            fragment_offset: 0,
        }
    }

    fn ip(&self) -> Vec<u8> {
        let mut bytes = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut bytes = vec![0; 20 + 4 * usize::from(self.options)];
                bytes[0] = 0x45 + self.options;
                bytes[6..8].copy_from_slice(&self.fragment_offset.to_be_bytes());
                bytes[9] = self.protocol;
                bytes[12..16].copy_from_slice(&source.octets());
                bytes[16..20].copy_from_slice(&destination.octets());
                bytes
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut bytes = vec![0; 40];
                bytes[0] = 0x60;
                bytes[6] = self.protocol;
                bytes[8..24].copy_from_slice(&source.octets());
                bytes[24..40].copy_from_slice(&destination.octets());
                bytes
            }
            mixed => panic!("{mixed:?}"),
        };
        bytes.extend(self.ports.iter().flat_map(|port| port.to_be_bytes()));
        bytes.resize(bytes.len() + 30, 0);
        bytes
    }

    fn ethernet(&self) -> Vec<u8> {
        let ethertype: u16 = if self.source.is_ipv4() { 0x800 } else { 0x86dd };
        let mut bytes = vec![2; 12];
        bytes.extend(ethertype.to_be_bytes());
        bytes.extend(self.ip());
        bytes
    }
}

/// Whether `text` matches the packet. Checks that the result is the same with and without an Ethernet header.
#[track_caller]
fn matches(text: &str, packet: &Packet) -> bool {
    let run =
        |layer, bytes: &[u8]| interpreter::run(&compile(text, layer, SNAPLEN).unwrap(), bytes);
    let captured = run(LinkLayer::Ethernet, &packet.ethernet());
    assert_eq!(captured, run(LinkLayer::None, &packet.ip()), "{text}");
    assert!(
        [0, SNAPLEN].contains(&captured),
        "{text} captures {captured}"
    );
    captured == SNAPLEN
}

fn iperf_packet() -> Packet {
    Packet::between("10.9.0.1", "10.9.0.2", 6, [40_000, 5201])
}

fn iperf_packet_ip6() -> Packet {
    Packet::between("fd00::1", "fd00:9::2", 6, [40_000, 5201])
}

#[test]
fn matches_single_primitives() {
    for packet in [iperf_packet(), iperf_packet_ip6()] {
        for text in [
            "",
            "tcp",
            "port 5201",
            "tcp port 5201",
            "dst port 5201",
            "src port 40000",
            "tcp portrange 5200-5202",
            "tcp dst portrange 5201-65535",
            "not udp",
            "! udp port 5201",
        ] {
            assert!(matches(text, &packet), "{text}");
        }
        for text in [
            "udp",
            "sctp",
            "icmp",
            "icmp6",
            "udp port 5201",
            "src port 5201",
            "port 5202",
            "portrange 5202-39999",
            "not port 5201",
        ] {
            assert!(!matches(text, &packet), "{text}");
        }
    }
}

#[test]
fn matches_addresses_and_networks() {
    let packet = iperf_packet();
    for text in [
        "ip",
        "10.9.0.1",
        "host 10.9.0.2",
        "src host 10.9.0.1",
        "src 10.9.0.1",
        "ip dst host 10.9.0.2",
        "net 10.0.0.0/8",
        "dst net 10.9.0.2/31",
        "net 0.0.0.0/0",
    ] {
        assert!(matches(text, &packet), "{text}");
    }
    for text in ["ip6", "dst host 10.9.0.1", "net 10.8.0.0/16", "net ::/0"] {
        assert!(!matches(text, &packet), "{text}");
    }
    let packet = iperf_packet_ip6();
    for text in [
        "ip6",
        "host fd00::1",
        "dst net fd00:9::/32",
        "net ::/0",
        "net fd00::/9",
    ] {
        assert!(matches(text, &packet), "{text}");
    }
    for text in ["ip", "src net fd00:9::/32", "host fd00::3", "net 0.0.0.0/0"] {
        assert!(!matches(text, &packet), "{text}");
    }
}

#[test]
fn and_and_or_have_equal_precedence() {
    let packet = iperf_packet();
    assert!(!matches("tcp or udp and port 80", &packet));
    assert!(matches("tcp or (udp and port 80)", &packet));
    assert!(matches("not (udp or port 80) && host 10.9.0.1", &packet));
    assert!(matches("not not tcp", &packet));
}

#[test]
fn bare_values_take_the_qualifiers_before_them() {
    let packet = iperf_packet();
    assert!(matches("tcp port 80 or 5201", &packet));
    assert!(!matches("udp port 80 or 5201", &packet));
    assert!(matches("dst host 10.0.0.1 or 10.9.0.2", &packet));
    assert!(!matches("src host 10.0.0.1 or 10.9.0.2", &packet));
}

#[test]
fn finds_ports_after_options_and_in_first_fragments_only() {
    let mut packet = iperf_packet();
    packet.options = 3;
    assert!(matches("port 5201", &packet));
    packet.fragment_offset = 100;
    assert!(matches("tcp", &packet));
    assert!(!matches("port 5201", &packet));
    packet.fragment_offset = 0x2000;
    assert!(matches("port 5201", &packet));
}

#[test]
fn splits_jumps_over_more_than_255_instructions() {
    let ports: Vec<String> = (1..120).map(|port| format!("tcp port {port}")).collect();
    let text = format!("ip and ({} or tcp port 5201)", ports.join(" or "));
    assert!(compile(&text, LinkLayer::Ethernet, 1).unwrap().len() > 3 * 255);
    assert!(matches(&text, &iperf_packet()));
    let mut other = iperf_packet();
    other.ports = [119, 5202];
    assert!(matches(&text, &other));
    other.ports = [120, 5202];
    assert!(!matches(&text, &other));
}

#[test]
fn errors_name_the_wrong_word() {
    let error_of = |text: &str| {
        let error = compile(text, LinkLayer::Ethernet, SNAPLEN).unwrap_err();
        error.to_string()
    };
    for (text, words) in [
        ("tcp prot 5201", &["\"prot\"", "and, or"][..]),
        ("port", &["the end", "0 to 65535"]),
        ("port http", &["\"http\"", "port number"]),
        ("port 65536", &["65536"]),
        ("portrange 9-5", &["\"9-5\""]),
        ("host example.org", &["example.org", "no name"]),
        ("net 10.0.0.1/8", &["10.0.0.1/8", "PREFIX"]),
        ("net 10.0.0.0/33", &["10.0.0.0/33"]),
        ("(tcp", &["the end", ")"]),
        ("tcp and", &["the end"]),
        ("ip6 host 10.0.0.1", &["10.0.0.1", "version"]),
        ("tcp host 10.0.0.1", &["port or portrange"]),
        ("ip port 80", &["tcp, udp or sctp"]),
        ("vlan 3", &["\"vlan\""]),
    ] {
        let error = error_of(text);
        for word in words {
            assert!(error.contains(word), "{text}: {word} is not in {error}");
        }
    }
    assert_eq!(
        compile(&"(".repeat(1_000_000), LinkLayer::Ethernet, 1),
        Err(FilterError::TooDeep)
    );
    let many = vec!["port 1"; 1_000].join(" or ");
    let too_long = compile(&many, LinkLayer::Ethernet, 1);
    assert!(matches!(too_long, Err(FilterError::TooLong { .. })));
}

#[test]
fn limits_the_snaplen_of_a_tcpdump_listing() {
    // tcpdump -ddd ip
    let listing = "4\n40 0 0 12\n21 0 1 2048\n6 0 0 262144\n6 0 0 0\n";
    let program = parse_listing(listing, 96).unwrap();
    assert_eq!(interpreter::run(&program, &iperf_packet().ethernet()), 96);
    assert_eq!(
        interpreter::run(&program, &iperf_packet_ip6().ethernet()),
        0
    );
    assert_eq!(parse_listing(&listing.replace('\n', ","), 96), Ok(program));
    for invalid in [
        "",
        "x",
        "2\n6 0 0 0",
        "1\n6 0 0",
        "1\n6 0 0 0 0",
        "1\n6 256 0 0",
        "0",
    ] {
        assert!(parse_listing(invalid, 96).is_err(), "{invalid:?}");
    }
}

/// Program that tcpdump compiles for a filter; `None` if tcpdump is not installed.
fn tcpdump_program(text: &str) -> Option<Vec<Instruction>> {
    let words = ["-y", "EN10MB", "-ddd", "-O", text];
    let output = std::process::Command::new("tcpdump")
        .args(words)
        .output()
        .ok()?;
    assert!(
        output.status.success(),
        "tcpdump refuses {text}: {output:?}"
    );
    Some(parse_listing(&String::from_utf8(output.stdout).unwrap(), SNAPLEN).unwrap())
}

#[test]
fn matches_the_same_packets_as_tcpdump() {
    let filters = [
        "tcp",
        "tcp port 5201",
        "port 5201 or 80",
        "udp src portrange 50-60 and not host 10.9.0.1",
        "ip6 and dst net fd00:9::/32",
        "not (src net 10.9.0.0/16 or tcp) or icmp6",
        "tcp or udp and port 53",
        "src 10.9.0.1 or 10.9.0.3 && dst port 5201",
    ];
    if !longhaul_testbed::skip::require(tcpdump_program("tcp").is_some(), "tcpdump") {
        return;
    }
    let addresses = ["10.9.0.1", "10.9.0.2", "10.9.0.3", "10.8.0.1"];
    let addresses6 = ["fd00::1", "fd00:9::2"];
    for text in filters {
        let (ours, theirs) = (
            compile(text, LinkLayer::Ethernet, SNAPLEN).unwrap(),
            tcpdump_program(text).unwrap(),
        );
        for addresses in [&addresses[..], &addresses6] {
            for packet in packets(addresses) {
                let bytes = packet.ethernet();
                assert_eq!(
                    interpreter::run(&ours, &bytes),
                    interpreter::run(&theirs, &bytes),
                    "{text}: {packet:?}"
                );
            }
        }
    }
}

/// Packets between every pair of addresses, of several protocols and ports, also fragments and with options.
fn packets(addresses: &[&str]) -> Vec<Packet> {
    let mut all = Vec::new();
    for source in addresses {
        for destination in addresses {
            for protocol in [1, 6, 17, 44, 58, 132] {
                for ports in [[5201, 9], [9, 5201], [55, 80], [53, 53]] {
                    let plain = Packet::between(source, destination, protocol, ports);
                    let mut later_fragment = plain.clone();
                    later_fragment.fragment_offset = 7;
                    let mut with_options = plain.clone();
                    with_options.options = 2;
                    all.extend([plain, later_fragment, with_options]);
                }
            }
        }
    }
    all
}

proptest! {
    #[test]
    fn never_panics_on_any_text(text in "([a-z0-9 ()!./:-]|tcp|port|host|net|not|and|or|src){0,60}") {
        let _ = compile(&text, LinkLayer::Ethernet, SNAPLEN);
        let _ = parse_listing(&text, SNAPLEN);
    }
}
