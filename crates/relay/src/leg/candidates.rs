// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of one destination in the order of attempts: IPv6 first, then alternating (RFC 8305
//! §4). Addresses that a lookup returns later are included.

use crate::leg::resolver::{Addresses, Answers, Resolver};
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
    left: usize,
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
    due: Option<BoxFuture<'static, Addresses>>,
}

impl Family {
    fn asked(due: BoxFuture<'static, Addresses>) -> Self {
        Self {
            known: VecDeque::new(),
            due: Some(due),
        }
    }

    /// Waits for the lookup; forever if there is none.
    async fn answer(&mut self) -> Result<(), Failure> {
        let Some(due) = &mut self.due else {
            return std::future::pending().await;
        };
        let answer = due.await;
        self.due = None;
        self.known.extend(answer?);
        Ok(())
    }
}

impl Families {
    fn asked(answers: Answers) -> Self {
        Self {
            ipv6: Family::asked(answers.ipv6),
            ipv4: Family::asked(answers.ipv4),
        }
    }

    fn is_known(&self) -> bool {
        !(self.ipv6.known.is_empty() && self.ipv4.known.is_empty())
    }

    fn is_due(&self) -> bool {
        self.ipv6.due.is_some() || self.ipv4.due.is_some()
    }

    /// Waits for the next lookup to end.
    async fn more(&mut self) -> Result<(), Failure> {
        select! {
            biased;
            answer = self.ipv6.answer() => answer,
            answer = self.ipv4.answer() => answer,
        }
    }

    /// Waits for the first addresses, and then up to the resolution delay for IPv6 ones.
    async fn first(&mut self) -> Result<(), Failure> {
        let mut outcome = Err(Failure::NameNotFound);
        while self.is_due() && !self.is_known() {
            let answer = self.more().await;
            outcome = answer.and(outcome);
        }
        if !self.is_known() {
            return outcome;
        }
        if self.ipv6.due.is_some() {
            // IPv4 addresses are known, so this lookup may fail.
            let _ = timeout(RESOLUTION_DELAY, self.ipv6.answer()).await;
        }
        Ok(())
    }
}

impl<'a> Candidates<'a> {
    /// Resolves `destination`. A lookup for a client counts against its `lookup_quota`.
    pub(crate) async fn of(
        destination: &Destination,
        lookup_quota: Option<LookupQuota<'a>>,
    ) -> Result<Self, Failure> {
        match destination {
            Destination::Address(address) => Ok(Self::one(*address)),
            Destination::Name(name, port) => Self::find(name.as_str(), *port, lookup_quota).await,
        }
    }

    fn one(address: SocketAddr) -> Self {
        let mut families = Families::default();
        families.ipv6.known.push_back(address.ip());
        Self {
            port: address.port(),
            families,
            ipv4_is_next: false,
            left: 1,
            permit: None,
        }
    }

    /// Resolves the first of the names that `text` may stand for and that has addresses.
    async fn find(
        text: &str,
        port: u16,
        lookup_quota: Option<LookupQuota<'a>>,
    ) -> Result<Self, Failure> {
        let resolver = Resolver::of_this_thread()?;
        let permit = match lookup_quota {
            Some(lookup_quota) => Some(lookup_quota.acquire().await),
            None => None,
        };
        let mut candidates = Self {
            port,
            families: Families::default(),
            ipv4_is_next: false,
            left: ADDRESSES_MAX,
            permit,
        };
        let mut outcome = Err(Failure::NameNotFound);
        for name in resolver.names(text)? {
            candidates.families = Families::asked(resolver.ask(&name));
            outcome = candidates.begin().await;
            if matches!(outcome, Ok(()) | Err(Failure::Exhausted)) {
                break;
            }
        }
        outcome.map(|()| candidates)
    }

    /// Waits for the first addresses.
    async fn begin(&mut self) -> Result<(), Failure> {
        let first = self.families.first();
        match &self.permit {
            Some(permit) => permit.run(first).await,
            None => first.await,
        }
    }

    /// Whether `next` has an address now.
    pub(crate) fn has_next(&self) -> bool {
        self.left > 0 && self.families.is_known()
    }

    /// Returns the next address to try.
    pub(crate) fn next(&mut self) -> Option<SocketAddr> {
        let Families { ipv6, ipv4 } = &mut self.families;
        let (first, second) = match self.ipv4_is_next {
            true => (ipv4, ipv6),
            false => (ipv6, ipv4),
        };
        self.left = self.left.checked_sub(1)?;
        let found = first.known.pop_front();
        let ip = found.or_else(|| second.known.pop_front())?;
        self.ipv4_is_next = ip.is_ipv6();
        Some((ip, self.port).into())
    }

    /// Whether a pending lookup may return more addresses.
    pub(crate) fn is_pending(&self) -> bool {
        self.left > 0 && self.families.is_due()
    }

    /// Waits until a lookup has ended. A failure is ignored: addresses were found before.
    pub(crate) async fn more(&mut self) {
        let next = async {
            let _ = self.families.more().await;
            Ok(())
        };
        let outcome = match &self.permit {
            Some(permit) => permit.run(next).await,
            None => next.await,
        };
        if outcome.is_err() {
            (self.families.ipv6.due, self.families.ipv4.due) = (None, None);
        }
        if !self.families.is_due() {
            self.permit = None;
        }
    }

    /// Returns all addresses known now.
    pub(crate) fn known(mut self) -> Vec<SocketAddr> {
        std::iter::from_fn(|| self.next()).collect()
    }
}
