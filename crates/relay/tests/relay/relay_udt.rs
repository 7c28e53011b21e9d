// SPDX-License-Identifier: MIT OR Apache-2.0
//! Legs over UDT, through a link that loses packets. Tests that also apply to TCP legs are in
//! `relay_tls.rs`.

use longhaul_testnet::link_process::{Testbed, may_use_namespaces};
use longhaul_testnet::relay_process::{
    Relay, accept, assert_reset, connect, read_array, receive, send, transfer_both_ways,
};
use serde_json::Value;
use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
};

/// Two relays at the ends of a link, and a server behind one of them.
struct Hosts {
    bed: Testbed,
    near: Relay,
    far: Relay,
    server: TcpListener,
    directory: tempfile::TempDir,
}

/// Starts the hosts. `near` and `far` are additions to their configurations.
fn hosts(name: &str, shape: &[&str], near: &str, far: &str) -> Hosts {
    let bed = Testbed::start(name, ["10.89.0.1/30", "10.89.0.2/30"], shape);
    let (left, right) = (bed.left_address(), bed.right_address());
    let directory = tempfile::tempdir().unwrap();
    let made = Command::new(longhaul_testprograms::longhaul())
        .args(["relay", "--make-certificates"])
        .arg(directory.path())
        .args(["near", "far"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let leg = |owner| format!("transport = 'udt'\n{}", tls(directory.path(), owner));
    let server = bed.right.run(|| TcpListener::bind((right, 0))).unwrap();
    let text = format!("{}{}{far}", listener("convert", right, ""), leg("far"));
    let far = bed
        .right
        .run(|| Ok(Relay::start_with_config(&text, 1)))
        .unwrap();
    let destination = format!("destination = '{}'\n", server.local_addr().unwrap());
    let text = format!(
        "{}[counters]\nfile = '{}'\n[[route]]\nvia = ['far']\n[peer.far]\naddress = '{}'\n{}{near}",
        listener("forward", left, &destination),
        counters(&directory).display(),
        far.address("convert"),
        leg("near"),
    );
    let near = bed
        .left
        .run(|| Ok(Relay::start_with_config(&text, 1)))
        .unwrap();
    Hosts {
        bed,
        near,
        far,
        server,
        directory,
    }
}

fn listener(kind: &str, at: IpAddr, more: &str) -> String {
    let at = SocketAddr::from((at, 0));
    format!("[[listener]]\nkind = '{kind}'\naddress = '{at}'\nallow_from = ['10.0.0.0/8']\n{more}")
}

fn tls(directory: &Path, owner: &str) -> String {
    let directory = directory.display();
    format!(
        "tls = {{ ca = '{directory}/ca.pem', certificate = '{directory}/{owner}.pem', \
         key = '{directory}/{owner}-key.pem' }}\n"
    )
}

fn counters(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("counters")
}

impl Hosts {
    fn pair(&self) -> [std::net::TcpStream; 2] {
        // `lo` is down in a new namespace, but a host's own addresses are reached over it.
        let up = || {
            Command::new("ip")
                .args(["link", "set", "lo", "up"])
                .status()
        };
        self.bed.left.run(up).unwrap();
        self.bed.right.run(up).unwrap();
        let to = self.near.address("forward");
        let client = self.bed.left.run(|| Ok(connect(to))).unwrap();
        [client, accept(&self.server)]
    }

    /// Stops the client-side relay and returns its record of its only connection.
    fn record(self) -> Value {
        let (status, log) = self.near.stop();
        assert!(status.success(), "{log}");
        let text = std::fs::read_to_string(counters(&self.directory)).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let mut records: Vec<Value> = lines.collect();
        records.retain(|record| record["record"] == "connection");
        assert_eq!(records.len(), 1, "{records:?}");
        records.remove(0)
    }
}

const LOSSY: [&str; 8] = [
    "--delay", "10ms", "--rate", "200mbit", "--loss", "0.3%", "--queue", "200p",
];

#[test]
fn delivers_all_bytes_over_lossy_link() {
    if !may_use_namespaces() {
        return;
    }
    for streams in ["", "streams = 3\n"] {
        let hosts = hosts("ru-loss", &LOSSY, streams, "");
        let [client, server] = hosts.pair();
        transfer_both_ways(&client, &server, 8);
        drop((client, server));
        let record = hosts.record();
        assert_eq!(record["ended"], "finished", "{record}");
        // Counters in the terms of TCP, as for other legs.
        let upstream = &record["upstream"];
        assert!(upstream["retransmits"].as_u64().unwrap() > 0, "{record}");
        assert!(upstream["rtt_us"].as_u64().unwrap() >= 20_000, "{record}");
        assert_eq!(record["bytes_up"], 8 << 20);
    }
}

/// A relay that stops delivers its bytes first. With UDT, the kernel would not deliver them after
/// the process has exited.
#[test]
fn delivers_bytes_in_flight_before_exit() {
    if !may_use_namespaces() {
        return;
    }
    let hosts = hosts("ru-stop", &LOSSY, "", "");
    let [client, mut server] = hosts.pair();
    send(&client, 1, 4);
    hosts.near.signal(rustix::process::Signal::TERM);
    receive(&server, 1, 4);
    server.write_all(b"and back").unwrap();
    drop(server);
    let mut received = String::new();
    (&client).read_to_string(&mut received).unwrap();
    assert_eq!(received, "and back");
    let (status, log) = hosts.near.wait();
    assert!(
        status.success() && log.contains("no connection reset"),
        "{log}"
    );
}

#[test]
fn detects_killed_relay() {
    if !may_use_namespaces() {
        return;
    }
    let profile = "profile = 'long'\n[profile.long]\nuser_timeout = '2s'\n";
    let hosts = hosts("ru-gone", &LOSSY, profile, "");
    let [mut client, mut server] = hosts.pair();
    client.write_all(b"x").unwrap();
    assert_eq!(read_array(&mut server), *b"x");
    hosts.far.signal(rustix::process::Signal::KILL);
    assert_reset(&mut client);
}

#[test]
fn connections_survive_reload() {
    if !may_use_namespaces() {
        return;
    }
    let hosts = hosts("ru-hup", &LOSSY, "", "");
    let [client, server] = hosts.pair();
    hosts.far.signal(rustix::process::Signal::HUP);
    hosts.far.wait_for_stderr("reloaded");
    transfer_both_ways(&client, &server, 1);
    let [client, server] = hosts.pair();
    transfer_both_ways(&client, &server, 1);
}
