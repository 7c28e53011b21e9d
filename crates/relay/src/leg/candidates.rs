// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of one destination in the order of attempts: IPv6 first, then alternating (RFC 8305
//! §4). Addresses that a lookup returns later are included.

use crate::leg::{
    name_servers::{Addresses, graver},
    resolver::{PendingLookups, Resolver},
};
use futures_util::future::BoxFuture;
use longhaul_admission::lookups::{LookupPermit, LookupQuota};
use longhaul_protocol::destination::Destination;
use longhaul_protocol::failure::Failure;
use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use tokio::{select, time::timeout};
use tracing::debug;

/// Time for which IPv4 addresses wait for IPv6 ones (RFC 8305 §3, Resolution Delay).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// Addresses to try, and pending lookups for more.
pub(crate) struct Candidates<'a> {
    port: u16,
    families: Families,
    ipv4_is_next: bool,
    /// Number of addresses that `next` may still return.
    remaining: usize,
    /// Permit for the lookup.
    permit: Option<LookupPermit<'a>>,
}

#[derive(Default)]
struct Families {
    ipv6: Family,
    ipv4: Family,
}

/// Known addresses of one family, and the pending lookup for more.
#[derive(Default)]
struct Family {
    known: VecDeque<IpAddr>,
    lookup: Option<BoxFuture<'static, Addresses>>,
}

impl Family {
    fn from_lookup(lookup: BoxFuture<'static, Addresses>) -> Self {
        Self {
            known: VecDeque::new(),
            lookup: Some(lookup),
        }
    }

    /// Waits for the lookup; forever if there is none.
    async fn await_lookup(&mut self) -> Result<(), Failure> {
        let Some(lookup) = &mut self.lookup else {
            return std::future::pending().await;
        };
        let answer = lookup.await;
        self.lookup = None;
        self.known.extend(answer?);
        Ok(())
    }
}

impl Families {
    fn from_lookups(lookups: PendingLookups) -> Self {
        Self {
            ipv6: Family::from_lookup(lookups.ipv6),
            ipv4: Family::from_lookup(lookups.ipv4),
        }
    }

    fn has_address(&self) -> bool {
        !(self.ipv6.known.is_empty() && self.ipv4.known.is_empty())
    }

    fn has_lookup(&self) -> bool {
        self.ipv6.lookup.is_some() || self.ipv4.lookup.is_some()
    }

    /// Waits for the next lookup to end.
    async fn await_next_lookup(&mut self) -> Result<(), Failure> {
        select! {
            biased;
            answer = self.ipv6.await_lookup() => answer,
            answer = self.ipv4.await_lookup() => answer,
        }
    }

    /// Waits for the first addresses, and then up to the resolution delay for IPv6 ones.
    async fn await_first_addresses(&mut self) -> Result<(), Failure> {
        let mut failure = Failure::NameNotFound;
        while self.has_lookup() && !self.has_address() {
            if let Err(error) = self.await_next_lookup().await {
                failure = graver(failure, error);
            }
        }
        if !self.has_address() {
            return Err(failure);
        }
        if self.ipv6.lookup.is_some() {
            // IPv4 addresses are known, so this lookup may fail.
            let _ = timeout(RESOLUTION_DELAY, self.ipv6.await_lookup()).await;
        }
        Ok(())
    }
}

/// Whether a failure ends the search, as in glibc. A server that is silent would be so for each further name, too.
fn may_end_search(failure: Failure) -> bool {
    !matches!(failure, Failure::NameNotFound | Failure::NameServers)
}

impl<'a> Candidates<'a> {
    /// Resolves `destination`. A lookup for a client counts against its `lookup_quota`.
    pub(crate) async fn resolve(
        destination: &Destination,
        lookup_quota: Option<LookupQuota<'a>>,
    ) -> Result<Self, Failure> {
        match destination {
            Destination::Address(address) => Ok(Self::single(*address)),
            Destination::Name(name, port) => {
                Self::look_up(name.as_str(), *port, lookup_quota).await
            }
        }
    }

    fn single(address: SocketAddr) -> Self {
        let mut families = Families::default();
        families.ipv6.known.push_back(address.ip());
        Self {
            port: address.port(),
            families,
            ipv4_is_next: false,
            remaining: 1,
            permit: None,
        }
    }

    /// Resolves the first of the names that `text` may stand for and that has addresses.
    async fn look_up(
        text: &str,
        port: u16,
        lookup_quota: Option<LookupQuota<'a>>,
    ) -> Result<Self, Failure> {
        let resolver = Resolver::for_current_thread()?;
        debug!(name = text, "waits for a permit to look up");
        let permit = match lookup_quota {
            Some(lookup_quota) => Some(lookup_quota.acquire().await),
            None => None,
        };
        let mut candidates = Self {
            port,
            families: Families::default(),
            ipv4_is_next: false,
            remaining: ADDRESSES_MAX,
            permit,
        };
        let mut failure = Failure::NameNotFound;
        for name in resolver.names(text)? {
            debug!(%name, "looked up");
            candidates.families = Families::from_lookups(resolver.look_up(&name));
            match candidates.await_first_addresses().await {
                Ok(()) => {
                    debug!(%name, "resolved");
                    return Ok(candidates);
                }
                Err(error) => {
                    debug!(%name, "not resolved: {error}");
                    failure = graver(failure, error);
                }
            }
            if may_end_search(failure) {
                break;
            }
        }
        Err(failure)
    }

    /// Waits for the first addresses.
    async fn await_first_addresses(&mut self) -> Result<(), Failure> {
        let first = self.families.await_first_addresses();
        match &self.permit {
            Some(permit) => permit.run(first).await,
            None => first.await,
        }
    }

    /// Whether `next` has an address now.
    pub(crate) fn has_next(&self) -> bool {
        self.remaining > 0 && self.families.has_address()
    }

    /// Returns the next address to try.
    pub(crate) fn next(&mut self) -> Option<SocketAddr> {
        let Families { ipv6, ipv4 } = &mut self.families;
        let (first, second) = if self.ipv4_is_next {
            (ipv4, ipv6)
        } else {
            (ipv6, ipv4)
        };
        self.remaining = self.remaining.checked_sub(1)?;
        let found = first.known.pop_front();
        let ip = found.or_else(|| second.known.pop_front())?;
        self.ipv4_is_next = ip.is_ipv6();
        Some((ip, self.port).into())
    }

    /// Whether a pending lookup may return more addresses.
    pub(crate) fn is_pending(&self) -> bool {
        self.remaining > 0 && self.families.has_lookup()
    }

    /// Waits until a lookup has ended. A failure is ignored: addresses were found before.
    pub(crate) async fn await_lookup(&mut self) {
        let next = async {
            let _ = self.families.await_next_lookup().await;
            Ok(())
        };
        let outcome = match &self.permit {
            Some(permit) => permit.run(next).await,
            None => next.await,
        };
        if outcome.is_err() {
            (self.families.ipv6.lookup, self.families.ipv4.lookup) = (None, None);
        }
        if !self.families.has_lookup() {
            self.permit = None;
        }
    }

    /// Returns all addresses known now.
    pub(crate) fn into_addresses(mut self) -> Vec<SocketAddr> {
        std::iter::from_fn(|| self.next()).collect()
    }
}
