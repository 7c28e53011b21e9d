// SPDX-License-Identifier: MIT OR Apache-2.0
//! A relay's configuration as it is written: in a TOML file, or as flags that say the same. Nothing
//! is checked here but the form; [`super::Config`] is what stands after the check.

use crate::config::certificates::TlsSettings;
use longhaul_interception::target::Target;
use longhaul_protocol::networks::{Ports, Prefix, Target as RouteTarget, text};
use longhaul_protocol::{convert, destination::Destination};
use longhaul_transport::port::Control;
use longhaul_units::{BitRate, Bytes, Time};
use serde::{Deserialize, Deserializer, Serialize};
use std::{
    collections::BTreeMap,
    fmt::Display,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

/// The whole file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// Clients that every listener serves, besides its own `allow_from`.
    pub(crate) allow_from: Vec<Prefix>,
    /// Clients from elsewhere may reach loopback, link-local addresses and these listeners through
    /// this relay.
    pub(crate) allow_local: bool,
    /// TCP finds out by itself what a path carries (RFC 4821).
    pub(crate) mtu_probing: bool,
    /// Ways in.
    pub(crate) listener: Vec<ListenerSettings>,
    /// Other relays, by the names that routes use.
    pub(crate) peer: BTreeMap<String, PeerSettings>,
    /// Ways out; the first whose conditions all hold decides. Without any, straight.
    pub(crate) route: Vec<RouteSettings>,
    /// How legs behave. `near` is for legs towards clients and `far` for those towards
    /// destinations and peers, unless a listener, peer or route names another.
    pub(crate) profile: BTreeMap<String, ProfileSettings>,
    pub(crate) limits: LimitSettings,
    pub(crate) counters: CounterSettings,
    pub(crate) admin: AdminSettings,
}

/// One way in.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListenerSettings {
    pub(crate) kind: KindName,
    /// Port 0 takes a free port.
    #[serde(deserialize_with = "place")]
    pub(crate) address: SocketAddr,
    /// In routes, records and metrics; the address if absent.
    pub(crate) name: Option<String>,
    /// `forward` only: where all its connections go.
    #[serde(default, deserialize_with = "optional_text")]
    pub(crate) destination: Option<Destination>,
    /// `transparent` only: the outgoing leg takes the client's address.
    #[serde(default)]
    pub(crate) keep_source: bool,
    /// `transparent` only: where all peers of a route are down, clients go straight to their
    /// destinations; absent is yes.
    pub(crate) direct_fallback: Option<bool>,
    /// `transparent` only: what the relay diverts to it, as `10.0.0.0/8:80,443`; its own family.
    #[serde(default)]
    pub(crate) intercept: Vec<Target>,
    /// What is left alone of that, written likewise.
    #[serde(default)]
    pub(crate) bypass: Vec<Target>,
    /// This host's own connections too.
    #[serde(default)]
    pub(crate) intercept_local: bool,
    /// A diverted client is answered once the destination has answered, and as it answered.
    #[serde(default)]
    pub(crate) verify_connect: bool,
    /// Clients that are served; off loopback, none but these.
    #[serde(default)]
    pub(crate) allow_from: Vec<Prefix>,
    /// Clients that are not served although `allow_from` has them.
    #[serde(default)]
    pub(crate) deny_from: Vec<Prefix>,
    /// `socks5` and `http` only: a file of USER:PASSWORD lines that its owner alone can read.
    pub(crate) users: Option<PathBuf>,
    /// Connections begin with a PROXY protocol header that names the client.
    #[serde(default)]
    pub(crate) accept_proxy: bool,
    /// Connections to destinations begin with a PROXY protocol header of this version.
    pub(crate) send_proxy: Option<SendProxy>,
    /// The profile of the legs towards its clients.
    pub(crate) profile: Option<String>,
    /// All its connections together, each direction by itself.
    pub(crate) rate: Option<BitRate>,
    /// All connections of one client address, each direction by itself.
    pub(crate) rate_per_client: Option<BitRate>,
    /// `convert` only: how long a relay may keep a connection ready before it asks for something.
    pub(crate) idle_timeout: Option<Time>,
    /// `convert` only: what relays come over.
    #[serde(default)]
    pub(crate) transport: Transport,
    /// `convert` only: relays must come with TLS and show a certificate.
    pub(crate) tls: Option<TlsSettings>,
}

/// How clients say where they want to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KindName {
    Socks5,
    Http,
    Forward,
    Transparent,
    Convert,
}

/// Another relay.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeerSettings {
    /// `HOST` or `HOST:PORT`, a name or an address; the Convert service's port if absent.
    #[serde(deserialize_with = "text")]
    pub(crate) address: PeerAddress,
    /// The profile of the legs to it.
    pub(crate) profile: Option<String>,
    /// Connections that each worker keeps ready, 0 to 1024.
    pub(crate) pool: Option<u16>,
    /// After this time without use a ready connection is replaced: less than the `idle_timeout` of
    /// the peer's listener.
    pub(crate) pool_age: Option<Time>,
    /// Connections that carry one client's connection together, 1 to 16.
    pub(crate) streams: Option<u8>,
    /// What the legs to it go over.
    #[serde(default)]
    pub(crate) transport: Transport,
    /// Legs to it are protected by TLS.
    pub(crate) tls: Option<TlsSettings>,
}

/// What a leg between relays goes over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Transport {
    #[default]
    Tcp,
    /// UDT4 on UDP; wants TLS.
    Udt,
}

/// A relay's address or name; without a port, the Convert service's.
#[derive(Debug, Clone)]
pub(crate) struct PeerAddress(pub(crate) Destination);

impl FromStr for PeerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let want = |_| "want a host name or an IP address, with or without :PORT".to_owned();
        let has_port = match text.parse::<IpAddr>() {
            Ok(_) => false,
            Err(_) => text.contains(':'),
        };
        let place = match has_port {
            true => text.parse(),
            false => Destination::from_host(text, convert::PORT),
        };
        place.map(Self).map_err(want)
    }
}

/// Versions of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SendProxy {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// How bytes move from leg to leg.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// Reads of 16 KiB and more inside the kernel, smaller ones through buffers.
    #[default]
    Auto,
    /// Inside the kernel, through pipes.
    Splice,
    /// Through buffers of 256 KiB.
    Copy,
}

/// One rule for the way out.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RouteSettings {
    /// Condition: the listener's name is one of these.
    pub(crate) listener: Vec<String>,
    /// Condition: the client's address is in one of these.
    pub(crate) from: Vec<Prefix>,
    /// Condition: the destination is one of these networks or names (`*.example.org`).
    pub(crate) to: Vec<RouteTarget>,
    /// Condition: the destination's port is one of these (`443`, `8000-8999`).
    pub(crate) ports: Vec<Ports>,
    /// Refuse the connection.
    pub(crate) deny: bool,
    /// Leave through these peers, nearest first; empty is straight to the destination.
    pub(crate) via: Vec<String>,
    /// Chains to try, in order, when a peer of `via` does not answer; an empty one is straight.
    pub(crate) fallback: Vec<Vec<String>>,
    /// The profile of legs straight to the destination.
    pub(crate) profile: Option<String>,
}

impl RouteSettings {
    /// The names of the peers of its chains, in the order in which they are tried.
    pub(crate) fn chains(&self) -> impl Iterator<Item = &Vec<String>> {
        std::iter::once(&self.via).chain(&self.fallback)
    }
}

/// How a leg behaves. What is absent is the kernel's choice.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProfileSettings {
    /// By the kernel's name.
    pub(crate) congestion_control: Option<String>,
    /// TCP spaces its segments to this rate: for long legs through small buffers.
    pub(crate) pacing_rate: Option<BitRate>,
    /// Unsent bytes a socket may hold: less memory, fresher data; 128KiB suits interactive legs.
    pub(crate) notsent_lowat: Option<Bytes>,
    /// Silence after which a dead neighbour is probed for: 1s to 9h; 0s is never.
    pub(crate) keepalive: Option<Time>,
    /// How long sent data may stay unacknowledged before the leg is given up.
    pub(crate) user_timeout: Option<Time>,
    /// Largest segment, 88 to 32767 bytes: for paths whose MTU discovery is broken.
    pub(crate) mss: Option<u32>,
    /// DSCP of its packets, 0 to 63.
    pub(crate) dscp: Option<u8>,
    /// Segments that may leave before the first acknowledgement, 1 to 1024: for long legs whose
    /// rate is known. The kernel's choice is 10, or the route's initcwnd.
    pub(crate) initial_window: Option<u32>,
    /// SYNs offer ECN (RFC 3168) whatever `net.ipv4.tcp_ecn` says.
    pub(crate) ecn: bool,
    /// Fixed send buffer. Ends autotuning: for measurements and for hosts short of memory.
    pub(crate) send_buffer: Option<Bytes>,
    /// Fixed receive buffer. Ends autotuning: for measurements and for hosts short of memory.
    pub(crate) receive_buffer: Option<Bytes>,
    /// Who decides how fast a leg over UDT sends.
    pub(crate) udt_control: Option<Control>,
    /// How bytes move between this leg and the client's; the outgoing leg's profile decides.
    pub(crate) mode: Option<Mode>,
}

/// Bounds. What each costs is in docs/relay.md.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitSettings {
    pub(crate) connections: Option<u32>,
    pub(crate) workers: Option<u16>,
    pub(crate) connect_timeout: Option<Time>,
    pub(crate) handshake_timeout: Option<Time>,
    /// HTTP and FTP: how long an origin that owes something may be silent.
    pub(crate) response_timeout: Option<Time>,
    /// How long nothing may pass over a tunnel before it is ended; 0s is for ever.
    pub(crate) tunnel_idle_timeout: Option<Time>,
    pub(crate) grace: Option<Time>,
    /// Names that may be looked up for one client address at a time; more of them wait.
    pub(crate) lookups_per_client: Option<u32>,
    /// Connections that one client address may have; more of them are reset.
    pub(crate) connections_per_client: Option<u32>,
    /// What one client address may hold once `memory` is used up and others are there.
    pub(crate) memory_per_client: Option<Bytes>,
    /// How long somebody may take nothing of what is there for them.
    pub(crate) stall_timeout: Option<Time>,
    pub(crate) pipe_size: Option<Bytes>,
    /// What all legs' socket buffers and pipes may hold together before new connections wait.
    pub(crate) memory: Option<Bytes>,
}

/// Where records go.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CounterSettings {
    pub(crate) file: Option<PathBuf>,
    pub(crate) interval: Option<Time>,
}

/// The admin endpoint: health, metrics, the status page.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AdminSettings {
    /// On loopback; absent is off.
    #[serde(deserialize_with = "optional_place")]
    pub(crate) address: Option<SocketAddr>,
}

fn optional_text<'de, D, T>(input: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    text(input).map(Some)
}

/// An address to listen on. A name is none: it may lead to several.
pub(crate) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("{text:?} is no IP address with a port (for example 127.0.0.1:1080 or [::1]:1080)")
    })
}

fn place<'de, D: Deserializer<'de>>(input: D) -> Result<SocketAddr, D::Error> {
    socket_address(&String::deserialize(input)?).map_err(serde::de::Error::custom)
}

fn optional_place<'de, D: Deserializer<'de>>(input: D) -> Result<Option<SocketAddr>, D::Error> {
    place(input).map(Some)
}
