// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a connection holds, how it fares, and who takes nothing. A look costs four system calls, two for each stream of a
//! striped leg, and no lock is held meanwhile.

use crate::{
    records::survey::book::{Glimpse, LegGlimpse},
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

/// The label of peers that are not in the configuration: other relays name them in their requests.
const NAMED_BY_OTHERS: &str = "(not configured)";

/// What a leg is made of.
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

/// How each of its sockets fares.
fn tcp_info(wires: Wires<'_>) -> Vec<TcpInfo> {
    match wires {
        Wires::One(carrier) => carrier.tcp_info().into_iter().collect(),
        Wires::Many(trunk) => trunk.tcp_info(),
    }
}

impl Session {
    /// One look at it and its last outgoing leg.
    pub(crate) fn glimpse(&self, way_out: &WayOut) -> Glimpse {
        let (bytes_up, bytes_down) = self.traffic.read();
        let look = |leg, number, wires: Wires<'_>| {
            let group = Group {
                listener: self.door.name(),
                leg,
                peer: self.peer_label(way_out).filter(|_| leg == Leg::Far),
            };
            self.leg_glimpse(group, number, wires)
        };
        let far = way_out.far.as_ref();
        let far = far.map(|far| Wires::of(far, way_out.trunk.as_ref()));
        Glimpse {
            number: self.number,
            at: Instant::now(),
            bytes_up,
            bytes_down,
            near: look(Leg::Near, 0, self.near_wires()),
            far: far.and_then(|far| look(Leg::Far, way_out.legs, far)),
        }
    }

    /// `None` if the socket is no more.
    fn leg_glimpse(&self, group: Group, number: u64, wires: Wires<'_>) -> Option<LegGlimpse> {
        let (read, written) = match group.leg {
            Leg::Near => (Direction::Up, Direction::Down),
            Leg::Far => (Direction::Down, Direction::Up),
        };
        let (pauses, is_paused) = self.pauses.read(read);
        Some(LegGlimpse {
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

    /// The peer of the last outgoing leg. Labels are bounded by the configuration.
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

    /// What `of` tells of each leg; the outgoing one may not be there.
    fn legs<T>(&self, of: impl Fn(Wires<'_>) -> T) -> (T, Option<T>) {
        let (far, trunk) = {
            let way_out = self.way_out();
            (way_out.far.clone(), way_out.trunk.clone())
        };
        let far = far.map(|far| of(Wires::of(&far, trunk.as_ref())));
        (of(self.near_wires()), far)
    }

    /// Memory that it holds for data, in bytes: the sockets of both legs, what was read and not
    /// written, and what HTTP takes.
    pub(crate) fn memory(&self) -> u64 {
        self.socket_memory() + self.pauses.held() + self.http.bytes()
    }

    /// What it holds, and whether somebody has taken nothing of it for `patience`.
    pub(crate) fn holding(&self, now: Instant, patience: Duration) -> ConnectionMemory {
        ConnectionMemory {
            number: self.number,
            holder: self.account.holder,
            bytes: self.memory(),
            is_stalled: self.stands_still(now) >= patience,
        }
    }

    /// How long the client, or who is at the other end, has taken nothing of what is there for it.
    pub(crate) fn stands_still(&self, now: Instant) -> Duration {
        let [near, far] = &*self.standstills();
        near.time(now).max(far.time(now))
    }

    /// Looks at whether both take something.
    pub(crate) fn look(&self, now: Instant) {
        let (near, far) = self.legs(tcp_info);
        let [near_still, far_still] = &mut *self.standstills();
        near_still.look(&near, now);
        far_still.look(&far.unwrap_or_default(), now);
    }

    fn standstills(&self) -> parking_lot::MutexGuard<'_, [Standstill; 2]> {
        self.standstills.lock()
    }

    /// Kernel memory that both legs hold for data, in bytes.
    fn socket_memory(&self) -> u64 {
        let (near, far) = self.legs(|wires| wires.memory().unwrap_or(0));
        near + far.unwrap_or(0)
    }

    /// Whether it has carried nothing for too long.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        let (up, down) = self.traffic.read();
        let limit = self.config.limits.tunnel_idle_timeout;
        limit.is_some_and(|limit| self.idleness.exceeds(limit, up + down, now))
    }
}
