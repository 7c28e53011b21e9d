// SPDX-License-Identifier: MIT OR Apache-2.0
//! The upstream leg of a client's requests, and the transfer over it.

use crate::{
    config::{profile::Profile, settings::Mode},
    faults::{
        fault::Fault,
        limited_leg::{LimitedLeg, ReportLimited},
    },
    leg::candidates::Candidates,
    peers::pool::PeerPools,
    route::{
        Route,
        local::{self, LocalAccess, Origin},
        request::Request,
        upstream_leg::UpstreamLeg,
    },
    session::Session,
    stripe::{outgoing_group::OutgoingGroup, stream::JoinableGroup},
    transfer::{
        self, End, Outcome, Progress, TransferContext,
        striped::{self, StripedLeg, StripedLegs},
    },
};
use longhaul_admission::lookups::LookupQuota;
use longhaul_admission::rate_limits::Direction;
use longhaul_interception::flow::Flow;
use longhaul_protocol::{destination::Destination, failure::Failure};
use longhaul_transport::leg::Leg;
use std::{
    future::pending,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::Poll,
    time::Instant,
};
use tokio::select;
use tracing::debug;

impl Session {
    /// Opens the upstream leg and stores it for the record.
    pub(crate) async fn open(&self, request: &Request) -> Result<UpstreamLeg, Fault> {
        self.open_with_pools(request, &self.worker.peer_pools).await
    }

    /// Opens the upstream leg without a pooled connection.
    pub(crate) async fn open_new_leg(&self, request: &Request) -> Result<UpstreamLeg, Fault> {
        self.open_with_pools(request, &PeerPools::default()).await
    }

    /// Opens the upstream leg and waits for the peer's answer, if there is a peer. A request that fails is repeated if
    /// that is safe ([`crate::route`]).
    pub(crate) async fn open_and_await_answer(
        &self,
        request: &Request,
    ) -> Result<UpstreamLeg, Fault> {
        let mut upstream_leg = self.open(request).await?;
        loop {
            let Err(fault) = upstream_leg.answer().await else {
                return Ok(upstream_leg);
            };
            if !self.may_repeat(&upstream_leg, request).await {
                return Err(fault);
            }
            upstream_leg = self.open_new_leg(request).await?;
        }
    }

    /// Returns, after a failure of `upstream_leg`, whether the request may be repeated over a new leg.
    pub(crate) async fn may_repeat(&self, upstream_leg: &UpstreamLeg, request: &Request) -> bool {
        let route = self.route(&self.worker.peer_pools);
        route.may_repeat(upstream_leg, request).await
    }

    async fn open_with_pools(
        &self,
        request: &Request,
        peer_pools: &PeerPools,
    ) -> Result<UpstreamLeg, Fault> {
        debug!(destination = %request.destination, "requested");
        self.set_destination(request.destination.to_string());
        self.activity.first_byte.start_unless_running();
        let with_header = self.with_proxy_header(request);
        let to_send = with_header.as_ref().unwrap_or(request);
        let upstream_leg = match self.take_preconnected(&request.destination) {
            Some(upstream_leg) => {
                Self::send_early_bytes(
                    upstream_leg.move_to_current_runtime()?,
                    &to_send.early_bytes,
                )
                .await?
            }
            None => self.connect(peer_pools, to_send).await?,
        };
        self.count_bytes(Direction::Up, request.early_bytes.len());
        self.set_upstream_leg(&upstream_leg);
        Ok(upstream_leg)
    }

    /// Opens the upstream leg and records the time that this took.
    async fn connect(
        &self,
        peer_pools: &PeerPools,
        to_send: &Request,
    ) -> Result<UpstreamLeg, Fault> {
        let begin = Instant::now();
        let opened = Box::pin(self.route(peer_pools).open(to_send)).await;
        if opened.as_ref().is_err_and(Fault::is_own_refusal) {
            self.listener.warnings.log_refused_destination(
                &self.listener.name(),
                self.client.address.ip(),
                &to_send.destination,
            );
        }
        let upstream_leg = opened?;
        self.listener.counters.times.connect.add(begin.elapsed());
        Ok(upstream_leg)
    }

    /// Sends the first bytes over a leg that was opened in advance.
    async fn send_early_bytes(
        upstream_leg: UpstreamLeg,
        first: &[u8],
    ) -> Result<UpstreamLeg, Failure> {
        let written = upstream_leg.send_early_bytes(first).await;
        written.map_err(|error| Failure::from_connect(&error))?;
        Ok(upstream_leg)
    }

    fn route<'a>(&'a self, peer_pools: &'a PeerPools) -> Route<'a> {
        Route {
            config: &self.setup.config,
            peers: &self.setup.peers,
            peer_pools,
            listener: &self.setup.listener_config.name,
            client: self.client.address.ip().to_canonical(),
            lookup_quota: Some(self.lookup_quota()),
            direct_fallback: self.setup.listener_config.direct_fallback,
            local: self.local_access(),
        }
    }

    fn local_access(&self) -> LocalAccess<'_> {
        let origin = if self.client.acts_for_remote.load(Relaxed) {
            Origin::Remote
        } else {
            Origin::Addresses(
                &self.setup.listener_config,
                [self.client.sender, self.client.address],
            )
        };
        let allowed = self.setup.config.allow_local
            || local::is_configured_local(&self.setup.listener_config.kind);
        LocalAccess::new(origin, allowed, self.relay.listeners.addresses())
    }

    fn lookup_quota(&self) -> LookupQuota<'_> {
        LookupQuota {
            lookups: &self.relay.lookups,
            account: &self.admission.account,
        }
    }

    /// Resolves `destination` to its addresses.
    pub(crate) async fn resolve(
        &self,
        destination: &Destination,
    ) -> Result<Vec<SocketAddr>, Failure> {
        let candidates = Candidates::resolve(destination, Some(self.lookup_quota())).await?;
        Ok(candidates.into_addresses())
    }

    /// Returns the profile of a direct leg to `destination`, or `None` if the rules lead through
    /// peers.
    pub(crate) fn direct_profile(
        &self,
        destination: &Destination,
    ) -> Result<Option<Arc<Profile>>, Failure> {
        self.route(&self.worker.peer_pools)
            .direct_profile(destination)
    }

    /// Returns the profile of a direct leg to a destination that is not known yet.
    pub(crate) fn direct_profile_for_any(&self) -> Result<Option<Arc<Profile>>, Failure> {
        self.route(&self.worker.peer_pools).direct_profile_for_any()
    }

    /// Stores the upstream leg, for the record and for the close.
    pub(crate) fn set_upstream_leg(&self, upstream_leg: &UpstreamLeg) {
        self.sample_upstream_leg();
        let mut upstream = self.lock_upstream();
        upstream.next_hop = Some(upstream_leg.address);
        upstream.transport = Some(upstream_leg.leg.transport().clone());
        upstream.group.clone_from(&upstream_leg.group);
        upstream.peer.clone_from(&upstream_leg.peer);
        upstream.legs += 1;
    }

    /// Returns the upstream leg that was opened before the client's SYN was answered, if there is one.
    fn take_preconnected(&self, destination: &Destination) -> Option<UpstreamLeg> {
        match destination {
            Destination::Address(to) => self
                .listener
                .preconnected
                .take(Flow::new(self.client.address, *to)),
            Destination::Name(..) => None,
        }
    }

    /// Relays between the client and `upstream_leg` until the connection ends.
    pub(crate) async fn transfer(
        &self,
        upstream_leg: &UpstreamLeg,
        on_success: impl AsRef<[u8]>,
    ) -> End {
        let client_leg = self.client_leg();
        let mode = if client_leg.needs_copy() || upstream_leg.leg.needs_copy() {
            Mode::Copy
        } else {
            upstream_leg
                .mode
                .or(self.setup.config.upstream_profile.mode)
                .unwrap_or_default()
        };
        debug!(?mode, "transfer begins");
        self.lock_upstream().mode = Some(mode);
        self.start_tunnel_timers();
        let context = TransferContext {
            pool: &self.worker.pipe_pool,
            counters: &self.listener.counters,
            traffic: &self.traffic,
            pauses: &self.activity.pauses,
            first_byte: &self.activity.first_byte,
            limits: &self.admission.rate_limits,
            mode,
            client_bytes_taken: &upstream_leg.client_bytes_taken,
            growth: upstream_leg.group.as_ref().map(|group| &group.growth),
            client_legs_may_join: self.client.group.get().is_some(),
            report_limited: &|limited| self.report_limited(limited),
            has_client_stalled: &|stall| self.has_client_stalled(stall),
        };
        let may_join = self.client.group.get().is_some() || upstream_leg.group.is_some();
        // Boxed: most connections have no further legs.
        let mut joins = may_join.then(|| Box::pin(self.let_legs_join(upstream_leg)));
        let outcome = transfer::run(
            &client_leg,
            upstream_leg,
            on_success.as_ref(),
            &context,
            |cx| {
                let Some(joins) = &mut joins else {
                    return Poll::Pending;
                };
                let _ = joins.as_mut().poll(cx);
                match self.client_bundle().or(upstream_leg.bundle()) {
                    Some(_) => Poll::Ready(()),
                    None => Poll::Pending,
                }
            },
        );
        let progress = match outcome.await {
            Outcome::Ended(end) => return end,
            Outcome::Joined(progress) => progress,
        };
        let joins = joins.expect("a leg has joined");
        // Boxed, with all that it needs, for the same reason.
        Box::pin(self.continue_striped(&client_leg, upstream_leg, progress, joins, &context)).await
    }

    /// Continues a transfer that further legs have joined, and lets more of them join.
    async fn continue_striped(
        &self,
        client_leg: &Leg,
        upstream_leg: &UpstreamLeg,
        progress: Progress<'_>,
        joins: Pin<Box<impl Future<Output = ()>>>,
        context: &TransferContext<'_>,
    ) -> End {
        select! {
            end = self.transfer_striped(client_leg, upstream_leg, progress, context) => end,
            () = joins => unreachable!("it has no end"),
        }
    }

    /// Lets further legs join on both sides, without end.
    async fn let_legs_join(&self, upstream_leg: &UpstreamLeg) {
        let downstream = async {
            match self.client.group.get() {
                Some(group) => {
                    let profile = &self.setup.listener_config.profile;
                    group.registration.accept_joins(profile).await;
                }
                None => pending().await,
            }
        };
        let upstream = async {
            match &upstream_leg.group {
                Some(group) => self.join_further_legs(group).await,
                None => pending().await,
            }
        };
        tokio::join!(downstream, upstream);
    }

    /// Returns what a stream over `upstream_leg` needs so that further legs can join it, if they may.
    pub(crate) fn joinable_group(
        self: &Arc<Self>,
        upstream_leg: &UpstreamLeg,
    ) -> Option<JoinableGroup> {
        let group = upstream_leg.group.clone()?;
        let (joined, session) = (group.clone(), self.clone());
        Some(JoinableGroup {
            group,
            joins: Box::pin(async move { session.join_further_legs(&joined).await }),
            report_limited: self.limited_leg_reporter(),
        })
    }

    /// Returns a function that reports a leg that a buffer limits.
    pub(crate) fn limited_leg_reporter(self: &Arc<Self>) -> Arc<ReportLimited<'static>> {
        let session = self.clone();
        Arc::new(move |limited| session.report_limited(limited))
    }

    fn report_limited(&self, limited: &LimitedLeg) {
        let warnings = &self.listener.warnings;
        warnings.log_limited_leg(&self.listener.name(), limited);
    }

    /// Opens further legs when they may be worthwhile, and if there are descriptors for them.
    async fn join_further_legs(&self, group: &OutgoingGroup) {
        group.wait_for_growth().await;
        let permits = if group.is_automatic() {
            u32::from(group.further_legs().div_ceil(2))
        } else {
            0
        };
        match self.try_acquire_permits(permits) {
            Ok(_held) => Box::pin(group.join_legs(&self.worker.peer_pools)).await,
            Err(_) => pending().await,
        }
    }

    /// Continues a transfer over several legs.
    async fn transfer_striped(
        &self,
        client_leg: &Leg,
        upstream_leg: &UpstreamLeg,
        progress: Progress<'_>,
        context: &TransferContext<'_>,
    ) -> End {
        let (incoming, outgoing) = (self.client.group.get(), upstream_leg.group.as_ref());
        let legs = StripedLegs {
            downstream: StripedLeg {
                first: client_leg,
                bundle: incoming.map(|group| {
                    group
                        .registration
                        .bundle_of_one(&self.setup.listener_config.profile)
                }),
                early_bytes: incoming.map_or(0, |group| group.early_bytes),
                is_automatic: incoming.is_some_and(|group| group.registration.is_automatic()),
            },
            upstream: StripedLeg {
                first: &upstream_leg.leg,
                bundle: outgoing.map(|group| group.bundle_of_one()),
                early_bytes: upstream_leg.early_bytes_sent(),
                is_automatic: outgoing.is_some_and(|group| group.is_automatic()),
            },
        };
        striped::run(&legs, progress, context).await
    }

    /// Takes a sample of the present upstream leg before another one replaces it.
    fn sample_upstream_leg(&self) {
        let upstream = self.upstream();
        if self.relay.sampler.is_enabled() && upstream.transport.is_some() {
            self.relay
                .sampler
                .record(self.sample(&upstream), &self.records.final_sample_taken);
        }
    }
}
