// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chains of relays with every listener, and connections through them.

use longhaul_protocol::destination::Destination;
use longhaul_testnet::{
    relay_process::{Relay, TEST_TIMEOUT},
    relay_testbed::{Addresses, BOTH, Testbed, run_ip, set_sysctl},
};
use std::{
    fmt::Write as _,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
    time::Duration,
};

pub(crate) const LISTENERS: [&str; 5] = ["socks5", "http", "forward", "convert", "transparent"];

/// Kind of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DestinationKind {
    Origin,
    /// A closed port.
    Refusing,
    /// SYNs are lost.
    Silent,
    /// The relay's route is unreachable (EHOSTUNREACH).
    HostUnreachable,
    /// The relay has no route at all (ENETUNREACH).
    NetworkUnreachable,
}

/// Each kind has a forward listener, from port 8000 on.
const DESTINATION_KINDS: [DestinationKind; 5] = [
    DestinationKind::Origin,
    DestinationKind::Refusing,
    DestinationKind::Silent,
    DestinationKind::HostUnreachable,
    DestinationKind::NetworkUnreachable,
];

impl DestinationKind {
    pub(crate) fn address(self, family: &Addresses) -> SocketAddr {
        match self {
            Self::Origin => family.server_port(8080),
            Self::Refusing => family.server_port(81),
            Self::Silent => (family.unassigned, 80).into(),
            Self::HostUnreachable => (unreachable(family), 80).into(),
            Self::NetworkUnreachable => (family.unreachable, 80).into(),
        }
    }
}

/// Address in the network that [`ROUTER`] makes unreachable.
fn unreachable(family: &Addresses) -> IpAddr {
    let (v4, v6) = ("10.77.3.1", "fd77:3::1");
    let text = if family.server.is_ipv4() { v4 } else { v6 };
    text.parse().unwrap()
}

/// Routes and neighbours of the router: a neighbour of each family that never answers, and an
/// unreachable network.
const ROUTER: &str = "neighbour add 10.77.2.9 lladdr 02:00:00:00:00:09 dev far nud permanent
neighbour add fd77:2::9 lladdr 02:00:00:00:00:09 dev far nud permanent
route add unreachable 10.77.3.0/24
-6 route add unreachable fd77:3::/64";

/// Largest socket buffer: small, so that a stalled connection is soon full.
pub(crate) const BUFFER_MAX: u64 = 1 << 20;

/// Testbed whose router forwards nothing, so that all traffic is relayed.
pub(crate) fn testbed() -> Testbed {
    let bed = Testbed::new("conform");
    bed.install_divert_rules();
    run_ip(&bed.router, ROUTER);
    set_sysctl(&bed.router, "net.ipv4.ip_forward", "0");
    set_sysctl(&bed.router, "net.ipv6.conf.all.forwarding", "0");
    let limits = format!("4096 131072 {BUFFER_MAX}");
    for netns in [&bed.client, &bed.router, &bed.server] {
        set_sysctl(netns, "net.ipv4.tcp_rmem", &limits);
        set_sysctl(netns, "net.ipv4.tcp_wmem", &limits);
    }
    bed
}

/// Mode of the legs between relays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LegMode {
    Splice,
    Copy,
    /// TLS on the legs between relays, splice on the others.
    Tls,
    /// Splice, over [`STREAMS`] connections for each of a client's.
    Striped,
}

/// Connections of a striped leg.
pub(crate) const STREAMS: u64 = 4;

/// A relay with every listener, in front of other relays, with a testbed and origin servers.
pub(crate) struct Chain {
    pub(crate) testbed: Testbed,
    /// Nearest relay first.
    pub(crate) relays: Vec<Relay>,
    pub(crate) mode: LegMode,
    origins: [TcpListener; 2],
    /// Sockets of the nearest relay without connections.
    idle_sockets: usize,
    _files: tempfile::TempDir,
}

impl Chain {
    pub(crate) fn new(peers: usize, mode: LegMode) -> Self {
        Self::with_timeout(peers, mode, "3s")
    }

    /// Waits until the nearest relay has no connections.
    pub(crate) fn wait_until_idle(&self) {
        let sockets = || self.relays[0].descriptors("socket:").len();
        wait_until("the end of all connections", || {
            sockets() <= self.idle_sockets
        });
    }

    /// Chain with this connect time-out.
    pub(crate) fn with_timeout(peers: usize, mode: LegMode, connect_timeout: &str) -> Self {
        let testbed = testbed();
        let files = tempfile::tempdir().unwrap();
        write_files(files.path(), peers, mode);
        let copy_mode = if mode == LegMode::Copy {
            "copy"
        } else {
            "splice"
        };
        let start = |hop: usize, args: &[String], listeners| {
            let mut command = testbed.command(&["--mode", copy_mode]);
            command.args(["--connect-timeout", connect_timeout, "--grace", "3s"]);
            command.arg("--config");
            command.arg(files.path().join(format!("hop{hop}.toml")));
            command.args(args);
            Relay::spawn_with_listeners(command, listeners)
        };
        let far: Vec<_> = (1..=peers).map(|hop| start(hop, &[], 1)).collect();
        let flags = listener_flags();
        let listeners = flags.iter().filter(|arg| arg.starts_with("--")).count();
        let mut relays = vec![start(0, &flags, listeners)];
        relays.extend(far);
        let origins = BOTH.map(|family| testbed.listen(DestinationKind::Origin.address(&family)));
        // At its start the relay checks its peer, over a socket that it closes again.
        let samples = (0..20).map(|_| {
            std::thread::sleep(Duration::from_millis(20));
            relays[0].descriptors("socket:").len()
        });
        let idle_sockets = samples.min().unwrap();
        Self {
            testbed,
            relays,
            idle_sockets,
            mode,
            origins,
            _files: files,
        }
    }

    /// Connects a client through the relay. Returns the connection, or the code of the refusal.
    pub(crate) fn dial(
        &self,
        kind: &str,
        family: &Addresses,
        kind_of_destination: DestinationKind,
    ) -> Result<TcpStream, u16> {
        let destination = kind_of_destination.address(family);
        let port = match kind {
            "socks5" => 1080,
            "http" => 3128,
            "convert" => 5124,
            _ => {
                8000 + DESTINATION_KINDS
                    .iter()
                    .position(|g| *g == kind_of_destination)
                    .unwrap() as u16
            }
        };
        let listener = match kind {
            "transparent" => destination,
            _ => (family.downstream, port).into(),
        };
        let to = Destination::Address(destination);
        let dial = || Ok(longhaul_testnet::relay_process::dial(kind, listener, &to));
        self.testbed.client.run(dial).unwrap()
    }

    /// Connects a client, and accepts its connection at the origin.
    pub(crate) fn connect(&self, kind: &str, family: &Addresses) -> (TcpStream, TcpStream) {
        let client = self.dial(kind, family, DestinationKind::Origin).unwrap();
        (client, accept(self.origin(family)))
    }

    /// Number of TCP connections between a client and its server.
    pub(crate) fn sockets(&self) -> u64 {
        let between_relays = self.relays.len() as u64 - 1;
        let streams = if self.mode == LegMode::Striped {
            STREAMS
        } else {
            1
        };
        2 + between_relays * streams
    }

    /// Bytes that the socket buffers and pipes between a client and its server hold.
    pub(crate) fn buffered_max(&self) -> u64 {
        const PIPE: u64 = 1 << 20;
        self.sockets() * 2 * BUFFER_MAX + self.relays.len() as u64 * PIPE
    }

    pub(crate) fn origin(&self, family: &Addresses) -> &TcpListener {
        &self.origins[usize::from(family.server.is_ipv6())]
    }
}

/// Flags for every listener, for clients of both families.
fn listener_flags() -> Vec<String> {
    let mut args = vec![];
    let mut add = |kind: &str, at: String| args.extend([format!("--{kind}"), at]);
    for family in &BOTH {
        let at = |port| SocketAddr::from((family.downstream, port)).to_string();
        add("socks5", at(1080));
        add("http", at(3128));
        add("convert", at(5124));
        for (port, kind_of_destination) in (8000..).zip(DESTINATION_KINDS) {
            add(
                "forward",
                format!("{}={}", at(port), kind_of_destination.address(family)),
            );
        }
    }
    add("transparent", "0.0.0.0:3129".into());
    add("transparent", "[::]:3129".into());
    args
}

/// Listener address of a relay. The families alternate, and each is first in some chains.
fn address(hop: usize, mode: LegMode) -> SocketAddr {
    let ipv6 = hop.is_multiple_of(2) == matches!(mode, LegMode::Splice | LegMode::Striped);
    let ip: IpAddr = if ipv6 {
        Ipv6Addr::LOCALHOST.into()
    } else {
        Ipv4Addr::LOCALHOST.into()
    };
    (ip, 5200 + hop as u16).into()
}

/// Makes certificates of `hop0`, `hop1`…, which trust each other.
pub(crate) fn make_certificates(directory: &Path, peers: usize) {
    let mut command = Command::new(longhaul_testprograms::longhaul());
    command
        .args(["relay", "--make-certificates"])
        .arg(directory);
    command.args((0..=peers).map(|hop| format!("hop{hop}")));
    assert!(command.output().unwrap().status.success(), "{command:?}");
}

/// `tls` setting for a listener or peer of one of the relays.
pub(crate) fn tls(directory: &Path, hop: usize) -> String {
    let at = directory.display();
    format!(
        "tls = {{ ca = '{at}/ca.pem', certificate = '{at}/hop{hop}.pem', \
         key = '{at}/hop{hop}-key.pem' }}\n"
    )
}

/// Writes the configuration files: `hop0.toml` for the relay next to the client, `hop1.toml` for
/// the next one…
fn write_files(directory: &Path, peers: usize, mode: LegMode) {
    if mode == LegMode::Tls {
        make_certificates(directory, peers);
    }
    let tls = |hop| match mode {
        LegMode::Tls => tls(directory, hop),
        _ => String::new(),
    };
    for hop in 0..=peers {
        let mut text = String::new();
        match hop {
            0 => text += "allow_from = ['10.77.1.0/24', 'fd77:1::/64']\n",
            _ => {
                let at = address(hop, mode);
                let listener = "[[listener]]\nkind = 'convert'";
                write!(text, "{listener}\naddress = '{at}'\n{}", tls(hop)).unwrap();
            }
        }
        for next in hop + 1..=peers {
            let at = address(next, mode);
            write!(text, "[peer.hop{next}]\naddress = '{at}'\n{}", tls(hop)).unwrap();
            if mode == LegMode::Striped {
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

/// Path through a chain: a listener, an address family, and a direction.
pub(crate) struct TestPath<'a> {
    pub(crate) chain: &'a Chain,
    pub(crate) kind: &'a str,
    pub(crate) family: &'a Addresses,
    pub(crate) upward: bool,
}

impl TestPath<'_> {
    /// Opens a connection. Returns the sending end first.
    pub(crate) fn open(&self) -> (TcpStream, TcpStream) {
        let (client, server) = self.chain.connect(self.kind, self.family);
        if self.upward {
            (client, server)
        } else {
            (server, client)
        }
    }
}

impl std::fmt::Display for TestPath<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let direction = if self.upward {
            "client to server"
        } else {
            "server to client"
        };
        write!(f, "{} from {}, {direction}", self.kind, self.family.client)
    }
}

/// Accepts the next connection to an origin server.
pub(crate) fn accept(origin: &TcpListener) -> TcpStream {
    let mut accepted = None;
    origin.set_nonblocking(true).unwrap();
    wait_until("a connection to the origin", || {
        accepted = origin.accept().ok();
        accepted.is_some()
    });
    let (stream, _) = accepted.expect("waited for");
    stream.set_nonblocking(false).unwrap();
    longhaul_testnet::relay_process::set_timeouts(&stream);
    stream
}

/// Waits until `condition` is true, at most for [`PATIENCE`].
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < TEST_TIMEOUT,
            "timed out waiting for {what}"
        );
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Whether the error of a socket means a RST.
pub(crate) fn is_reset(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}
