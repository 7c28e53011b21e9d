// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line of `longhaul relay`.

mod settings;

use crate::config::{
    options::{AdminSettings, CounterSettings, LimitSettings},
    settings::{Mode, PeerAddress, SendProxy, Streams, socket_address},
};
use clap::builder::{NonEmptyStringValueParser, RangedI64ValueParser};
use longhaul_congestion::sockets::initial_window;
use longhaul_interception::target::Target;
use longhaul_protocol::networks::Prefix;
use longhaul_protocol::{convert, destination::Destination};
use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

/// Splits TCP connections into legs, so that each leg's TCP has a short or a well-tuned path.
///
/// Any number of listeners accept connections, which continue directly to the destination, or
/// through a chain of other relays (--peer). Listeners off loopback serve only clients that
/// --allow-from names.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Read this TOML file; flags add to it or replace its values
    #[arg(long, value_name = "FILE", help_heading = "Configuration")]
    pub(crate) config: Option<PathBuf>,

    /// Check the configuration, print its errors or a summary, and exit
    #[arg(long, help_heading = "Configuration")]
    pub(crate) check_config: bool,

    /// With --check-config: print JSON
    #[arg(long, requires = "check_config", help_heading = "Configuration")]
    pub(crate) json: bool,

    /// Print a configuration file that explains every key, and exit
    #[arg(long, help_heading = "Configuration")]
    pub(crate) print_default_config: bool,

    /// Create a certificate authority (ca.pem) in DIR, or use the one there. Then create a
    /// certificate and a key for each relay NAME (host name or IP address), and exit
    #[arg(long, num_args = 2.., value_names = ["DIR", "NAME"], help_heading = "Configuration")]
    pub(crate) make_certificates: Vec<String>,

    /// Accept SOCKS5 clients here (RFC 1928: CONNECT, BIND, UDP ASSOCIATE), and SOCKS4 and 4a
    /// clients (CONNECT, BIND); repeatable
    #[arg(long, value_name = "ADDR:PORT", value_parser = socket_address, help_heading = "Listeners")]
    pub(crate) socks5: Vec<SocketAddr>,

    /// Accept HTTP proxy clients here (CONNECT, http:// and ftp:// requests); repeatable
    #[arg(long, value_name = "ADDR:PORT", value_parser = socket_address, help_heading = "Listeners")]
    pub(crate) http: Vec<SocketAddr>,

    /// Accept connections here and relay them all to one destination; repeatable
    #[arg(long, value_name = "ADDR:PORT=HOST:PORT", help_heading = "Listeners")]
    pub(crate) forward: Vec<Forward>,

    /// Accept connections that TPROXY rules (--intercept makes them) divert here, and relay them to their original
    /// destination (needs CAP_NET_ADMIN); repeatable
    #[arg(long, value_name = "ADDR:PORT", value_parser = socket_address, help_heading = "Listeners")]
    pub(crate) transparent: Vec<SocketAddr>,

    /// Divert connections to these networks to the --transparent listener (IPv4 or IPv6) with nft
    /// rules and routes, which are removed when the relay ends. Write IPv6 networks in brackets;
    /// repeatable
    #[arg(
        long,
        value_name = "CIDR[,CIDR…][:PORT[,A-B…]]",
        help_heading = "Listeners"
    )]
    pub(crate) intercept: Vec<Target>,

    /// Do not divert connections to these networks although --intercept contains them; repeatable
    #[arg(
        long,
        value_name = "CIDR[,CIDR…][:PORT[,A-B…]]",
        requires = "intercept",
        help_heading = "Listeners"
    )]
    pub(crate) bypass: Vec<Target>,

    /// Divert this host's own connections too
    #[arg(long, requires = "intercept", help_heading = "Listeners")]
    pub(crate) intercept_local: bool,

    /// Connect to the destination before a diverted client's handshake completes, so that the
    /// client sees the same outcome
    #[arg(long, requires = "intercept", help_heading = "Listeners")]
    pub(crate) verify_connect: bool,

    /// Accept other relays here (TCP Convert, RFC 8803), by default on port 5124; repeatable
    #[arg(long, value_name = "ADDR[:PORT]", help_heading = "Listeners")]
    pub(crate) convert: Vec<ConvertAddress>,

    /// Serve clients from this network on listeners that are not on loopback; repeatable
    #[arg(long, value_name = "CIDR", help_heading = "Listeners")]
    pub(crate) allow_from: Vec<Prefix>,

    /// Let clients from other hosts reach this host's own addresses through this relay: loopback,
    /// link-local ones (169.254.169.254 too), its listeners and the admin endpoint
    #[arg(long, help_heading = "Listeners")]
    pub(crate) allow_local: bool,

    /// Require a user name and password from SOCKS5 and HTTP clients; FILE has USER:PASSWORD lines
    /// and mode 600
    #[arg(long, value_name = "FILE", help_heading = "Listeners")]
    pub(crate) users: Option<PathBuf>,

    /// Expect a PROXY protocol header (v1 or v2) that has the client's address at the start of
    /// connections
    #[arg(long, help_heading = "Listeners")]
    pub(crate) accept_proxy: bool,

    /// Begin connections to destinations with a PROXY protocol header that has the client's address
    #[arg(long, value_enum, value_name = "VERSION", help_heading = "Routing")]
    pub(crate) send_proxy: Option<SendProxy>,

    /// Connect through this relay, a name or an address; several form a chain, nearest first
    #[arg(long, value_name = "HOST[:PORT]", help_heading = "Routing")]
    pub(crate) peer: Vec<PeerAddress>,

    /// Keep this many idle connections to the first --peer in each worker, which saves the round
    /// trip for connecting [default: 0]. Each takes a descriptor and about 4 KiB of kernel memory
    /// at both ends; 8 suits a path of 20ms or more with many short connections
    #[arg(long, value_name = "N", help_heading = "Routing", requires = "peer",
          value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub(crate) peer_pool: Option<u16>,

    /// Connections to the first --peer that carry one client's connection: 1 to 16, or auto
    /// [default: auto]. With auto, up to 15 more join while the window of one limits it. 4 suits a
    /// long path with random loss; each takes a descriptor and socket buffers at both ends
    #[arg(long, value_name = "N", help_heading = "Routing", requires = "peer")]
    pub(crate) streams: Option<Streams>,

    /// Transparent listeners: use the client's address and port as source of outgoing connections
    #[arg(long, help_heading = "Routing")]
    pub(crate) keep_source: bool,

    /// Transparent listeners: while all peers of a route are down, refuse clients instead of
    /// connecting them directly to their destinations
    #[arg(long, help_heading = "Routing")]
    pub(crate) no_direct_fallback: bool,

    /// Congestion control of the legs towards clients [default: the system's]
    #[arg(long, value_name = "NAME", help_heading = "Legs",
          value_parser = NonEmptyStringValueParser::new())]
    pub(crate) cc_downstream: Option<String>,

    /// Congestion control of the legs towards destinations and peers [default: the system's]
    #[arg(long, value_name = "NAME", help_heading = "Legs",
          value_parser = NonEmptyStringValueParser::new())]
    pub(crate) cc_upstream: Option<String>,

    /// Segments that legs towards clients may send before the first acknowledgement [default: 10, or
    /// the route's initcwnd]. Needs CAP_BPF, CAP_NET_ADMIN and cgroup2
    #[arg(long, value_name = "SEGMENTS", help_heading = "Legs",
          value_parser = initial_window_range())]
    pub(crate) initial_window_downstream: Option<u32>,

    /// Segments that legs towards destinations and peers may send before the first acknowledgement
    /// [default: 10, or the route's initcwnd]. Needs CAP_BPF, CAP_NET_ADMIN and cgroup2
    #[arg(long, value_name = "SEGMENTS", help_heading = "Legs",
          value_parser = initial_window_range())]
    pub(crate) initial_window_upstream: Option<u32>,

    /// Discover the path MTU by probing, for paths that drop large packets and filter ICMP. While
    /// the relay runs, net.ipv4.tcp_mtu_probing of its network namespace is 1. Needs CAP_NET_ADMIN
    #[arg(long, help_heading = "Legs")]
    pub(crate) mtu_probing: bool,

    /// Method of copying bytes between legs [default: auto]
    #[arg(long, value_enum, help_heading = "Legs")]
    pub(crate) mode: Option<Mode>,

    #[command(flatten)]
    pub(crate) limits: LimitSettings,

    #[command(flatten)]
    pub(crate) counters: CounterSettings,

    #[command(flatten)]
    pub(crate) admin: AdminSettings,
}

const EXAMPLES: &str = "\
Examples:
  longhaul relay --socks5 127.0.0.1:1080
      a SOCKS5 proxy for this machine
  longhaul relay --http 10.1.0.1:3128 --allow-from 10.1.0.0/16 --peer 192.0.2.9
      a web proxy for a network, whose connections leave through the relay at 192.0.2.9
  longhaul relay --convert 192.0.2.9 --allow-from 198.51.100.7 --cc-downstream bbr
      that relay: it serves 198.51.100.7 only, and uses bbr on the long leg
  longhaul relay --transparent 127.0.0.1:3129 --intercept 10.0.0.0/8:80,443 --verify-connect
      relays what this router forwards to web servers in 10.0.0.0/8; sets its own rules
  longhaul relay --transparent 0.0.0.0:3129 --keep-source --counters -
      relays what TPROXY rules divert, from the client's address; the manual has the rules
  longhaul relay --config relay.toml --check-config
      check the file, and print its clients, routes, memory and descriptors
  longhaul relay --socks5 127.0.0.1:1080 --admin 127.0.0.1:9100
      a SOCKS5 proxy with a status page at http://127.0.0.1:9100/ and metrics for Prometheus

When all listeners are ready, the relay logs a line on stderr for each, which ends with
'listening KIND ADDR:PORT'. Port 0 selects a free port.";

/// Returns the parser of an initial window in segments.
fn initial_window_range() -> RangedI64ValueParser<u32> {
    let (least, most) = (initial_window::RANGE.start(), initial_window::RANGE.end());
    clap::value_parser!(u32).range(i64::from(*least)..=i64::from(*most))
}

/// Value of `--forward`: `LISTEN=DESTINATION`.
#[derive(Debug, Clone)]
pub(crate) struct Forward {
    pub(crate) listen: SocketAddr,
    pub(crate) destination: Destination,
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "expected LISTEN=DESTINATION, for example 127.0.0.1:8080=10.0.0.1:80";
        let (listen, destination) = text.split_once('=').ok_or(form)?;
        Ok(Self {
            listen: listen.parse().map_err(|_| form)?,
            destination: destination
                .parse::<Destination>()
                .map_err(|e| e.to_string())?,
        })
    }
}

/// Value of `--convert`: an address; by default, with the port of the Convert service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConvertAddress(pub(crate) SocketAddr);

impl FromStr for ConvertAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bracketed = text
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'));
        let ip = || match bracketed {
            Some(ipv6) => ipv6.parse::<Ipv6Addr>().map(IpAddr::from),
            None => text.parse::<IpAddr>(),
        };
        let alone = |_| ip().map(|ip| (ip, convert::PORT).into());
        let address = text.parse::<SocketAddr>().or_else(alone);
        address
            .map(Self)
            .map_err(|_| "expected ADDRESS, ADDRESS:PORT, [IPv6] or [IPv6]:PORT".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_of_convert_may_be_missing() {
        for (text, address) in [
            ("192.0.2.1", "192.0.2.1:5124"),
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("::", "[::]:5124"),
            ("[::]", "[::]:5124"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80"),
        ] {
            let parsed: ConvertAddress = text.parse().unwrap();
            assert_eq!(parsed.0.to_string(), address);
        }
        for text in ["[192.0.2.1]", "[::", "::]", "[]", ":80", "[::]:", "host"] {
            assert!(text.parse::<ConvertAddress>().is_err(), "{text}");
        }
    }
}
