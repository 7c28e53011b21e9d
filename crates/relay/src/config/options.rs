// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options that are flags and keys of the configuration file at once, in the tables of the file. The first paragraph of
//! a comment is the flag's help; the reference configuration and the JSON Schema have all of it. Keys without a flag
//! have `#[arg(skip)]`.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help and reference print the comments unchanged"
)]

use crate::config::limits::{CONNECTIONS_RANGE, LOOKUPS_RANGE, WORKERS_RANGE};
#[cfg(test)]
use crate::config::schema;
use crate::config::settings::{RecordFormat, deserialize_optional_address, socket_address};
use clap::builder::RangedI64ValueParser;
use longhaul_protocol::networks::Prefix;
use longhaul_units::{Bytes, Time};
use serde::Deserialize;
use std::{net::SocketAddr, ops::RangeInclusive, path::PathBuf};

/// Settings of limits.
#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[group(skip)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitSettings {
    /// Time limit of a connection attempt, or of a peer's answer [default: 10s]
    ///
    /// Suits: paths up to some seconds of round trip, with two lost SYNs.
    #[arg(long, value_name = "TIME")]
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) connect_timeout: Option<Time>,

    /// Time limit for a client's request; over HTTP, from its first byte [default: 10s]
    ///
    /// An HTTP client gets 408. Memory: 4 KiB and the head each meanwhile, 64 KiB at most.
    #[arg(long, value_name = "TIME")]
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) handshake_timeout: Option<Time>,

    /// Disconnect an HTTP client that sends no request for this time, before its first one or between two [default:
    /// 5m]
    ///
    /// Browsers open sockets before they have a request. The default suits programs that report once a minute. While
    /// the relay has as many connections as it may, those idle longest are closed for new clients. Memory: 32 KiB
    /// after the first request, and 32 KiB with the connection to its last server, which is kept.
    #[arg(long, value_name = "TIME")]
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) http_idle_timeout: Option<Time>,

    /// Longest time without progress of an HTTP or FTP server that owes a response [default: 5m]
    ///
    /// Up to a quarter later the client gets 504, or a reset once the response has begun. The default suits long
    /// polls and large reports; servers that send nothing for longer need more. What a peer has accepted of an
    /// upload, up to 16MiB, counts as progress at 8kbit. Tunnels (CONNECT, upgrades) have the limit for idle tunnels
    /// instead. Memory: the leg and up to 200 KiB of heads and bodies meanwhile.
    #[arg(long, value_name = "TIME")]
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) response_timeout: Option<Time>,

    /// Reset a tunnel that was idle in both directions for this time, 1s to 7d; 0s means never [default: 2h]
    ///
    /// A tunnel is everything but http:// and ftp:// requests. The reset may come up to a quarter of the time later,
    /// at most a minute. The default suits sessions that people leave open, and is the time for which address
    /// translators keep an idle connection (RFC 5382). Less suits hosts with many careless clients. An open tunnel
    /// takes its two sockets, about 2.3 KiB here, and one of the connections that the relay may have.
    #[arg(long, value_name = "TIME")]
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) tunnel_idle_timeout: Option<Time>,

    /// Most connections at once, 1 to 1000000; more wait in the listen queue [default: 16384]. Each takes two
    /// descriptors and about 2.3 KiB when idle, besides its two kernel sockets. One that moves bytes takes up to 4
    /// more descriptors, two pipes, and as much as tcp_rmem and tcp_wmem allow
    ///
    /// The default suits a relay of a site. Without that many descriptors (LimitNOFILE=, ulimit -n) the limit is
    /// lower, and the log says so.
    #[arg(long = "max-connections", value_name = "N", value_parser = in_range(CONNECTIONS_RANGE))]
    #[cfg_attr(test, schemars(range(min = *CONNECTIONS_RANGE.start(), max = *CONNECTIONS_RANGE.end())))]
    pub(crate) connections: Option<u32>,

    /// Memory budget for the buffers of all legs, here and in the kernel. At least 64KiB [default: half of
    /// net.ipv4.tcp_mem's second value, or 1/32 of the machine's memory; at most a quarter of the control group's
    /// memory.max]
    ///
    /// While it is used up, new connections wait, and those that hold most are reset. With the default the kernel is
    /// never under memory pressure. In a network namespace or a container net.ipv4.tcp_mem can't be read; 1/32 of the
    /// machine's memory is the same by the kernel's own rule. --check-config prints the value. Suits: a host that relays
    /// beside other work; a container that does nothing else can have half of its memory.
    #[arg(long, value_name = "SIZE")]
    #[cfg_attr(test, schemars(with = "Option<schema::Bytes>", example = "2GiB"))]
    pub(crate) memory: Option<Bytes>,

    /// Most connections of one client address (of IPv6: one /64); more are reset. This machine's own programs and
    /// other relays have no limit [default: three times as many as are still free, which lets one client have three
    /// quarters of all]
    ///
    /// The own programs may act for many clients. Less than the default suits open networks.
    #[arg(long, value_name = "N", value_parser = in_range(CONNECTIONS_RANGE))]
    #[cfg_attr(test, schemars(range(min = *CONNECTIONS_RANGE.start(), max = *CONNECTIONS_RANGE.end()), example = 256))]
    pub(crate) connections_per_client: Option<u32>,

    /// Memory that one client address (of IPv6: one /64) may hold once the memory budget is used up and there are
    /// other clients, 64KiB and more. Its largest connections are reset until it holds no more [default: a quarter of
    /// the budget]
    ///
    /// Suits: several concurrent clients; one that fills a long fat path alone may need all of it.
    #[arg(long, value_name = "SIZE")]
    #[cfg_attr(test, schemars(with = "Option<schema::Bytes>", example = "512MiB"))]
    pub(crate) memory_per_client: Option<Bytes>,

    /// Reset a connection whose client or destination reads nothing for this time while data waits for it [default:
    /// 5m]
    ///
    /// Its receive window stays closed then. The default suits programs that read what they requested; players that
    /// people pause for longer need more. Memory: what the sockets hold meanwhile, up to tcp_rmem, tcp_wmem and two
    /// pipes per connection.
    #[arg(long, value_name = "TIME")]
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) stall_timeout: Option<Time>,

    /// Longest delay after wrong passwords, before another one for the same user from the same client address (of
    /// IPv6: one /64), 100ms to 8s; 0s means none [default: 8s]
    ///
    /// The default lets an address try seven passwords a minute for a user. Less suits clients that can't wait and
    /// passwords that no one can guess. Memory: 2 MiB per listener with users.
    #[arg(long, value_name = "TIME")]
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) password_delay: Option<Time>,

    /// Most concurrent name lookups for one client address (of IPv6: one /64), 1 to 1024; more wait [default: 64].
    /// Each takes up to 4 descriptors and about 16 KiB
    ///
    /// The default suits clients that are people; give more to other proxies. Other relays have no such limit.
    #[arg(long, value_name = "N", value_parser = in_range(LOOKUPS_RANGE))]
    #[cfg_attr(test, schemars(range(min = *LOOKUPS_RANGE.start(), max = *LOOKUPS_RANGE.end())))]
    pub(crate) lookups_per_client: Option<u32>,

    /// Worker threads, 1 to 1024, each with its own share of the connections [default: one per core]
    ///
    /// The default suits hosts that do nothing else. Memory: at most 64 idle pipes of 10 KiB (or buffers of 256 KiB)
    /// each.
    #[arg(long, value_name = "N", value_parser = in_range(WORKERS_RANGE))]
    #[cfg_attr(test, schemars(range(min = *WORKERS_RANGE.start(), max = *WORKERS_RANGE.end()), example = 2))]
    pub(crate) workers: Option<u16>,

    /// On SIGTERM or SIGINT, let connections continue for this long before they are reset [default: 10s]
    ///
    /// Give the service manager more (TimeoutStopSec=).
    #[arg(long, value_name = "TIME")]
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) grace: Option<Time>,

    /// Capacity of a splice pipe, 4KiB to 1GiB, used only while bytes move; below 1MiB costs CPU [default: 1MiB]
    ///
    /// The default suits paths of 10 Gbit/s.
    #[arg(long, value_name = "SIZE")]
    #[cfg_attr(test, schemars(with = "Option<schema::Bytes>"))]
    pub(crate) pipe_size: Option<Bytes>,
}

/// Settings of the record files.
#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[group(skip)]
#[command(next_help_heading = "Counters")]
pub(crate) struct CounterSettings {
    /// Write counters and one record per connection as JSON lines; "-" is standard output
    ///
    /// Default: none. Memory: at most 4096 records wait for the disk, 4 MiB; those beyond are counted as lost.
    #[arg(long = "counters", id = "counters", value_name = "FILE")]
    #[cfg_attr(test, schemars(example = "/var/log/longhaul/relay.jsonl"))]
    pub(crate) file: Option<PathBuf>,

    /// Write one record per connection, of HTTP clients one per request, as JSON lines, without counters; "-" is
    /// standard output
    ///
    /// Default: none. Memory: at most 4096 records of up to 3 KiB wait for the disk.
    #[arg(long, value_name = "FILE")]
    #[cfg_attr(test, schemars(example = "/var/log/longhaul/access.jsonl"))]
    pub(crate) access_log: Option<PathBuf>,

    /// Format of the access log: "json", or "common" (common log format), which has client, user, time, request,
    /// status and bytes alone [default: json]. The default suits programs; common suits log analysers of web servers.
    #[arg(skip)]
    pub(crate) access_log_format: Option<RecordFormat>,

    /// Clients without records in the access log, as networks: the health checks of load balancers.
    #[arg(skip)]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) access_log_except: Vec<Prefix>,

    /// Interval of further records of a tunnel while it is open, 1s to 7d: the bytes so far, and "open" in `ended`
    /// [default: 0s]. "0s" is never: each tunnel then has one record, at its end. 5m suits those who watch tunnels
    /// that last for hours. Needs access_log_format = "json". Memory: 0.5 KiB for each tunnel over HTTP, and its URL.
    #[arg(skip)]
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) access_log_interval: Option<Time>,

    /// Interval at which counters are written, 1ms and more [default: 1s]
    #[arg(long, value_name = "TIME")]
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) interval: Option<Time>,
}

/// Settings of the admin endpoint: health, metrics and the status page.
#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[group(skip)]
#[command(next_help_heading = "Counters")]
pub(crate) struct AdminSettings {
    /// Serve /healthz, /metrics (for Prometheus), /api/v1/… and a status page here; loopback only
    ///
    /// Without authentication. Default: none. Costs about a fiftieth of a core for 2,000 connections while it has
    /// readers; memory: 64 clients at 32 KiB and their responses.
    #[arg(long = "admin", id = "admin", value_name = "ADDR:PORT", value_parser = socket_address)]
    #[serde(deserialize_with = "deserialize_optional_address")]
    #[cfg_attr(test, schemars(with = "Option<String>", example = "127.0.0.1:9100"))]
    pub(crate) address: Option<SocketAddr>,

    /// Serve /healthz and /readyz alone here, to load balancers on any host
    ///
    /// Answers 200 or 503 and the status to everyone who can reach it. Default: none. Memory: 64 clients at 32 KiB.
    #[arg(long, value_name = "ADDR:PORT", value_parser = socket_address)]
    #[serde(deserialize_with = "deserialize_optional_address")]
    #[cfg_attr(test, schemars(with = "Option<String>", example = "192.0.2.1:9101"))]
    pub(crate) health: Option<SocketAddr>,
}

/// Parser of a number in this range.
fn in_range<T>(range: RangeInclusive<T>) -> RangedI64ValueParser<T>
where
    T: TryFrom<i64> + Into<i64> + Clone + Send + Sync + 'static,
{
    RangedI64ValueParser::new().range(range.start().clone().into()..=range.end().clone().into())
}

/// Takes each value that the flags give, and the file's where they give none.
macro_rules! override_with {
    ($file:expr, $flags:expr, $($option:ident),+) => {
        $(if $flags.$option.is_some() {
            $file.$option.clone_from(&$flags.$option);
        })+
    };
}

impl LimitSettings {
    /// Replaces the values that flags give.
    pub(crate) fn override_with(&mut self, flags: &Self) {
        override_with!(
            self,
            flags,
            connect_timeout,
            handshake_timeout,
            http_idle_timeout,
            response_timeout,
            tunnel_idle_timeout,
            connections,
            memory,
            connections_per_client,
            memory_per_client,
            stall_timeout,
            password_delay,
            lookups_per_client,
            workers,
            grace,
            pipe_size
        );
    }
}

impl CounterSettings {
    /// Replaces the values that flags give.
    pub(crate) fn override_with(&mut self, flags: &Self) {
        override_with!(self, flags, file, access_log, interval);
    }
}

impl AdminSettings {
    /// Replaces the values that flags give.
    pub(crate) fn override_with(&mut self, flags: &Self) {
        override_with!(self, flags, address, health);
    }
}
