// SPDX-License-Identifier: MIT OR Apache-2.0
//! The name servers of /etc/resolv.conf, asked one after the other.
//!
//! A query stays open while others follow, to the same server or to the next one: whichever answer comes first counts,
//! also one that is later than the `timeout` of resolv.conf(5). A server that fails (SERVFAIL, REFUSED, no answer) says
//! nothing about the name, so the next one is asked.

use crate::leg::name_server_connections::NameServerConnections;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use hickory_resolver::{
    Resolver,
    config::{NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    net::{DnsError, NetError, NoRecords},
    proto::{
        op::ResponseCode,
        rr::{Name, RecordType},
    },
};
use longhaul_admission::exhaustion;
use longhaul_protocol::failure::Failure;
use std::{
    io,
    net::IpAddr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};
use tokio::{select, time::sleep};

/// Most servers that are asked, as in glibc.
const SERVERS_MAX: usize = 3;

/// Time that a server has before the next one is asked, too.
const HEAD_START: Duration = Duration::from_millis(300);

/// Bounds of glibc for `timeout` and `attempts`.
const TIMEOUT_MAX: Duration = Duration::from_secs(30);
const ATTEMPTS_MAX: usize = 5;

/// Answers that a thread caches, for as long as their TTL allows; about 1 KiB each.
const CACHE_SIZE: u64 = 1024;

/// Concurrent requests over one TCP connection to a name server; further ones fail.
const TCP_REQUESTS_MAX: usize = 1024;

/// Addresses of one family, or the cause of failure.
pub(crate) type Addresses = Result<Vec<IpAddr>, Failure>;

/// Name servers, and the one that is asked first.
pub(super) struct NameServers {
    servers: Vec<Resolver<NameServerConnections>>,
    /// The last one that answered.
    first: AtomicUsize,
}

impl NameServers {
    /// Creates clients of the servers. Options are those of resolv.conf(5): a server has `timeout` × `attempts` to
    /// answer.
    pub(super) fn new(
        configs: &[NameServerConfig],
        options: &ResolverOpts,
    ) -> Result<Self, NetError> {
        let configs = &configs[..configs.len().min(SERVERS_MAX)];
        let timeout = options.timeout.clamp(Duration::from_secs(1), TIMEOUT_MAX);
        let attempts = options.attempts.clamp(1, ATTEMPTS_MAX) as u32;
        let mut options = options.clone();
        options.timeout = timeout * attempts;
        options.attempts = 0;
        options.cache_size = CACHE_SIZE / configs.len().max(1) as u64;
        options.max_active_requests = TCP_REQUESTS_MAX;
        options.use_hosts_file = ResolveHosts::Never;
        let servers = configs.iter().map(|config| client(config, &options));
        Ok(Self {
            servers: servers.collect::<Result<_, _>>()?,
            first: AtomicUsize::new(0),
        })
    }

    /// Looks up the addresses of `name`, which is fully qualified.
    pub(super) async fn look_up(&self, name: &Name, record: RecordType) -> Addresses {
        let mut failure = Failure::NameNotFound;
        let mut queries = FuturesUnordered::new();
        let mut others = self.in_order();
        loop {
            if let Some(server) = others.next() {
                queries.push(async move { (server, self.ask(server, name, record).await) });
            }
            select! {
                biased;
                Some((server, answer)) = queries.next() => match answer {
                    Err(error) if error != Failure::NameNotFound => failure = graver(failure, error),
                    answer => {
                        self.first.store(server, Relaxed);
                        return answer;
                    }
                },
                () = sleep(HEAD_START), if others.len() > 0 => {}
                else => return Err(failure),
            }
        }
    }

    /// Indices of the servers, in the order of queries.
    fn in_order(&self) -> impl ExactSizeIterator<Item = usize> {
        let (first, count) = (self.first.load(Relaxed), self.servers.len());
        (0..count).map(move |nth| (first + nth) % count)
    }

    async fn ask(&self, server: usize, name: &Name, record: RecordType) -> Addresses {
        let found = exhaustion::retry_on_exhaustion(async || {
            let found = self.servers[server].lookup(name.clone(), record).await;
            found.map_err(to_io_error)
        });
        match found.await {
            Ok(lookup) => Ok(addresses(&lookup)),
            Err(error) => Err(match error.kind() {
                io::ErrorKind::TimedOut => Failure::TimedOut,
                io::ErrorKind::NotFound => Failure::NameNotFound,
                _ => Failure::NameServers,
            }),
        }
    }
}

fn client(
    config: &NameServerConfig,
    options: &ResolverOpts,
) -> Result<Resolver<NameServerConnections>, NetError> {
    let config = ResolverConfig::from_parts(None, Vec::new(), vec![config.clone()]);
    let mut builder = Resolver::builder_with_config(config, NameServerConnections::default());
    *builder.options_mut() = options.clone();
    builder.build()
}

/// Converts a resolver error. Without free descriptors the resolver returns errors of its own, so
/// the descriptor limit is checked.
fn to_io_error(error: NetError) -> io::Error {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) if means_no_records(&none) => {
            io::ErrorKind::NotFound.into()
        }
        NetError::Dns(error) => io::Error::other(error),
        NetError::Timeout => io::ErrorKind::TimedOut.into(),
        error => exhaustion::descriptor_error().unwrap_or_else(|| io::Error::other(error)),
    }
}

/// Whether the answer means that the name has no such record, unlike SERVFAIL or REFUSED (RFC 1035
/// §4.1.1).
fn means_no_records(answer: &NoRecords) -> bool {
    matches!(
        answer.response_code,
        ResponseCode::NoError | ResponseCode::NXDomain
    )
}

/// Returns the failure that says more: whether a name exists is unknown if a server failed or did not answer.
pub(super) fn graver(one: Failure, other: Failure) -> Failure {
    let known = [
        Failure::NameNotFound,
        Failure::TimedOut,
        Failure::NameServers,
    ];
    let rank = |failure| {
        known
            .iter()
            .position(|known| *known == failure)
            .unwrap_or(known.len())
    };
    if rank(other) > rank(one) { other } else { one }
}

/// Addresses of an answer; IPv4-mapped ones become IPv4.
pub(super) fn addresses(lookup: &hickory_resolver::lookup::Lookup) -> Vec<IpAddr> {
    let ip = |record: &hickory_resolver::proto::rr::Record| record.data.ip_addr();
    let found = lookup.answers().iter().filter_map(ip);
    found.map(|ip| ip.to_canonical()).collect()
}
