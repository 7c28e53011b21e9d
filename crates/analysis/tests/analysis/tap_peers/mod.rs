// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul tap analyze` beside tcptrace and tshark on the same files, made by real programs over
//! emulated paths. Where rules are the same, figures are equal; where they are not, the difference is
//! what docs/tap-peers.md says, counted packet by packet, and nothing else.
//!
//! Captures that are kept are the same each time; real programs make other traffic each time.

mod ours;
mod out_of_order;
mod ranges;
mod rules;
mod ssh;
mod tcptrace;
mod traffic;
mod tshark;

use longhaul_testnet::link_process::may_use_namespaces;
use rules::Packets;
use std::{net::IpAddr, path::Path, process::Command};
use traffic::{Program, Traffic};

/// In `tests/captures`.
const KEPT: [&str; 22] = [
    "losses-sender.pcap",
    "losses-receiver.pcap",
    "reordered-ipv6.pcap",
    "super-packets.pcap",
    "a-byte-sent-again.pcap",
    "a-late-ack-ipv6.pcap",
    "a-probe-of-the-tail.pcap",
    "a-tail-lost-before-the-tap.pcap",
    "reset-acknowledges.pcap",
    "window-closed-before-a-probe.pcap",
    "vendor/tcpdump/bgp-4byte-asn.pcap",
    "vendor/tcpdump/dns_tcp.pcap",
    "vendor/tcpdump/mptcp-v0.pcap",
    "vendor/tcpdump/of10_p3295.pcap",
    "vendor/tcpdump/of10_s4810.pcap",
    "vendor/tcpdump/pptp.pcap",
    "vendor/tcpdump/resp_1_benchmark.pcap",
    "vendor/tcpdump/resp_3_malicious.pcap",
    "vendor/tcpdump/ssh.pcap",
    "vendor/tcpdump/tfo-5c1fa7f9ae91.pcap",
    "vendor/tcpdump/whois.pcap",
    "vendor/tcpdump/zmtp1.pcap",
];

/// Who sends, and to whom.
type Way = ((IpAddr, u16), (IpAddr, u16));

/// Whether these programs are there. If not, the test fails, or is skipped with ALLOW_SKIP=1.
fn have(tools: &[&str]) -> bool {
    let is_there = |tool: &str| {
        Command::new("which")
            .arg(tool)
            .output()
            .unwrap()
            .status
            .success()
    };
    let missing: Vec<_> = tools.iter().filter(|tool| !is_there(tool)).collect();
    longhaul_testbed::skip::unless(missing.is_empty(), format!("{missing:?}"))
}

fn all_there() -> bool {
    let tools = ["tcptrace", "tshark", "tcpdump", "iperf3", "nginx", "curl"];
    have(&tools) && may_use_namespaces()
}

/// Whether there are users besides root, as sshd wants: a user namespace has often none.
fn may_be_another() -> bool {
    let users = std::fs::read_to_string("/proc/self/uid_map").unwrap();
    let may = users.split_whitespace().nth(2) != Some("1");
    longhaul_testbed::skip::unless(may, "two users for sshd, where this user namespace has one")
}

/// All three on one file.
fn compare(file: &Path, super_packets: bool) {
    let ours = ours::read(file);
    let tshark = tshark::read(file);
    let tcptrace = tcptrace::read(file);
    assert!(!ours.is_empty() && ours.keys().eq(tshark.keys()));
    for (way, ours) in &ours {
        let name = format!("{} {way:?}", file.display());
        let packets = Packets {
            sent: &tshark[way],
            answers: &tshark[&(way.1, way.0)],
        };
        rules::beside_tshark(&name, ours, packets.sent);
        let tcptrace = &tcptrace[way];
        rules::beside_tcptrace(&name, ours, tcptrace, &packets, super_packets);
    }
}

fn agree(traffic: &Traffic<'_>) {
    if !all_there() {
        return;
    }
    // Captures that they disagree on stay, to be looked at.
    let directory = tempfile::tempdir().unwrap().keep();
    for file in traffic.capture(&directory) {
        compare(&file, traffic.has_super_packets());
    }
    std::fs::remove_dir_all(directory).unwrap();
}

/// Those of `tests/captures`, and what `TAP_PEERS_CAPTURES` names besides (with colons between). Nobody needs
/// to be root for them.
#[test]
fn captures_that_are_kept() {
    if !have(&["tcptrace", "tshark"]) {
        return;
    }
    let place = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures"));
    let also = std::env::var_os("TAP_PEERS_CAPTURES").unwrap_or_default();
    let kept = KEPT.map(|name| place.join(name));
    let also = std::env::split_paths(&also).filter(|file| file.is_file());
    for file in kept.into_iter().chain(also) {
        let name = file.file_name().unwrap().to_string_lossy();
        compare(&file, name.starts_with("super-packets"));
    }
}

#[test]
fn losses_of_an_upload() {
    agree(&Traffic {
        name: "peers-loss",
        addresses: ["10.9.21.1/30", "10.9.21.2/30"],
        link: &[
            "--delay",
            "10ms",
            "--rate",
            "50mbit",
            "--loss",
            "1%",
            "--no-offload",
        ],
        program: Program::Iperf3(&["-n", "2M"]),
    });
}

#[test]
fn reordering_of_a_download_over_ipv6() {
    agree(&Traffic {
        name: "peers-order",
        addresses: ["fd00:9:22::1/64", "fd00:9:22::2/64"],
        link: &[
            "--delay",
            "10ms",
            "--rate",
            "50mbit",
            "--reorder",
            "1%:3ms",
            "--no-offload",
        ],
        program: Program::Iperf3(&["-n", "2M", "-R"]),
    });
}

#[test]
fn a_reader_that_is_slower_than_the_path() {
    agree(&Traffic {
        name: "peers-slow",
        addresses: ["10.9.23.1/30", "10.9.23.2/30"],
        link: &["--delay", "5ms", "--rate", "100mbit", "--no-offload"],
        program: Program::Curl(&["--limit-rate", "800k"]),
    });
}

#[test]
fn losses_among_super_packets() {
    agree(&Traffic {
        name: "peers-super",
        addresses: ["10.9.24.1/30", "10.9.24.2/30"],
        link: &["--delay", "5ms", "--rate", "50mbit", "--loss", "0.5%"],
        program: Program::Curl(&[]),
    });
}

#[test]
fn ssh_sends_a_file_and_lines() {
    if !have(&["sshd", "ssh", "ssh-keygen"]) || !may_be_another() {
        return;
    }
    agree(&Traffic {
        name: "peers-ssh",
        addresses: ["10.9.25.1/30", "10.9.25.2/30"],
        link: &[
            "--delay",
            "5ms",
            "--rate",
            "50mbit",
            "--loss",
            "0.5%",
            "--no-offload",
        ],
        program: Program::Ssh,
    });
}
