// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measurements of a connection: memory, samples, and stalls. A measurement costs four system
//! calls, two for each stream of a striped leg. No lock is held meanwhile.

use crate::{
    leg::stall::StallDetector,
    records::sampling::samples::{LegSample, Sample},
    session::{Session, Upstream},
    stripe::bundle::Bundle,
};
use longhaul_admin::record::{Leg, LegGroupKey};
use longhaul_admission::eviction::ConnectionMemory;
use longhaul_admission::rate_limits::Direction;
use longhaul_linux::tcp_info::TcpInfo;
use longhaul_transport::transport::TransportStream;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Label of peers that are not in the configuration: other relays name them in their requests.
const UNCONFIGURED_PEER: &str = "(not configured)";

/// Transports of a leg.
#[derive(Clone, Copy)]
enum LegTransport<'a> {
    One(&'a TransportStream),
    Many(&'a Bundle),
}

impl<'a> LegTransport<'a> {
    fn new(carrier: &'a TransportStream, bundle: Option<&'a Arc<Bundle>>) -> Self {
        bundle.map_or(Self::One(carrier), |bundle| Self::Many(bundle))
    }

    fn memory(self) -> Option<u64> {
        match self {
            Self::One(carrier) => carrier.memory_bytes(),
            Self::Many(bundle) => Some(bundle.memory()),
        }
    }
}

/// Returns the kernel counters of each socket.
fn tcp_info(transport: LegTransport<'_>) -> Vec<TcpInfo> {
    match transport {
        LegTransport::One(carrier) => carrier.tcp_info().into_iter().collect(),
        LegTransport::Many(bundle) => bundle.tcp_info(),
    }
}

impl Session {
    /// Takes a sample of the connection and its last upstream leg.
    pub(crate) fn sample(&self, upstream: &Upstream) -> Sample {
        let (bytes_up, bytes_down) = self.traffic.read();
        let sample_leg = |leg, number, transport: LegTransport<'_>| {
            let group = LegGroupKey {
                listener: self.listener.name(),
                leg,
                peer: self.peer_label(upstream).filter(|_| leg == Leg::Upstream),
            };
            self.leg_sample(group, number, transport)
        };
        let transport = upstream.transport.as_ref();
        let transport = transport.map(|transport| LegTransport::new(transport, upstream.bundle()));
        Sample {
            number: self.records.number,
            at: Instant::now(),
            bytes_up,
            bytes_down,
            downstream: sample_leg(Leg::Downstream, 0, self.client_transport()),
            upstream: transport
                .and_then(|transport| sample_leg(Leg::Upstream, upstream.legs, transport)),
        }
    }

    /// Takes a sample of a leg. `None` if the socket is closed.
    fn leg_sample(
        &self,
        group: LegGroupKey,
        number: u64,
        transport: LegTransport<'_>,
    ) -> Option<LegSample> {
        let (read, written) = match group.leg {
            Leg::Downstream => (Direction::Up, Direction::Down),
            Leg::Upstream => (Direction::Down, Direction::Up),
        };
        let (pauses, is_paused) = self.activity.pauses.read(read);
        Some(LegSample {
            group,
            number,
            streams: Some(tcp_info(transport)).filter(|streams| !streams.is_empty())?,
            is_striped: matches!(transport, LegTransport::Many(_)),
            buffered_bytes: transport.memory()?,
            pauses,
            is_paused,
            writer_waits: self.activity.pauses.read(written).1,
        })
    }

    /// Returns the label of the upstream leg's peer. The configuration bounds the number of labels.
    pub(crate) fn peer_label(&self, upstream: &Upstream) -> Option<String> {
        let peer = upstream.peer.as_ref()?;
        Some(if self.setup.config.peers.contains_key(&peer.config.name) {
            peer.config.name.clone()
        } else {
            UNCONFIGURED_PEER.to_owned()
        })
    }

    /// Returns the kernel counters of each socket of the client's leg; none once it is closed.
    pub(super) fn client_tcp_info(&self) -> Vec<TcpInfo> {
        tcp_info(self.client_transport())
    }

    fn client_transport(&self) -> LegTransport<'_> {
        LegTransport::new(&self.client.stream, self.client_bundle())
    }

    /// Applies `of` to each leg; there may be no upstream leg.
    fn map_legs<T>(&self, of: impl Fn(LegTransport<'_>) -> T) -> (T, Option<T>) {
        let (transport, bundle) = {
            let upstream = self.lock_upstream();
            (upstream.transport.clone(), upstream.bundle().cloned())
        };
        let transport =
            transport.map(|transport| of(LegTransport::new(&transport, bundle.as_ref())));
        (of(self.client_transport()), transport)
    }

    /// Returns the connection's memory in bytes: socket buffers of both legs, bytes that were read
    /// and not yet written, and HTTP.
    pub(crate) fn memory(&self) -> u64 {
        self.socket_memory() + self.activity.pauses.held_bytes() + self.http.bytes()
    }

    /// Returns the connection's memory, and whether a receiver has been stalled, or an HTTP client idle, for
    /// `inactive_min`.
    pub(crate) fn memory_usage(&self, now: Instant, inactive_min: Duration) -> ConnectionMemory {
        ConnectionMemory {
            number: self.records.number,
            client_network: self.admission.account.client_network,
            bytes: self.memory(),
            is_inactive: self.stalled_for(now).max(self.http.idle_for(now)) >= inactive_min,
        }
    }

    /// Returns for how long the client or the destination has taken none of the waiting bytes: the
    /// longer of both.
    pub(crate) fn stalled_for(&self, now: Instant) -> Duration {
        let [downstream, upstream] = &*self.lock_stalls();
        downstream.duration(now).max(upstream.duration(now))
    }

    /// Updates the stall detectors of both ends.
    pub(crate) fn update_stalls(&self, now: Instant) {
        let (downstream, upstream) = self.map_legs(tcp_info);
        let [downstream_stall, upstream_stall] = &mut *self.lock_stalls();
        downstream_stall.update(&downstream, now);
        upstream_stall.update(&upstream.unwrap_or_default(), now);
    }

    fn lock_stalls(&self) -> parking_lot::MutexGuard<'_, [StallDetector; 2]> {
        self.activity.stalls.lock()
    }

    /// Returns the kernel memory for data of both legs, in bytes.
    fn socket_memory(&self) -> u64 {
        let (downstream, upstream) = self.map_legs(|transport| transport.memory().unwrap_or(0));
        downstream + upstream.unwrap_or(0)
    }

    /// Returns whether the connection is a tunnel that has been idle for too long.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        let (up, down) = self.traffic.read();
        let limit = self.setup.config.limits.tunnel_idle_timeout;
        limit.is_some_and(|limit| self.activity.idle_timer.exceeds(limit, up + down, now))
    }
}
