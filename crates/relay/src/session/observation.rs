// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measurements of a connection: memory, samples, and stalls. A measurement costs four system
//! calls, two for each stream of a striped leg. No lock is held meanwhile.

use crate::{
    records::sampling::samples::{LegSample, Sample},
    session::{Session, WayOut, stillness::Standstill},
    stripe::trunk::Trunk,
};
use longhaul_admin::record::{Group, Leg};
use longhaul_admission::eviction::ConnectionMemory;
use longhaul_admission::rate_limits::Direction;
use longhaul_linux::tcp_info::TcpInfo;
use longhaul_transport::carrier::Carrier;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Label of peers that are not in the configuration: other relays name them in their requests.
const NAMED_BY_OTHERS: &str = "(not configured)";

/// Transports of a leg.
#[derive(Clone, Copy)]
enum Wires<'a> {
    One(&'a Carrier),
    Many(&'a Trunk),
}

impl<'a> Wires<'a> {
    fn of(carrier: &'a Carrier, trunk: Option<&'a Arc<Trunk>>) -> Self {
        trunk.map_or(Self::One(carrier), |trunk| Self::Many(trunk))
    }

    fn memory(self) -> Option<u64> {
        match self {
            Self::One(carrier) => carrier.memory(),
            Self::Many(trunk) => Some(trunk.memory()),
        }
    }
}

/// Returns the kernel counters of each socket.
fn tcp_info(wires: Wires<'_>) -> Vec<TcpInfo> {
    match wires {
        Wires::One(carrier) => carrier.tcp_info().into_iter().collect(),
        Wires::Many(trunk) => trunk.tcp_info(),
    }
}

impl Session {
    /// Takes a sample of the connection and its last far leg.
    pub(crate) fn glimpse(&self, way_out: &WayOut) -> Sample {
        let (bytes_up, bytes_down) = self.traffic.read();
        let look = |leg, number, wires: Wires<'_>| {
            let group = Group {
                listener: self.listener.name(),
                leg,
                peer: self.peer_label(way_out).filter(|_| leg == Leg::Far),
            };
            self.leg_glimpse(group, number, wires)
        };
        let far = way_out.far.as_ref();
        let far = far.map(|far| Wires::of(far, way_out.trunk.as_ref()));
        Sample {
            number: self.number,
            at: Instant::now(),
            bytes_up,
            bytes_down,
            near: look(Leg::Near, 0, self.near_wires()),
            far: far.and_then(|far| look(Leg::Far, way_out.legs, far)),
        }
    }

    /// Takes a sample of a leg. `None` if the socket is closed.
    fn leg_glimpse(&self, group: Group, number: u64, wires: Wires<'_>) -> Option<LegSample> {
        let (read, written) = match group.leg {
            Leg::Near => (Direction::Up, Direction::Down),
            Leg::Far => (Direction::Down, Direction::Up),
        };
        let (pauses, is_paused) = self.pauses.read(read);
        Some(LegSample {
            group,
            number,
            streams: Some(tcp_info(wires)).filter(|streams| !streams.is_empty())?,
            is_striped: matches!(wires, Wires::Many(_)),
            buffered_bytes: wires.memory()?,
            pauses,
            is_paused,
            writer_waits: self.pauses.read(written).1,
        })
    }

    /// Returns the label of the far leg's peer. The configuration bounds the number of labels.
    pub(crate) fn peer_label(&self, way_out: &WayOut) -> Option<String> {
        let peer = way_out.peer.as_ref()?;
        Some(match self.config.peers.contains_key(&peer.config.name) {
            true => peer.config.name.clone(),
            false => NAMED_BY_OTHERS.to_owned(),
        })
    }

    fn near_wires(&self) -> Wires<'_> {
        Wires::of(&self.client, self.near_trunk())
    }

    /// Applies `of` to each leg; there may be no far leg.
    fn legs<T>(&self, of: impl Fn(Wires<'_>) -> T) -> (T, Option<T>) {
        let (far, trunk) = {
            let way_out = self.way_out();
            (way_out.far.clone(), way_out.trunk.clone())
        };
        let far = far.map(|far| of(Wires::of(&far, trunk.as_ref())));
        (of(self.near_wires()), far)
    }

    /// Returns the connection's memory in bytes: socket buffers of both legs, bytes that were read
    /// and not yet written, and HTTP.
    pub(crate) fn memory(&self) -> u64 {
        self.socket_memory() + self.pauses.held() + self.http.bytes()
    }

    /// Returns the connection's memory, and whether a receiver has been stalled for `patience`.
    pub(crate) fn holding(&self, now: Instant, patience: Duration) -> ConnectionMemory {
        ConnectionMemory {
            number: self.number,
            holder: self.account.holder,
            bytes: self.memory(),
            is_stalled: self.stands_still(now) >= patience,
        }
    }

    /// Returns for how long the client or the far end has taken none of the waiting bytes: the
    /// longer of both.
    pub(crate) fn stands_still(&self, now: Instant) -> Duration {
        let [near, far] = &*self.standstills();
        near.time(now).max(far.time(now))
    }

    /// Updates the stall detectors of both ends.
    pub(crate) fn look(&self, now: Instant) {
        let (near, far) = self.legs(tcp_info);
        let [near_still, far_still] = &mut *self.standstills();
        near_still.look(&near, now);
        far_still.look(&far.unwrap_or_default(), now);
    }

    fn standstills(&self) -> parking_lot::MutexGuard<'_, [Standstill; 2]> {
        self.standstills.lock()
    }

    /// Returns the kernel memory for data of both legs, in bytes.
    fn socket_memory(&self) -> u64 {
        let (near, far) = self.legs(|wires| wires.memory().unwrap_or(0));
        near + far.unwrap_or(0)
    }

    /// Returns whether the connection is a tunnel that has been idle for too long.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        let (up, down) = self.traffic.read();
        let limit = self.config.limits.tunnel_idle_timeout;
        limit.is_some_and(|limit| self.idleness.exceeds(limit, up + down, now))
    }
}
