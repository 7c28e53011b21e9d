// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration of a relay as written in a TOML file or as equivalent flags. Only the form is
//! checked here; [`super::Config`] is the checked configuration. The reference configuration has these comments.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the reference prints the comments unchanged"
)]

#[cfg(test)]
use crate::config::schema;
use crate::config::{
    certificates::TlsSettings,
    options::{AdminSettings, CounterSettings, LimitSettings},
};
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
    /// Clients that every listener serves, besides its own allow_from: networks or addresses. Loopback is always
    /// served. Default: no others, so that no relay forwards for strangers. Memory: none.
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) allow_from: Vec<Prefix>,
    /// Lets clients from other hosts, other relays among them, reach this host's own addresses through this relay:
    /// loopback, unspecified and link-local ones (169.254.169.254 too), the listeners below and the admin endpoint.
    /// Services there often require no login. The default suits every relay; with `true`, deny by routes what must
    /// not be reached. Memory: none.
    pub(crate) allow_local: bool,
    /// Probes for the path MTU where routers drop large packets and ICMP is filtered (RFC 4821): while the relay
    /// runs, net.ipv4.tcp_mtu_probing of its network namespace is 1, if it was 0. All TCP connections of the
    /// namespace then probe once they are stuck. Suits: paths with tunnels and filters that others run. Needs
    /// CAP_NET_ADMIN and a writable /proc/sys (not so under the unit's ProtectKernelTunables=: set it by sysctl.d(5)
    /// there). Memory: a second process of 1 MiB that resets it.
    pub(crate) mtu_probing: bool,
    /// A listener takes a socket and two descriptors per worker (limits.workers).
    pub(crate) listener: Vec<ListenerSettings>,
    /// Other relays: a table each, under the name that routes use.
    pub(crate) peer: BTreeMap<String, PeerSettings>,
    /// The first route whose conditions all match decides; an absent condition matches everything. Without a matching
    /// route, connections go directly to their destination. Memory: the text.
    pub(crate) route: Vec<RouteSettings>,
    /// `downstream` is for legs towards clients and `upstream` for those towards destinations and peers; others are
    /// for listeners, peers and routes that name them. Absent keys leave the choice to the kernel, which suits a path
    /// whose rate × round-trip time is below half of the third value of net.ipv4.tcp_rmem and tcp_wmem (`longhaul
    /// doctor` computes it). Memory of a leg that moves bytes: up to the sum of both.
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
    /// Protocol of the clients: "socks5", "http", "forward", "transparent" or "convert" (other relays, RFC 8803).
    pub(crate) kind: KindName,
    /// IP address and port; port 0 takes a free port. Off loopback, allow_from must name its clients. [::] takes
    /// IPv4, too, unless another listener has the port on an IPv4 address.
    #[serde(deserialize_with = "deserialize_address")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) address: SocketAddr,
    /// Name in routes, records and metrics, and of a socket that the service manager passes (FileDescriptorName=).
    /// Default: the address.
    #[cfg_attr(test, schemars(example = &"local"))]
    pub(crate) name: Option<String>,
    /// forward: destination of all its connections: a name or an address, and a port.
    #[serde(default, deserialize_with = "deserialize_optional")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(crate) destination: Option<Destination>,
    /// transparent: the upstream leg has the client's address as its source. Answers must come back through this
    /// host, and routes through peers are excluded.
    #[serde(default)]
    pub(crate) keep_source: bool,
    /// transparent: connects clients directly to their destinations while all peers of a route are down; the log says
    /// so. false refuses them: for hosts from which nothing may leave except through a peer. Memory: none [default:
    /// true]
    pub(crate) direct_fallback: Option<bool>,
    /// transparent: connections that nft rules of the relay divert to it while it runs:
    /// NETWORK[,NETWORK…][:PORT[,A-B…]] of the family of its address, IPv6 networks in brackets. Default: none;
    /// install your own rules then.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) intercept: Vec<Target>,
    /// transparent: exceptions from intercept, in the same form: "0.0.0.0/0:22". relay.md has those that always
    /// apply.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) bypass: Vec<Target>,
    /// transparent: diverts this host's own connections too, not only forwarded ones. Requires intercept.
    #[serde(default)]
    pub(crate) intercept_local: bool,
    /// transparent: completes a client's handshake only after the destination's answer, and with the same outcome.
    /// Requires intercept. The client's connect takes one round trip of the upstream leg longer. Memory: up to 1024
    /// SYNs are held per listener, 128 per client, with a socket and under 1 KiB each.
    #[serde(default)]
    pub(crate) verify_connect: bool,
    /// Clients that it serves besides those in the allow_from above. Suits: the networks of this site.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) allow_from: Vec<Prefix>,
    /// Clients that it refuses although an allow_from names them.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) deny_from: Vec<Prefix>,
    /// socks5 and http: a file of USER:PASSWORD lines that only its owner can read. Default: no password is required.
    /// Both protocols send it in the clear: for trusted networks.
    #[cfg_attr(test, schemars(example = "/etc/longhaul/users"))]
    pub(crate) users: Option<PathBuf>,
    /// Connections begin with a PROXY protocol header (v1 or v2) that names the client. Suits: listeners behind a
    /// load balancer.
    #[serde(default)]
    pub(crate) accept_proxy: bool,
    /// Connections to destinations begin with a PROXY protocol header of this version, "v1" or "v2". Default: none.
    /// Suits: destinations that expect it, and no others.
    #[cfg_attr(test, schemars(example = &"v2"))]
    pub(crate) send_proxy: Option<SendProxy>,
    /// Profile of the legs towards its clients. The default suits short legs [default: downstream]
    pub(crate) profile: Option<String>,
    /// Rate limit of all its connections together, for each direction; more than 0, as 100mbit or 12.5MB/s (12.5MB is
    /// a size and refused). A burst has at most the bytes of 50 ms at the rate. Default: no limit. Memory: a read has
    /// at most the bytes of 50 ms.
    #[cfg_attr(test, schemars(with = "Option<schema::BitRate>", example = "10gbit"))]
    pub(crate) rate: Option<BitRate>,
    /// Rate limit of the connections of one client address, for each direction. Default: no limit. Memory: 100 bytes
    /// per client that has connections.
    #[cfg_attr(test, schemars(with = "Option<schema::BitRate>", example = "1gbit"))]
    pub(crate) rate_per_client: Option<BitRate>,
    /// convert: time for which a relay may keep a pooled connection open before its request, more than 0. It must be
    /// more than that relay's pool_age; the default is twice the default of that. Memory: 4 KiB of the kernel's and
    /// one of limits.connections each [default: 2m]
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) idle_timeout: Option<Time>,
    /// convert: transport that relays must use: "tcp", or "udt" for UDT4 on UDP, which requires tls. Their
    /// `transport` must be the same. Memory of UDT: two buffers of up to 48 MB per leg as they fill, or the profile's
    /// sizes; a thread [default: tcp]
    #[serde(default)]
    pub(crate) transport: Transport,
    /// convert: requires TLS 1.3 and a certificate of an authority in `ca`. Suits: every path that others can listen
    /// to. TLS excludes splicing: bytes are copied and encrypted, with up to 384 KiB per direction while they move.
    /// `longhaul relay --make-certificates DIR NAME…` makes the files (PEM).
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
    /// HOST or HOST:PORT, a name or an address; the default port is 5124. A name is resolved for each new connection
    /// to it.
    #[serde(deserialize_with = "text")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) address: PeerAddress,
    /// Profile of the legs to it. Give the long leg one of its own [default: upstream]
    pub(crate) profile: Option<String>,
    /// Idle connections that each worker keeps open, 0 to 1024, so that a request waits for no handshake. The default
    /// suits paths below 20 ms; 8 suits longer ones with many short connections. Memory: a descriptor and 4 KiB of
    /// the kernel's each, at both ends; with TLS 20 KiB more [default: 0]
    #[cfg_attr(test, schemars(range(min = 0, max = 1024)))]
    pub(crate) pool: Option<u16>,
    /// Age at which an idle connection is replaced: less than the idle_timeout of the peer's listener [default: 1m]
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) pool_age: Option<Time>,
    /// Parallel connections for one client's connection: 1 to 16, or "auto" for up to 16 while windows limit one. The
    /// default suits every path; 4 suits a long one with random loss, and 1 one that is shared. Memory: a descriptor
    /// and the socket's buffers each, at both ends [default: auto]
    #[cfg_attr(test, schemars(with = "Option<schema::Streams>"))]
    pub(crate) streams: Option<Streams>,
    /// Transport of the legs to it: "tcp", or "udt" for UDT4 on UDP, as its listener has it. The default suits every
    /// path; "udt" suits one that is long, unshared and without loss, where the host's TCP can't be tuned. Memory: as
    /// for listeners [default: tcp]
    #[serde(default)]
    pub(crate) transport: Transport,
    /// Legs to it are TLS 1.3, and both sides present a certificate. Files as for listeners.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum SendProxy {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// Mode of moving bytes between legs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
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
    /// Condition: the client's address is in one of these networks.
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) from: Vec<Prefix>,
    /// Condition: the destination, as the client gave it, is in one of these networks, or is one of these names
    /// ("*.example.org": all names below it). When this relay resolves a name, its addresses are checked as well.
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) to: Vec<RouteTarget>,
    /// Condition: the destination's port is one of these: 443, "8000-8999".
    #[cfg_attr(test, schemars(with = "Vec<schema::Ports>"))]
    pub(crate) ports: Vec<Ports>,
    /// Refuses the connection, with the error message of its protocol.
    pub(crate) deny: bool,
    /// Peers to pass through, nearest first, at most 16; an empty list connects directly to the destination. Suits:
    /// destinations behind the remote relay.
    pub(crate) via: Vec<String>,
    /// Chains to try, in order, when a peer of `via` is down; [] among them connects directly to the destination.
    /// Default: nothing else is tried.
    pub(crate) fallback: Vec<Vec<String>>,
    /// Profile of legs directly to the destination [default: upstream]
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
    /// Kernel's name of the congestion control. Default: net.ipv4.tcp_congestion_control, cubic almost everywhere,
    /// which suits paths without random loss; "bbr" suits long or lossy legs.
    #[cfg_attr(test, schemars(example = &"bbr"))]
    pub(crate) congestion_control: Option<String>,
    /// Pacing rate, 8kbit and more. Default: the congestion control decides. Suits: long legs through small router
    /// buffers, just below the rate of the link.
    #[cfg_attr(test, schemars(with = "Option<schema::BitRate>", example = "9.5gbit"))]
    pub(crate) pacing_rate: Option<BitRate>,
    /// Limit of unsent bytes in the socket, 4KiB to 1GiB. Default: net.ipv4.tcp_notsent_lowat, usually no limit but
    /// the send buffer: best for bulk. 128KiB suits interactive legs and many connections; a leg then takes that much
    /// memory instead of the whole send buffer.
    #[cfg_attr(test, schemars(with = "Option<schema::Bytes>", example = "128KiB"))]
    pub(crate) notsent_lowat: Option<Bytes>,
    /// Idle time before a keepalive probe, 1s to 9h. Four more probes follow, a quarter of it apart, and then the leg
    /// is closed. "0s" sends none. The default suits every path: it detects a client that vanished after two minutes,
    /// and keeps the state of NATs and firewalls. It costs an idle leg one empty segment and its answer a minute, and
    /// no memory. More suits links that are paid by the packet [default: 1m]
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) keepalive: Option<Time>,
    /// Time for which sent data may stay unacknowledged before the leg is closed, 1s to 24h. Default: about 15
    /// minutes (net.ipv4.tcp_retries2). 30s detects a dead path early.
    #[cfg_attr(test, schemars(with = "Option<schema::Time>", example = "30s"))]
    pub(crate) user_timeout: Option<Time>,
    /// Maximum segment size in bytes, 88 to 32767. Default: by the path MTU. 1360 suits most tunnels whose path MTU
    /// discovery is broken.
    #[cfg_attr(test, schemars(range(min = 88, max = 32767), example = 1360))]
    pub(crate) mss: Option<u32>,
    /// DSCP of the leg's packets, 0 to 63. Default: that of the client where it was intercepted, else 0. Suits:
    /// networks that have classes.
    #[cfg_attr(test, schemars(range(min = 0, max = 63), example = 8))]
    pub(crate) dscp: Option<u8>,
    /// Segments sent before the first acknowledgement, 1 to 1024. Default: 10 (RFC 6928), or the route's initcwnd,
    /// which suits a path of unknown rate. 32 saves short downloads over a long link of 100mbit and more two round
    /// trips. Needs Linux 5.14, CAP_BPF, CAP_NET_ADMIN, cgroup2 and a few hundred bytes of memory for the whole
    /// relay.
    #[cfg_attr(test, schemars(range(min = 1, max = 1024), example = 32))]
    pub(crate) initial_window: Option<u32>,
    /// Connections that the relay makes offer ECN (RFC 3168). Default: by net.ipv4.tcp_ecn and the congestion
    /// control. Suits: paths whose queues mark instead of dropping. Accepted connections follow net.ipv4.tcp_ecn.
    /// Needs the same as initial_window.
    pub(crate) ecn: bool,
    /// Fixed send buffer, 4KiB to 1GiB. Default: autotuning up to net.ipv4.tcp_wmem, which suits every path. A fixed
    /// one ends it: for measurements and hosts short of memory.
    #[cfg_attr(test, schemars(with = "Option<schema::Bytes>", example = "16MiB"))]
    pub(crate) send_buffer: Option<Bytes>,
    /// Fixed receive buffer, 4KiB to 1GiB. Default: autotuning up to net.ipv4.tcp_rmem.
    #[cfg_attr(test, schemars(with = "Option<schema::Bytes>", example = "16MiB"))]
    pub(crate) receive_buffer: Option<Bytes>,
    /// Rate control of a leg over UDT: "bbr", the default, which suits every path, or "native", UDT's own, which
    /// slows down at each loss and suits links shared with other UDT programs.
    #[cfg_attr(
        test,
        schemars(with = "Option<schema::UdtControl>", example = &"native")
    )]
    pub(crate) udt_control: Option<UdtCongestionControl>,
    /// Mode of moving bytes: "auto" copies reads below 16 KiB and splices larger ones, "splice" (inside the kernel,
    /// through pipes), "copy" (through buffers of 256 KiB). The upstream leg's profile decides. Default: the mode of
    /// profile upstream, and there "auto", which suits every path; the others are for troubleshooting. Memory while
    /// bytes move: limits.pipe_size or 256 KiB per direction.
    #[cfg_attr(test, schemars(example = &"copy"))]
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

impl Settings {
    /// Makes paths absolute that are relative to the configuration file in `directory`, so that it does not matter
    /// where the relay was started. `-` stands for standard output.
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

pub(super) fn deserialize_optional_address<'de, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<SocketAddr>, D::Error> {
    deserialize_address(input).map(Some)
}
