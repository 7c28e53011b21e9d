// SPDX-License-Identifier: MIT OR Apache-2.0
//! The far leg of a client's requests, and the transfer over it.

use crate::{
    config::{profile::Profile, settings::Mode},
    faults::fault::Fault,
    leg::candidates::Candidates,
    peers::pool::PeerPools,
    route::{
        Route,
        far::Far,
        local::{self, LocalAccess, Origin},
        request::Request,
    },
    session::Session,
    transfer::{
        self, End, Means,
        striped::{self, Ends},
    },
};
use longhaul_admission::lookups::LookupQuota;
use longhaul_admission::rate_limits::Direction;
use longhaul_interception::flow::Flow;
use longhaul_protocol::{destination::Destination, failure::Failure};
use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

impl Session {
    /// Opens the far leg and stores it for the record.
    pub(crate) async fn open(&self, request: &Request) -> Result<Far, Fault> {
        self.open_by(request, &self.ready).await
    }

    /// Opens the far leg without a pooled connection.
    pub(crate) async fn open_anew(&self, request: &Request) -> Result<Far, Fault> {
        self.open_by(request, &PeerPools::default()).await
    }

    /// Repeats the request over a single leg, for a peer that has refused to read it. The client's
    /// bytes were counted before.
    pub(crate) async fn open_unstriped(&self, request: &Request) -> Result<Far, Fault> {
        let introduced = self.introduce(request);
        let wanted = introduced.as_ref().unwrap_or(request);
        // By now the peer is known to refuse groups.
        let far = Box::pin(self.route(&PeerPools::default()).open(wanted)).await?;
        self.leaves_by(&far);
        Ok(far)
    }

    /// Opens the far leg and waits for the peer's answer, if there is a peer. If a pooled
    /// connection is found dead, a new one is opened.
    pub(crate) async fn open_answered(&self, request: &Request) -> Result<Far, Fault> {
        let mut far = self.open(request).await?;
        let mut answer = far.answer().await;
        if answer.is_err() && far.was_stale() {
            far = self.open_anew(request).await?;
            answer = far.answer().await;
        }
        if answer.is_err() && far.take_back().is_some() {
            far = self.open_unstriped(request).await?;
            answer = far.answer().await;
        }
        while answer.is_err() && self.has_other_way(&far, request).await {
            far = self.open_anew(request).await?;
            answer = far.answer().await;
        }
        answer.map(|()| far)
    }

    /// Returns, after a failure of `far`, whether the request may be repeated over another chain.
    /// Each time, one more peer is down.
    pub(crate) async fn has_other_way(&self, far: &Far, request: &Request) -> bool {
        far.has_lost_peer().await && self.route(&self.ready).has_hope(request)
    }

    async fn open_by(&self, request: &Request, ready: &PeerPools) -> Result<Far, Fault> {
        self.asks_for(request.destination.to_string());
        self.first_byte.asked_unless_waiting();
        let introduced = self.introduce(request);
        let wanted = introduced.as_ref().unwrap_or(request);
        let far = match self.opened_ahead(&request.destination) {
            Some(far) => Self::greet(far.at_home_here()?, &wanted.early).await?,
            None => self.connect(ready, wanted).await?,
        };
        self.count(Direction::Up, request.early.len());
        self.leaves_by(&far);
        Ok(far)
    }

    /// Opens the far leg and records the time that this took.
    async fn connect(&self, ready: &PeerPools, wanted: &Request) -> Result<Far, Fault> {
        let begin = Instant::now();
        let far = Box::pin(self.route(ready).open(wanted)).await?;
        self.listener.counters.times.connect.add(begin.elapsed());
        Ok(far)
    }

    /// Sends the first bytes over a leg that was opened in advance.
    async fn greet(far: Far, first: &[u8]) -> Result<Far, Failure> {
        let written = far.send_first(first).await;
        written.map_err(|error| Failure::from_connect(&error))?;
        Ok(far)
    }

    fn route<'a>(&'a self, ready: &'a PeerPools) -> Route<'a> {
        Route {
            config: &self.config,
            peers: &self.peers,
            ready,
            listener: &self.listener_config.name,
            client: self.client_address.ip().to_canonical(),
            lookup_quota: Some(self.lookup_quota()),
            direct_fallback: self.listener_config.direct_fallback,
            local: self.local_access(),
        }
    }

    fn local_access(&self) -> LocalAccess<'_> {
        let origin = match self.asks_for_others.load(Relaxed) {
            true => Origin::Elsewhere,
            false => Origin::Addresses(&self.listener_config, [self.sender, self.client_address]),
        };
        let allowed = self.config.allow_local || local::is_meant(&self.listener_config.kind);
        LocalAccess::new(origin, allowed, self.relay.listeners.addresses())
    }

    fn lookup_quota(&self) -> LookupQuota<'_> {
        LookupQuota {
            lookups: &self.relay.lookups,
            account: &self.account,
        }
    }

    /// Resolves `destination` to its addresses.
    pub(crate) async fn resolve(
        &self,
        destination: &Destination,
    ) -> Result<Vec<SocketAddr>, Failure> {
        let candidates = Candidates::of(destination, Some(self.lookup_quota())).await?;
        Ok(candidates.known())
    }

    /// Returns the profile of a direct leg to `destination`, or `None` if the rules lead through
    /// peers.
    pub(crate) fn straight_way(
        &self,
        destination: &Destination,
    ) -> Result<Option<Arc<Profile>>, Failure> {
        self.route(&self.ready).straight(destination)
    }

    /// Returns the profile of a direct leg to a destination that is not known yet.
    pub(crate) fn straight_way_to_anyone(&self) -> Result<Option<Arc<Profile>>, Failure> {
        self.route(&self.ready).straight_to_anyone()
    }

    /// Stores the far leg, for the record and for the close.
    pub(crate) fn leaves_by(&self, far: &Far) {
        self.see_last_of_far();
        let mut way_out = self.way_out();
        way_out.next_hop = Some(far.address);
        way_out.far = Some(far.stream.carrier().clone());
        way_out.trunk = far.group.as_ref().map(|group| group.trunk.clone());
        way_out.peer.clone_from(&far.peer);
        way_out.legs += 1;
    }

    /// Returns the far leg that was opened before the client's SYN was answered, if there is one.
    fn opened_ahead(&self, destination: &Destination) -> Option<Far> {
        match destination {
            Destination::Address(to) => self
                .listener
                .preconnected
                .take(Flow::new(self.client_address, *to)),
            Destination::Name(..) => None,
        }
    }

    /// Relays between the client and `far` until the connection ends.
    pub(crate) async fn transfer(&self, far: &Far, on_success: impl AsRef<[u8]>) -> End {
        let near = self.near();
        let mode = match near.needs_copy() || far.stream.needs_copy() {
            true => Mode::Copy,
            false => far.mode.or(self.config.far.mode).unwrap_or_default(),
        };
        self.way_out().mode = Some(mode);
        self.is_tunnel();
        let means = Means {
            pool: &self.pool,
            counters: &self.listener.counters,
            traffic: &self.traffic,
            pauses: &self.pauses,
            first_byte: &self.first_byte,
            limits: &self.limits,
            mode,
            client_heard: &far.client_heard,
        };
        if self.founder.get().is_none() && far.group.is_none() {
            return transfer::run(&near, far, on_success.as_ref(), &means).await;
        }
        let ends = Ends {
            near: &near,
            founder: self.founder.get().map(Box::as_ref),
            far,
            ready: &self.ready,
        };
        Box::pin(striped::run(&ends, on_success.as_ref(), &means)).await
    }

    /// Takes a sample of the present far leg before another one replaces it.
    fn see_last_of_far(&self) {
        let way_out = self.last_way_out();
        if self.relay.sampler.is_enabled() && way_out.far.is_some() {
            self.relay
                .sampler
                .record(self.glimpse(&way_out), &self.seen_last);
        }
    }
}
