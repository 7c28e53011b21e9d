// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asynchronous resolver of host names: /etc/hosts first, then the name servers of
//! /etc/resolv.conf, with its search domains and options (resolv.conf(5)). Both files are read
//! again when they change. nsswitch.conf is ignored.
//!
//! Each thread with an event loop has its own resolver, because a resolver's sockets belong to the
//! event loop that opened them.

use crate::leg::name_servers::{Addresses, NameServers, addresses};
use futures_util::future::BoxFuture;
use hickory_resolver::{
    Hosts,
    config::{NameServerConfig, ResolverConfig, ResolverOpts},
    net::NetError,
    proto::{
        op::Query,
        rr::{Name, RecordType},
    },
    system_conf::read_system_conf,
};
use longhaul_protocol::failure::Failure;
use std::{
    cell::RefCell,
    fs,
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::MetadataExt as _,
    sync::Arc,
    time::{Duration, Instant},
};

/// Files that the resolver reads.
const FILES: [&str; 2] = ["/etc/hosts", "/etc/resolv.conf"];

/// Time between two checks for changes of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Resolver configured from the files.
pub(crate) struct Resolver {
    hosts: Hosts,
    servers: NameServers,
    search: Vec<Name>,
    ndots: usize,
}

/// Resolver of a thread, and the state of the files it was configured from.
struct CachedResolver {
    resolver: Arc<Resolver>,
    files: FileStates,
    checked_at: Instant,
}

type FileStates = [Option<(u64, i64, i64, u64)>; FILES.len()];

thread_local! {
    static CACHED: RefCell<Option<CachedResolver>> = const { RefCell::new(None) };
}

/// Lookups of one name, one for each family.
pub(crate) struct PendingLookups {
    pub(crate) ipv6: BoxFuture<'static, Addresses>,
    pub(crate) ipv4: BoxFuture<'static, Addresses>,
}

impl Resolver {
    /// Returns the calling thread's resolver, up to date with the files.
    pub(crate) fn for_current_thread() -> Result<Arc<Self>, Failure> {
        CACHED.with_borrow_mut(|cached| {
            let now = Instant::now();
            if let Some(cached) = cached {
                if now < cached.checked_at + CHECK_INTERVAL {
                    return Ok(cached.resolver.clone());
                }
                cached.checked_at = now;
                if cached.files == file_states() {
                    return Ok(cached.resolver.clone());
                }
            }
            let (files, looked) = (file_states(), now);
            let resolver = Arc::new(Self::read().map_err(|_| Failure::Other)?);
            *cached = Some(CachedResolver {
                resolver: resolver.clone(),
                files,
                checked_at: looked,
            });
            Ok(resolver)
        })
    }

    fn read() -> Result<Self, NetError> {
        // Without a usable file, resolv.conf(5) prescribes the name server of this host.
        let (config, options) = read_system_conf().unwrap_or_else(|_| {
            let here = NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into());
            let config = ResolverConfig::from_parts(None, Vec::new(), vec![here]);
            (config, ResolverOpts::default())
        });
        let mut search = config.search().to_vec();
        if search.is_empty() {
            search.extend(config.domain().cloned());
        }
        let ndots = options.ndots;
        Ok(Self {
            hosts: Hosts::from_system().unwrap_or_default(),
            servers: NameServers::new(config.name_servers(), &options)?,
            search,
            ndots,
        })
    }

    /// Fully qualified names that `text` may stand for, in the order of attempts.
    pub(crate) fn names(&self, text: &str) -> Result<Vec<Name>, Failure> {
        let name = Name::from_str_relaxed(text).map_err(|_| Failure::NameNotFound)?;
        let mut itself = name.clone();
        itself.set_fqdn(true);
        let mut names = vec![itself];
        if name.is_fqdn() || self.is_in_hosts(&names[0]) || name.is_localhost() {
            return Ok(names);
        }
        let below = |domain: &Name| name.clone().append_domain(domain).ok();
        let searched = self.search.iter().filter_map(below);
        let dots = text.matches('.').count();
        let at = if dots >= self.ndots { names.len() } else { 0 };
        names.splice(at..at, searched);
        Ok(names)
    }

    fn is_in_hosts(&self, name: &Name) -> bool {
        let found = |record| !self.in_hosts(name, record).is_empty();
        found(RecordType::A) || found(RecordType::AAAA)
    }

    fn in_hosts(&self, name: &Name, record: RecordType) -> Vec<IpAddr> {
        let query = Query::query(name.clone(), record);
        let found = self.hosts.lookup_static_host(&query);
        found.map_or_else(Vec::new, |lookup| addresses(&lookup))
    }

    /// Looks up the addresses of `name`, which is fully qualified. A name in /etc/hosts has no
    /// other addresses.
    pub(crate) fn look_up(self: &Arc<Self>, name: &Name) -> PendingLookups {
        if self.is_in_hosts(name) {
            let known = |record| -> BoxFuture<'static, Addresses> {
                Box::pin(std::future::ready(Ok(self.in_hosts(name, record))))
            };
            return PendingLookups {
                ipv6: known(RecordType::AAAA),
                ipv4: known(RecordType::A),
            };
        }
        let query = |record| -> BoxFuture<'static, Addresses> {
            let (resolver, name) = (self.clone(), name.clone());
            Box::pin(async move { resolver.servers.look_up(&name, record).await })
        };
        PendingLookups {
            ipv6: query(RecordType::AAAA),
            ipv4: query(RecordType::A),
        }
    }
}

/// Inode, modification time and size of each file, which reveal a change.
fn file_states() -> FileStates {
    FILES.map(|path| {
        let file = fs::metadata(path).ok()?;
        Some((file.ino(), file.mtime(), file.mtime_nsec(), file.size()))
    })
}
