// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration of a relay as written in a TOML file or as equivalent flags. Only the form is
//! checked here; [`super::Config`] is the checked configuration.

use crate::config::certificates::TlsSettings;
#[cfg(test)]
use crate::config::schema;
use longhaul_interception::target::Target;
use longhaul_protocol::networks::{Ports, Prefix, Target as RouteTarget, text};
use longhaul_protocol::{convert, destination::Destination};
use longhaul_transport::port::UdtCongestionControl;
use longhaul_units::{BitRate, Bytes, Time};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use std::{
    collections::BTreeMap,
    fmt::Display,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    str::FromStr,
};

/// Contents of a configuration file.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// Clients that every listener serves, besides its own `allow_from`.
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) allow_from: Vec<Prefix>,
    /// Allows clients from other hosts to reach loopback, link-local addresses and the relay's own
    /// listeners through this relay.
    pub(crate) allow_local: bool,
    /// Packetization-layer path MTU discovery of TCP (RFC 4821).
    pub(crate) mtu_probing: bool,
    /// Listeners.
    pub(crate) listener: Vec<ListenerSettings>,
    /// Peers (other relays) by the names that routes use.
    pub(crate) peer: BTreeMap<String, PeerSettings>,
    /// Routes; the first whose conditions all match decides. Without any, connections go directly
    /// to the destination.
    pub(crate) route: Vec<RouteSettings>,
    /// Profiles of legs. `downstream` is for legs towards clients, and `upstream` for legs towards
    /// destinations and peers, unless a listener, peer or route names another profile.
    pub(crate) profile: BTreeMap<String, ProfileSettings>,
    pub(crate) limits: LimitSettings,
    pub(crate) counters: CounterSettings,
    pub(crate) admin: AdminSettings,
}

/// Settings of a listener.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ListenerSettings {
    pub(crate) kind: KindName,
    /// Address to listen on; port 0 takes a free port.
    #[serde(deserialize_with = "deserialize_address")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) address: SocketAddr,
    /// Name in routes, records and metrics; the address if absent.
    pub(crate) name: Option<String>,
    /// `forward` only: destination of all connections.
    #[serde(default, deserialize_with = "deserialize_optional")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(crate) destination: Option<Destination>,
    /// `transparent` only: the upstream leg has the client's source address.
    #[serde(default)]
    pub(crate) keep_source: bool,
    /// `transparent` only: clients are connected directly to their destinations while all peers of
    /// a route are down; absent is true.
    pub(crate) direct_fallback: Option<bool>,
    /// `transparent` only: networks and ports that the relay diverts to this listener, such as
    /// `10.0.0.0/8:80,443`, of its own address family.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) intercept: Vec<Target>,
    /// Exceptions from `intercept`, in the same form.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) bypass: Vec<Target>,
    /// Diverts this host's own connections too.
    #[serde(default)]
    pub(crate) intercept_local: bool,
    /// Completes the handshake of a diverted client only after the destination's answer, and with
    /// the same outcome.
    #[serde(default)]
    pub(crate) verify_connect: bool,
    /// Clients that are served; off loopback, no others are.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) allow_from: Vec<Prefix>,
    /// Clients that are refused although `allow_from` contains them.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) deny_from: Vec<Prefix>,
    /// `socks5` and `http` only: file of USER:PASSWORD lines, readable only by its owner.
    pub(crate) users: Option<PathBuf>,
    /// Connections begin with a PROXY protocol header that names the client.
    #[serde(default)]
    pub(crate) accept_proxy: bool,
    /// Connections to destinations begin with a PROXY protocol header of this version.
    pub(crate) send_proxy: Option<SendProxy>,
    /// Profile of the legs towards clients.
    pub(crate) profile: Option<String>,
    /// Rate limit of all connections together, for each direction.
    #[cfg_attr(test, schemars(with = "Option<schema::BitRate>"))]
    pub(crate) rate: Option<BitRate>,
    /// Rate limit of the connections of one client address, for each direction.
    #[cfg_attr(test, schemars(with = "Option<schema::BitRate>"))]
    pub(crate) rate_per_client: Option<BitRate>,
    /// `convert` only: time for which a relay may keep a connection open before its request.
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) idle_timeout: Option<Time>,
    /// `convert` only: transport that relays must use.
    #[serde(default)]
    pub(crate) transport: Transport,
    /// `convert` only: relays must use TLS with a certificate.
    pub(crate) tls: Option<TlsSettings>,
}

impl ListenerSettings {
    /// Name in rules, records and messages.
    pub(crate) fn name(&self) -> String {
        let address = || self.address.to_string();
        self.name.clone().unwrap_or_else(address)
    }
}

/// Protocol by which a listener learns the client's destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum KindName {
    Socks5,
    Http,
    Forward,
    Transparent,
    Convert,
}

/// Settings of a peer (another relay).
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct PeerSettings {
    /// Name or address as `HOST` or `HOST:PORT`; by default, the port of the Convert service.
    #[serde(deserialize_with = "text")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) address: PeerAddress,
    /// Profile of the legs to the peer.
    pub(crate) profile: Option<String>,
    /// Idle connections that each worker keeps open, 0 to 1024.
    #[cfg_attr(test, schemars(range(min = 0, max = 1024)))]
    pub(crate) pool: Option<u16>,
    /// Idle time after which a pooled connection is replaced: less than the `idle_timeout` of the
    /// peer's listener.
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) pool_age: Option<Time>,
    /// Parallel connections for one client's connection.
    #[cfg_attr(test, schemars(with = "Option<schema::Streams>"))]
    pub(crate) streams: Option<Streams>,
    /// Transport of the legs to the peer.
    #[serde(default)]
    pub(crate) transport: Transport,
    /// TLS of the legs to the peer.
    pub(crate) tls: Option<TlsSettings>,
}

/// Transport of a leg between relays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Transport {
    #[default]
    Tcp,
    /// UDT4 over UDP; requires TLS.
    Udt,
}

/// Number of parallel connections for one client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Streams {
    /// As many as the windows of the hosts make necessary.
    Automatic,
    /// 1 to 16.
    Fixed(u8),
}

impl FromStr for Streams {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "auto" => Ok(Self::Automatic),
            Ok(streams @ 1..=convert::STRIPES_MAX) => Ok(Self::Fixed(streams)),
            _ => Err(format!(
                "streams {text}: expected \"auto\" or 1 to {}",
                convert::STRIPES_MAX
            )),
        }
    }
}

impl<'de> Deserialize<'de> for Streams {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match toml::Value::deserialize(deserializer)? {
            toml::Value::String(text) => text,
            other => other.to_string(),
        };
        text.parse().map_err(D::Error::custom)
    }
}

/// Address or name of a relay; by default, with the port of the Convert service.
#[derive(Debug, Clone)]
pub(crate) struct PeerAddress(pub(crate) Destination);

impl FromStr for PeerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = |_| format!("{text:?} is not HOST, HOST:PORT or [IPv6]:PORT");
        let has_port = match text.parse::<IpAddr>() {
            Ok(_) => false,
            Err(_) => text.contains(':'),
        };
        let destination = if has_port {
            text.parse()
        } else {
            Destination::from_host(text, convert::PORT)
        };
        destination.map(Self).map_err(invalid)
    }
}

/// Versions of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum SendProxy {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// Mode of moving bytes between legs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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

/// Settings of a route.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RouteSettings {
    /// Condition: the listener's name is one of these.
    pub(crate) listener: Vec<String>,
    /// Condition: the client's address is in one of these.
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) from: Vec<Prefix>,
    /// Condition: the destination is one of these networks or names (`*.example.org`).
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) to: Vec<RouteTarget>,
    /// Condition: the destination's port is one of these (`443`, `8000-8999`).
    #[cfg_attr(test, schemars(with = "Vec<schema::Ports>"))]
    pub(crate) ports: Vec<Ports>,
    /// Refuses the connection.
    pub(crate) deny: bool,
    /// Peers to pass through, nearest first; empty is directly to the destination.
    pub(crate) via: Vec<String>,
    /// Chains to try in order if a peer of `via` does not answer; an empty chain is directly to the
    /// destination.
    pub(crate) fallback: Vec<Vec<String>>,
    /// Profile of legs directly to the destination.
    pub(crate) profile: Option<String>,
}

impl RouteSettings {
    /// Peer names of each chain, in the order of attempts.
    pub(crate) fn chains(&self) -> impl Iterator<Item = &Vec<String>> {
        std::iter::once(&self.via).chain(&self.fallback)
    }
}

/// Settings of a profile. Absent values leave the choice to the kernel.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProfileSettings {
    /// Congestion control, by the kernel's name.
    pub(crate) congestion_control: Option<String>,
    /// Pacing rate of TCP: for long legs through small buffers.
    #[cfg_attr(test, schemars(with = "Option<schema::BitRate>"))]
    pub(crate) pacing_rate: Option<BitRate>,
    /// Most unsent bytes in a socket: less memory and less delay; 128KiB suits interactive legs.
    #[cfg_attr(test, schemars(with = "Option<schema::Bytes>"))]
    pub(crate) notsent_lowat: Option<Bytes>,
    /// Idle time before a keepalive probe: 1s to 9h; 0s is never.
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) keepalive: Option<Time>,
    /// Time for which sent data may stay unacknowledged before the leg is closed.
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) user_timeout: Option<Time>,
    /// Maximum segment size, 88 to 32767 bytes: for paths with broken MTU discovery.
    #[cfg_attr(test, schemars(range(min = 88, max = 32767)))]
    pub(crate) mss: Option<u32>,
    /// DSCP of the packets, 0 to 63.
    #[cfg_attr(test, schemars(range(min = 0, max = 63)))]
    pub(crate) dscp: Option<u8>,
    /// Segments sent before the first acknowledgement, 1 to 1024: for long legs of known rate. The
    /// kernel's default is 10, or the route's initcwnd.
    #[cfg_attr(test, schemars(range(min = 1, max = 1024)))]
    pub(crate) initial_window: Option<u32>,
    /// SYNs offer ECN (RFC 3168) whatever `net.ipv4.tcp_ecn` says.
    pub(crate) ecn: bool,
    /// Fixed send buffer. Ends autotuning: for measurements and for hosts short of memory.
    #[cfg_attr(test, schemars(with = "Option<schema::Bytes>"))]
    pub(crate) send_buffer: Option<Bytes>,
    /// Fixed receive buffer. Ends autotuning: for measurements and for hosts short of memory.
    #[cfg_attr(test, schemars(with = "Option<schema::Bytes>"))]
    pub(crate) receive_buffer: Option<Bytes>,
    /// Rate control of a leg over UDT.
    #[cfg_attr(test, schemars(with = "Option<schema::UdtControl>"))]
    pub(crate) udt_control: Option<UdtCongestionControl>,
    /// Mode of moving bytes between this leg and the client's; the upstream leg's profile decides.
    pub(crate) mode: Option<Mode>,
    #[serde(skip)]
    pub(crate) flags: ProfileFlags,
}

/// Flags that gave values of a profile. Errors about these values name the flags.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProfileFlags {
    pub(crate) congestion_control: Option<&'static str>,
    pub(crate) initial_window: Option<&'static str>,
}

/// Settings of limits; docs/relay.md lists their costs.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitSettings {
    #[cfg_attr(test, schemars(range(min = 1)))]
    pub(crate) connections: Option<u32>,
    #[cfg_attr(test, schemars(range(min = 1)))]
    pub(crate) workers: Option<u16>,
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) connect_timeout: Option<Time>,
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) handshake_timeout: Option<Time>,
    /// HTTP: time after which a client that sends no request is disconnected.
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) http_idle_timeout: Option<Time>,
    /// HTTP and FTP: time after which a silent origin that owes a response is given up.
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) response_timeout: Option<Time>,
    /// Idle time after which a tunnel is closed; 0s is never.
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) tunnel_idle_timeout: Option<Time>,
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) grace: Option<Time>,
    /// Concurrent name lookups for one client address; further ones wait.
    #[cfg_attr(test, schemars(range(min = 1, max = 65535)))]
    pub(crate) lookups_per_client: Option<u32>,
    /// Connections of one client address; further ones are reset.
    #[cfg_attr(test, schemars(range(min = 1)))]
    pub(crate) connections_per_client: Option<u32>,
    /// Memory that one client address may hold once `memory` is used up and there are other
    /// clients.
    #[cfg_attr(test, schemars(with = "Option<schema::Bytes>"))]
    pub(crate) memory_per_client: Option<Bytes>,
    /// Time for which an endpoint may read nothing although data waits for it.
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) stall_timeout: Option<Time>,
    /// Longest delay between two passwords for one user from one client address; 0s is none.
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) password_delay: Option<Time>,
    #[cfg_attr(test, schemars(with = "Option<schema::Bytes>"))]
    pub(crate) pipe_size: Option<Bytes>,
    /// Memory of the socket buffers and pipes of all legs, above which new connections wait.
    #[cfg_attr(test, schemars(with = "Option<schema::Bytes>"))]
    pub(crate) memory: Option<Bytes>,
}

impl Settings {
    /// Makes paths absolute that are relative to the configuration file in `directory`, so that it does not matter where
    /// the relay was started. `-` stands for standard output.
    pub(crate) fn resolve_paths(&mut self, directory: &Path) {
        for path in self.paths().filter(|path| *path != Path::new("-")) {
            *path = directory.join(&path);
        }
    }

    fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let listeners = self.listener.iter_mut();
        let (users, listener_tls): (Vec<_>, Vec<_>) = listeners
            .map(|listener| (&mut listener.users, &mut listener.tls))
            .unzip();
        let peer_tls = self.peer.values_mut().map(|peer| &mut peer.tls);
        let tls = listener_tls.into_iter().chain(peer_tls).flatten();
        let records = [&mut self.counters.file, &mut self.counters.access_log];
        let files = users.into_iter().chain(records).flatten();
        files.chain(tls.flat_map(TlsSettings::paths))
    }
}

/// Format of records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum RecordFormat {
    /// JSON, one record a line.
    #[default]
    Json,
    /// Common log format of web servers.
    Common,
}

/// Settings of the record files.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CounterSettings {
    pub(crate) file: Option<PathBuf>,
    /// File of connection records alone.
    pub(crate) access_log: Option<PathBuf>,
    pub(crate) access_log_format: Option<RecordFormat>,
    /// Clients without records in the access log.
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) access_log_except: Vec<Prefix>,
    /// Interval of the records of a tunnel while it is open; absent or 0 is none.
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) access_log_interval: Option<Time>,
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) interval: Option<Time>,
}

/// Settings of the admin endpoint: health, metrics and the status page.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AdminSettings {
    /// Address on loopback; absent disables the endpoint.
    #[serde(deserialize_with = "deserialize_optional_address")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(crate) address: Option<SocketAddr>,
    /// Address of any network, for `/healthz` and `/readyz` alone; absent disables it.
    #[serde(deserialize_with = "deserialize_optional_address")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(crate) health: Option<SocketAddr>,
}

fn deserialize_optional<'de, D, T>(input: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    text(input).map(Some)
}

/// Parses an address to listen on. A name is refused: it may resolve to several addresses.
pub(crate) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!(
            "{text:?} is not ADDRESS:PORT or [IPv6]:PORT (for example 127.0.0.1:1080 or [::1]:1080)"
        )
    })
}

fn deserialize_address<'de, D: Deserializer<'de>>(input: D) -> Result<SocketAddr, D::Error> {
    socket_address(&String::deserialize(input)?).map_err(serde::de::Error::custom)
}

fn deserialize_optional_address<'de, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<SocketAddr>, D::Error> {
    deserialize_address(input).map(Some)
}
