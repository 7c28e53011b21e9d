// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of `longhaul tap analyze` with tcptrace and tshark on the same files, made by real programs over
//! emulated paths. Figures with the same definition are equal. Where definitions differ, the difference is exactly the
//! one in docs/tap-peers.md, counted packet by packet.
//!
//! The stored captures are the same in each run; real programs make different traffic each time.

mod counts;
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

/// Stored captures in `tests/captures`.
const STORED_CAPTURES: [&str; 22] = [
    "losses-sender.pcap",
    "losses-receiver.pcap",
    "reordered-ipv6.pcap",
    "super-packets.pcap",
    "a-byte-retransmitted.pcap",
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

/// Direction of a connection: sender and receiver.
type Direction = ((IpAddr, u16), (IpAddr, u16));

/// Returns whether these programs are installed. If not, the test fails, or is skipped with ALLOW_SKIP=1.
fn has_programs(tools: &[&str]) -> bool {
    let is_there = |tool: &str| {
        Command::new("which")
            .arg(tool)
            .output()
            .unwrap()
            .status
            .success()
    };
    let missing: Vec<_> = tools.iter().filter(|tool| !is_there(tool)).collect();
    longhaul_testprograms::skip::require(missing.is_empty(), format!("{missing:?}"))
}

fn has_all_programs() -> bool {
    let tools = ["tcptrace", "tshark", "tcpdump", "iperf3", "nginx", "curl"];
    has_programs(&tools) && may_use_namespaces()
}

/// Returns whether there are users besides root, which sshd needs: a user namespace often has none.
fn has_other_users() -> bool {
    let users = std::fs::read_to_string("/proc/self/uid_map").unwrap();
    let may = users.split_whitespace().nth(2) != Some("1");
    longhaul_testprograms::skip::require(
        may,
        "two users for sshd, where this user namespace has one",
    )
}

/// Compares the three programs on one file.
fn compare(file: &Path, super_packets: bool) {
    let ours = ours::read(file);
    let tshark = tshark::read(file);
    let tcptrace = tcptrace::read(file);
    assert!(!ours.is_empty() && ours.keys().eq(tshark.keys()));
    for (direction, ours) in &ours {
        let name = format!("{} {direction:?}", file.display());
        let packets = Packets {
            sent: &tshark[direction],
            received: &tshark[&(direction.1, direction.0)],
        };
        rules::compare_with_tshark(&name, ours, packets.sent);
        let tcptrace = &tcptrace[direction];
        rules::compare_with_tcptrace(&name, ours, tcptrace, &packets, super_packets);
    }
}

fn assert_agreement(traffic: &Traffic<'_>) {
    if !has_all_programs() {
        return;
    }
    // Captures with differences are kept for inspection.
    let directory = tempfile::tempdir().unwrap().keep();
    for file in traffic.capture(&directory) {
        compare(&file, traffic.has_super_packets());
    }
    std::fs::remove_dir_all(directory).unwrap();
}

/// Compares the captures in `tests/captures`, and those in `TAP_PEERS_CAPTURES` (separated by colons). Needs no root.
/// Left out is the one that has each packet twice (D17).
#[test]
#[ignore = "needs tshark: make test-peers"]
fn agrees_on_stored_captures() {
    if !has_programs(&["tcptrace", "tshark"]) {
        return;
    }
    let captures = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures"));
    let additional = std::env::var_os("TAP_PEERS_CAPTURES").unwrap_or_default();
    let stored = STORED_CAPTURES.map(|name| captures.join(name));
    let additional = std::env::split_paths(&additional).filter(|file| file.is_file());
    let files = stored.into_iter().chain(additional);
    for file in files.filter(|file| !file.ends_with("pptp.pcap")) {
        let name = file.file_name().unwrap().to_string_lossy();
        compare(&file, name.starts_with("super-packets"));
    }
}

#[test]
#[ignore = "needs tshark: make test-peers"]
fn agrees_on_losses_of_an_upload() {
    assert_agreement(&Traffic {
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
#[ignore = "needs tshark: make test-peers"]
fn agrees_on_reordering_of_a_download_over_ipv6() {
    assert_agreement(&Traffic {
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
#[ignore = "needs tshark: make test-peers"]
fn agrees_on_a_slow_reader() {
    assert_agreement(&Traffic {
        name: "peers-slow",
        addresses: ["10.9.23.1/30", "10.9.23.2/30"],
        link: &["--delay", "5ms", "--rate", "100mbit", "--no-offload"],
        program: Program::Curl(&["--limit-rate", "800k"]),
    });
}

#[test]
#[ignore = "needs tshark: make test-peers"]
fn agrees_on_losses_of_super_packets() {
    assert_agreement(&Traffic {
        name: "peers-super",
        addresses: ["10.9.24.1/30", "10.9.24.2/30"],
        link: &["--delay", "5ms", "--rate", "50mbit", "--loss", "0.5%"],
        program: Program::Curl(&[]),
    });
}

#[test]
#[ignore = "needs tshark: make test-peers"]
fn agrees_on_ssh_transfer_and_typing() {
    if !has_programs(&["sshd", "ssh", "ssh-keygen"]) || !has_other_users() {
        return;
    }
    assert_agreement(&Traffic {
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
