// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every way in and every way out, with connections made on demand.

use crate::{
    relay_process::{self, PATIENCE, Relay},
    testbed::Testbed,
};
use host::process::inside;
use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
};
use wire::destination::Destination;

pub(crate) const LISTENERS: [&str; 5] = ["socks5", "http", "forward", "convert", "transparent"];

pub(crate) const ORIGIN: &str = "10.77.2.1:8080";
/// Nobody listens there.
pub(crate) const REFUSING: &str = "10.77.2.1:81";
/// SYNs are lost on the way.
pub(crate) const SILENT: &str = "10.77.2.9:80";
/// The relay's routes say so (EHOSTUNREACH).
pub(crate) const HOST_UNREACHABLE: &str = "10.77.3.1:80";
/// The relay has no route at all (ENETUNREACH).
pub(crate) const NETWORK_UNREACHABLE: &str = "192.0.2.1:80";

/// One forward listener each, from port 8000 on.
const DESTINATIONS: [&str; 5] = [
    ORIGIN,
    REFUSING,
    SILENT,
    HOST_UNREACHABLE,
    NETWORK_UNREACHABLE,
];

/// A relay with every listener in front of others, a testbed for them, and an origin server.
pub(crate) struct Chain {
    pub(crate) testbed: Testbed,
    /// The nearest first.
    pub(crate) relays: Vec<Relay>,
    pub(crate) origin: TcpListener,
}

impl Chain {
    pub(crate) fn new(peers: usize, mode: &str) -> Self {
        let testbed = Testbed::new();
        let start = |args: String| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
            command.arg("relay").args(args.split(' '));
            command.args(["--mode", mode, "--connect-timeout", "3s", "--grace", "3s"]);
            inside(&mut command, &testbed.relay);
            Relay::spawn(command)
        };
        let hops = (1..=peers).map(|hop| format!("127.0.0.1:{}", 5200 + hop));
        let far: Vec<_> = hops
            .clone()
            .map(|hop| start(format!("--convert {hop}")))
            .collect();
        let mut args = "--socks5 10.77.1.2:1080 --http 10.77.1.2:3128 --convert 10.77.1.2:5124 \
                        --transparent 0.0.0.0:3129 --allow-from 10.77.1.0/24"
            .to_owned();
        for (port, destination) in (8000..).zip(DESTINATIONS) {
            args += &format!(" --forward 10.77.1.2:{port}={destination}");
        }
        args.extend(hops.map(|hop| format!(" --peer {hop}")));
        let mut relays = vec![start(args)];
        relays.extend(far);
        let origin = testbed.server.run(|| TcpListener::bind(ORIGIN)).unwrap();
        Self {
            testbed,
            relays,
            origin,
        }
    }

    /// A client's connection, once the relay has granted it; or its refusal.
    pub(crate) fn dial(&self, kind: &str, to: &str) -> Result<TcpStream, u16> {
        let destination: SocketAddr = to.parse().unwrap();
        let port = match kind {
            "socks5" => 1080,
            "http" => 3128,
            "convert" => 5124,
            _ => 8000 + DESTINATIONS.iter().position(|d| *d == to).unwrap() as u16,
        };
        let way_in = match kind {
            "transparent" => destination,
            _ => SocketAddr::from(([10, 77, 1, 2], port)),
        };
        let dial = || {
            Ok(relay_process::dial(
                kind,
                way_in,
                &Destination::Address(destination),
            ))
        };
        self.testbed.client.run(dial).unwrap()
    }

    /// A client and its server.
    pub(crate) fn connect(&self, kind: &str) -> (TcpStream, TcpStream) {
        let client = self.dial(kind, ORIGIN).unwrap();
        (client, accept(&self.origin))
    }
}

/// A chain, one of its listeners, and which end plays the first part.
pub(crate) struct Way<'a> {
    pub(crate) chain: &'a Chain,
    pub(crate) kind: &'a str,
    pub(crate) upward: bool,
}

impl Way<'_> {
    pub(crate) fn direction(&self) -> &'static str {
        if self.upward {
            "client to server"
        } else {
            "server to client"
        }
    }

    /// A new connection's two ends, the first part first.
    pub(crate) fn open(&self) -> (TcpStream, TcpStream) {
        let (client, server) = self.chain.connect(self.kind);
        if self.upward {
            (client, server)
        } else {
            (server, client)
        }
    }
}

/// The next client of an origin server.
pub(crate) fn accept(origin: &TcpListener) -> TcpStream {
    let mut accepted = None;
    origin.set_nonblocking(true).unwrap();
    wait_until("a connection to the origin", || {
        accepted = origin.accept().ok();
        accepted.is_some()
    });
    let (stream, _) = accepted.expect("waited for");
    stream.set_nonblocking(false).unwrap();
    relay_process::patient(&stream);
    stream
}

/// Waits until `held` holds, and gives up after [`PATIENCE`].
pub(crate) fn wait_until(what: &str, mut held: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !held() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Whether an error of a socket's peer is a RST.
pub(crate) fn is_reset(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}
