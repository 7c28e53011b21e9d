// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every way in and every way out, with connections made on demand.

use longhaul_protocol::destination::Destination;
use longhaul_testnet::{
    relay_process::{PATIENCE, Relay},
    relay_testbed::{BOTH, Family, Testbed, ip, set},
};
use std::{
    fmt::Write as _,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
};

pub(crate) const LISTENERS: [&str; 5] = ["socks5", "http", "forward", "convert", "transparent"];

/// Where a client may want to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    Origin,
    /// Nobody listens there.
    Refusing,
    /// SYNs are lost on the way.
    Silent,
    /// The relay's routes say so (EHOSTUNREACH).
    HostUnreachable,
    /// The relay has no route at all (ENETUNREACH).
    NetworkUnreachable,
}

/// One forward listener each, from port 8000 on.
const GOALS: [Goal; 5] = [
    Goal::Origin,
    Goal::Refusing,
    Goal::Silent,
    Goal::HostUnreachable,
    Goal::NetworkUnreachable,
];

impl Goal {
    pub(crate) fn address(self, family: &Family) -> SocketAddr {
        match self {
            Self::Origin => family.at(8080),
            Self::Refusing => family.at(81),
            Self::Silent => (family.nobody, 80).into(),
            Self::HostUnreachable => (unreachable(family), 80).into(),
            Self::NetworkUnreachable => (family.nowhere, 80).into(),
        }
    }
}

/// In the network that [`ROUTER`] calls unreachable.
fn unreachable(family: &Family) -> IpAddr {
    let (v4, v6) = ("10.77.3.1", "fd77:3::1");
    let text = if family.server.is_ipv4() { v4 } else { v6 };
    text.parse().unwrap()
}

/// A neighbour of each family that never answers, and a network behind which nobody is.
const ROUTER: &str = "neighbour add 10.77.2.9 lladdr 02:00:00:00:00:09 dev far nud permanent
neighbour add fd77:2::9 lladdr 02:00:00:00:00:09 dev far nud permanent
route add unreachable 10.77.3.0/24
-6 route add unreachable fd77:3::/64";

/// What one socket buffer may grow to: small enough that a stalled connection is full soon.
pub(crate) const BUFFER_MAX: u64 = 1 << 20;

/// A testbed whose router forwards nothing: what arrives was relayed.
pub(crate) fn testbed() -> Testbed {
    let bed = Testbed::new("conform");
    bed.divert();
    ip(&bed.router, ROUTER);
    set(&bed.router, "net.ipv4.ip_forward", "0");
    set(&bed.router, "net.ipv6.conf.all.forwarding", "0");
    let limits = format!("4096 131072 {BUFFER_MAX}");
    for netns in [&bed.client, &bed.router, &bed.server] {
        set(netns, "net.ipv4.tcp_rmem", &limits);
        set(netns, "net.ipv4.tcp_wmem", &limits);
    }
    bed
}

/// How bytes get from relay to relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carry {
    Splice,
    Copy,
    /// TLS on the legs between relays, splice on the others.
    Tls,
    /// Splice, over [`STREAMS`] connections for each of a client's.
    Striped,
}

/// Connections that a striped leg consists of.
pub(crate) const STREAMS: u64 = 4;

/// A relay with every listener in front of others, a testbed for them, and an origin server.
pub(crate) struct Chain {
    pub(crate) testbed: Testbed,
    /// The nearest first.
    pub(crate) relays: Vec<Relay>,
    pub(crate) carry: Carry,
    origins: [TcpListener; 2],
    _files: tempfile::TempDir,
}

impl Chain {
    pub(crate) fn new(peers: usize, carry: Carry) -> Self {
        Self::patient(peers, carry, "3s")
    }

    /// Relays that give destinations and peers this time.
    pub(crate) fn patient(peers: usize, carry: Carry, connect_timeout: &str) -> Self {
        let testbed = testbed();
        let files = tempfile::tempdir().unwrap();
        write_files(files.path(), peers, carry);
        let mode = if carry == Carry::Copy {
            "copy"
        } else {
            "splice"
        };
        let start = |hop: usize, args: &[String], listeners| {
            let mut command = testbed.command(&["--mode", mode]);
            command.args(["--connect-timeout", connect_timeout, "--grace", "3s"]);
            command.arg("--config");
            command.arg(files.path().join(format!("hop{hop}.toml")));
            command.args(args);
            Relay::spawn_waiting(command, listeners)
        };
        let far: Vec<_> = (1..=peers).map(|hop| start(hop, &[], 1)).collect();
        let doors = doors();
        let listeners = doors.iter().filter(|arg| arg.starts_with("--")).count();
        let mut relays = vec![start(0, &doors, listeners)];
        relays.extend(far);
        let origins = BOTH.map(|family| testbed.listen(Goal::Origin.address(&family)));
        Self {
            testbed,
            relays,
            carry,
            origins,
            _files: files,
        }
    }

    /// A client's connection, once the relay has granted it; or its refusal.
    pub(crate) fn dial(&self, kind: &str, family: &Family, goal: Goal) -> Result<TcpStream, u16> {
        let destination = goal.address(family);
        let port = match kind {
            "socks5" => 1080,
            "http" => 3128,
            "convert" => 5124,
            _ => 8000 + GOALS.iter().position(|g| *g == goal).unwrap() as u16,
        };
        let way_in = match kind {
            "transparent" => destination,
            _ => (family.near, port).into(),
        };
        let to = Destination::Address(destination);
        let dial = || Ok(longhaul_testnet::relay_process::dial(kind, way_in, &to));
        self.testbed.client.run(dial).unwrap()
    }

    /// A client and its server.
    pub(crate) fn connect(&self, kind: &str, family: &Family) -> (TcpStream, TcpStream) {
        let client = self.dial(kind, family, Goal::Origin).unwrap();
        (client, accept(self.origin(family)))
    }

    /// The kernel's connections between a client and its server.
    pub(crate) fn sockets(&self) -> u64 {
        let between_relays = self.relays.len() as u64 - 1;
        let streams = if self.carry == Carry::Striped {
            STREAMS
        } else {
            1
        };
        2 + between_relays * streams
    }

    pub(crate) fn origin(&self, family: &Family) -> &TcpListener {
        &self.origins[usize::from(family.server.is_ipv6())]
    }
}

/// Every listener, for clients of both families.
fn doors() -> Vec<String> {
    let mut args = vec![];
    let mut door = |kind: &str, at: String| args.extend([format!("--{kind}"), at]);
    for family in &BOTH {
        let at = |port| SocketAddr::from((family.near, port)).to_string();
        door("socks5", at(1080));
        door("http", at(3128));
        door("convert", at(5124));
        for (port, goal) in (8000..).zip(GOALS) {
            door("forward", format!("{}={}", at(port), goal.address(family)));
        }
    }
    door("transparent", "0.0.0.0:3129".into());
    door("transparent", "[::]:3129".into());
    args
}

/// Both families in turn, each of them first in some chains.
fn address(hop: usize, carry: Carry) -> SocketAddr {
    let ipv6 = hop.is_multiple_of(2) == matches!(carry, Carry::Splice | Carry::Striped);
    let ip: IpAddr = match ipv6 {
        true => Ipv6Addr::LOCALHOST.into(),
        false => Ipv4Addr::LOCALHOST.into(),
    };
    (ip, 5200 + hop as u16).into()
}

/// Certificates of `hop0`, `hop1`…, who trust each other.
pub(crate) fn make_certificates(directory: &Path, peers: usize) {
    let mut command = Command::new(longhaul_testbed::longhaul());
    command
        .args(["relay", "--make-certificates"])
        .arg(directory);
    command.args((0..=peers).map(|hop| format!("hop{hop}")));
    assert!(command.output().unwrap().status.success(), "{command:?}");
}

/// The configuration's line for a listener or peer of one of them.
pub(crate) fn tls(directory: &Path, hop: usize) -> String {
    let at = directory.display();
    format!(
        "tls = {{ ca = '{at}/ca.pem', certificate = '{at}/hop{hop}.pem', \
         key = '{at}/hop{hop}-key.pem' }}\n"
    )
}

/// `hop0.toml` of the relay next to the client, `hop1.toml` of the next one…
fn write_files(directory: &Path, peers: usize, carry: Carry) {
    if carry == Carry::Tls {
        make_certificates(directory, peers);
    }
    let tls = |hop| match carry {
        Carry::Tls => tls(directory, hop),
        _ => String::new(),
    };
    for hop in 0..=peers {
        let mut text = String::new();
        match hop {
            0 => text += "allow_from = ['10.77.1.0/24', 'fd77:1::/64']\n",
            _ => {
                let at = address(hop, carry);
                let listener = "[[listener]]\nkind = 'convert'";
                write!(text, "{listener}\naddress = '{at}'\n{}", tls(hop)).unwrap();
            }
        }
        for next in hop + 1..=peers {
            let at = address(next, carry);
            write!(text, "[peer.hop{next}]\naddress = '{at}'\n{}", tls(hop)).unwrap();
            if carry == Carry::Striped {
                writeln!(text, "streams = {STREAMS}").unwrap();
            }
        }
        if hop == 0 && peers > 0 {
            let via: Vec<_> = (1..=peers).map(|hop| format!("'hop{hop}'")).collect();
            write!(text, "[[route]]\nvia = [{}]\n", via.join(", ")).unwrap();
        }
        std::fs::write(directory.join(format!("hop{hop}.toml")), text).unwrap();
    }
}

/// A chain, one of its listeners, and which end plays the first part.
pub(crate) struct Way<'a> {
    pub(crate) chain: &'a Chain,
    pub(crate) kind: &'a str,
    pub(crate) family: &'a Family,
    pub(crate) upward: bool,
}

impl Way<'_> {
    /// A new connection's two ends, the first part first.
    pub(crate) fn open(&self) -> (TcpStream, TcpStream) {
        let (client, server) = self.chain.connect(self.kind, self.family);
        if self.upward {
            (client, server)
        } else {
            (server, client)
        }
    }
}

impl std::fmt::Display for Way<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let direction = match self.upward {
            true => "client to server",
            false => "server to client",
        };
        write!(f, "{} from {}, {direction}", self.kind, self.family.client)
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
    longhaul_testnet::relay_process::patient(&stream);
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
