// SPDX-License-Identifier: MIT OR Apache-2.0
//! What takes more than loopback: TPROXY between a client, a relay and a server in network
//! namespaces, and clients that are strangers.

mod relay_process;

use host::netns::Netns;
use relay_process::{Relay, accept, exchange, may_use_namespaces};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, TcpListener, TcpStream},
    process::{Command, Stdio},
};

/// client – relay – server, one /30 each side, removed on drop.
struct Testbed {
    client: String,
    relay: String,
    server: String,
}

impl Testbed {
    fn new(name: &str) -> Self {
        let ns = |end: &str| format!("relay-{name}-{}-{end}", std::process::id());
        let bed = Self {
            client: ns("c"),
            relay: ns("r"),
            server: ns("s"),
        };
        for ns in bed.all() {
            ip(&["netns", "add", ns]);
            ip(&["-n", ns, "link", "set", "lo", "up"]);
        }
        bed.join(&bed.client, "10.77.1.1/30", "10.77.1.2/30");
        bed.join(&bed.server, "10.77.2.1/30", "10.77.2.2/30");
        ip(&[
            "-n",
            &bed.client,
            "route",
            "add",
            "default",
            "via",
            "10.77.1.2",
        ]);
        ip(&[
            "-n",
            &bed.server,
            "route",
            "add",
            "default",
            "via",
            "10.77.2.2",
        ]);
        bed.within(&["sysctl", "-q", "net.ipv4.ip_forward=1"]);
        bed
    }

    fn join(&self, end: &str, outer: &str, inner: &str) {
        let port = if end == self.client { "near" } else { "far" };
        ip(&[
            "-n",
            end,
            "link",
            "add",
            "eth0",
            "type",
            "veth",
            "peer",
            port,
            "netns",
            &self.relay,
        ]);
        for (ns, device, address) in [(end, "eth0", outer), (&self.relay, port, inner)] {
            ip(&["-n", ns, "address", "add", address, "dev", device]);
            ip(&["-n", ns, "link", "set", device, "up"]);
        }
    }

    /// The rules of docs/relay.md.
    fn divert(&self) {
        let rules = "table ip longhaul {
            chain divert {
                type filter hook prerouting priority mangle;
                meta l4proto tcp socket transparent 1 meta mark set 0x1 accept
                iifname near tcp dport 1-65535 tproxy to :3129 meta mark set 0x1 accept
            }
        }";
        let mut nft = Command::new("ip");
        nft.args(["netns", "exec", &self.relay, "nft", "-f", "-"])
            .stdin(Stdio::piped());
        let mut nft = nft.spawn().unwrap();
        nft.stdin
            .take()
            .unwrap()
            .write_all(rules.as_bytes())
            .unwrap();
        assert!(nft.wait().unwrap().success(), "nft");
        ip(&[
            "-n",
            &self.relay,
            "rule",
            "add",
            "fwmark",
            "1",
            "lookup",
            "100",
        ]);
        let local = [
            "route", "add", "local", "default", "dev", "lo", "table", "100",
        ];
        ip(&[&["-n", &self.relay], local.as_slice()].concat());
    }

    fn within(&self, command: &[&str]) {
        ip(&[&["netns", "exec", &self.relay], command].concat());
    }

    fn relay(&self, args: &[&str]) -> Relay {
        let mut command = Command::new("ip");
        let longhaul = env!("CARGO_BIN_EXE_longhaul");
        command
            .args(["netns", "exec", &self.relay, longhaul, "relay"])
            .args(args);
        Relay::spawn(command)
    }

    fn listen(&self) -> TcpListener {
        inside(&self.server, || TcpListener::bind("10.77.2.1:8080")).unwrap()
    }

    fn connect(&self, to: &str) -> io::Result<TcpStream> {
        inside(&self.client, || TcpStream::connect(to))
    }

    fn all(&self) -> [&str; 3] {
        [&self.client, &self.relay, &self.server]
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        for ns in self.all() {
            let _ = Command::new("ip").args(["netns", "delete", ns]).status();
        }
    }
}

fn inside<T: Send>(ns: &str, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    Netns::named(ns)?.run(work)
}

fn ip(args: &[&str]) {
    assert!(
        Command::new("ip").args(args).status().unwrap().success(),
        "ip {args:?}"
    );
}

fn source(server: &TcpStream) -> IpAddr {
    server.peer_addr().unwrap().ip()
}

#[test]
fn diverted_connections_reach_where_they_were_going() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("tproxy");
    bed.divert();
    let listener = bed.listen();
    for mode in ["splice", "copy"] {
        let _relay = bed.relay(&["--transparent", "0.0.0.0:3129", "--mode", mode]);
        let client = bed.connect("10.77.2.1:8080").unwrap();
        let server = accept(&listener);
        // The relay's own address: without --keep-source it is a party, not a wire.
        assert_eq!(source(&server), IpAddr::from([10, 77, 2, 2]));
        exchange(&client, &server, 4);
    }
}

#[test]
fn the_client_s_source_address_is_kept_on_demand() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("source");
    bed.divert();
    let listener = bed.listen();
    let _relay = bed.relay(&["--transparent", "0.0.0.0:3129", "--keep-source"]);
    let client = bed.connect("10.77.2.1:8080").unwrap();
    let server = accept(&listener);
    assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
    exchange(&client, &server, 4);
}

#[test]
fn a_connection_to_the_listener_itself_is_no_loop() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("loop");
    bed.divert();
    let _relay = bed.relay(&["--transparent", "0.0.0.0:3129"]);
    let mut client = bed.connect("10.77.1.2:3129").unwrap();
    let error = client.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_diverted_connection_through_a_peer() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("peer");
    bed.divert();
    let listener = bed.listen();
    let _far = bed.relay(&["--convert", "127.0.0.1:5124"]);
    let _near = bed.relay(&["--transparent", "0.0.0.0:3129", "--peer", "127.0.0.1"]);
    let client = bed.connect("10.77.2.1:8080").unwrap();
    exchange(&client, &accept(&listener), 4);
}

#[test]
fn strangers_are_turned_away_and_the_named_are_served() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("allow");
    let listener = bed.listen();
    let forward = ["--forward", "10.77.1.2:80=10.77.2.1:8080", "--allow-from"];
    let stranger = bed.relay(&[forward.as_slice(), &["192.0.2.0/24"]].concat());
    let mut refused = bed.connect("10.77.1.2:80").unwrap();
    assert_eq!(
        refused.read(&mut [0]).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    drop(stranger);
    let _relay = bed.relay(&[forward.as_slice(), &["10.77.1.0/30"]].concat());
    let client = bed.connect("10.77.1.2:80").unwrap();
    exchange(&client, &accept(&listener), 1);
}

#[test]
fn without_the_capability_it_says_which_and_exits_3() {
    if !may_use_namespaces() {
        return;
    }
    let longhaul = env!("CARGO_BIN_EXE_longhaul");
    let output = Command::new("timeout")
        .args([
            "20",
            "setpriv",
            "--bounding-set",
            "-net_admin,-net_raw",
            "--inh-caps",
            "-all",
            longhaul,
        ])
        .args(["relay", "--transparent", "127.0.0.1:0"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("CAP_NET_ADMIN"), "{said}");
}
