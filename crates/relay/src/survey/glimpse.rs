// SPDX-License-Identifier: MIT OR Apache-2.0
//! One look at one connection: four system calls, two for each stream of a striped leg, and no lock
//! is held meanwhile.

use crate::{
    records::counters::Direction,
    session::{Session, WayOut},
    stripe::trunk::Trunk,
};
use longhaul_admin::record::{Group, Leg};
use longhaul_linux::tcp_info::TcpInfo;
use longhaul_transport::carrier::Carrier;
use std::{sync::Arc, time::Instant};

/// A connection at one moment. Counts are since its start.
#[derive(Debug, Clone)]
pub(super) struct Glimpse {
    pub(super) number: u64,
    pub(super) at: Instant,
    pub(super) bytes_up: u64,
    pub(super) bytes_down: u64,
    pub(super) near: Option<LegGlimpse>,
    pub(super) far: Option<LegGlimpse>,
}

/// One leg at one moment.
#[derive(Debug, Clone)]
pub(super) struct LegGlimpse {
    pub(super) group: Group,
    /// Among the connection's legs of this side.
    pub(super) number: u64,
    /// Of its socket; of a striped leg, of all its streams, the first one first. Never empty.
    pub(super) streams: Vec<TcpInfo>,
    pub(super) is_striped: bool,
    pub(super) buffered_bytes: u64,
    /// Pauses in reading from it, and whether one is on.
    pub(super) pauses: u64,
    pub(super) is_paused: bool,
    /// What comes from the other leg waits for room in this one's socket.
    pub(super) writer_waits: bool,
}

/// The label of peers that are not in the configuration: other relays name them in their requests.
const NAMED_BY_OTHERS: &str = "(not configured)";

impl Glimpse {
    pub(super) fn of(session: &Session, way_out: &WayOut) -> Self {
        let at = Instant::now();
        let (bytes_up, bytes_down) = session.traffic.read();
        let look = |leg, number, wires: Wires<'_>| {
            let group = Group {
                listener: session.door.name(),
                leg,
                peer: peer(session, way_out).filter(|_| leg == Leg::Far),
            };
            LegGlimpse::of(session, group, number, wires)
        };
        let far = way_out.far.as_ref();
        let far = far.map(|far| Wires::of(far, way_out.trunk.as_ref()));
        let near = Wires::of(&session.client, session.near_trunk());
        Self {
            number: session.number,
            at,
            bytes_up,
            bytes_down,
            near: look(Leg::Near, 0, near),
            far: far.and_then(|far| look(Leg::Far, way_out.legs, far)),
        }
    }
}

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

    fn tcp_info(self) -> Vec<TcpInfo> {
        match self {
            Self::One(carrier) => carrier.tcp_info().into_iter().collect(),
            Self::Many(trunk) => trunk.tcp_info(),
        }
    }

    fn memory(self) -> Option<u64> {
        match self {
            Self::One(carrier) => carrier.memory(),
            Self::Many(trunk) => Some(trunk.memory()),
        }
    }
}

impl LegGlimpse {
    /// `None` if the socket is no more.
    fn of(session: &Session, group: Group, number: u64, wires: Wires<'_>) -> Option<Self> {
        let (read, written) = match group.leg {
            Leg::Near => (Direction::Up, Direction::Down),
            Leg::Far => (Direction::Down, Direction::Up),
        };
        let (pauses, is_paused) = session.pauses.read(read);
        Some(Self {
            group,
            number,
            streams: Some(wires.tcp_info()).filter(|streams| !streams.is_empty())?,
            is_striped: matches!(wires, Wires::Many(_)),
            buffered_bytes: wires.memory()?,
            pauses,
            is_paused,
            writer_waits: session.pauses.read(written).1,
        })
    }

    /// Summed over the leg's streams.
    pub(super) fn sum(&self, of: fn(&TcpInfo) -> u64) -> u64 {
        self.streams.iter().map(of).sum()
    }
}

/// Labels are bounded by the configuration.
pub(super) fn peer(session: &Session, way_out: &WayOut) -> Option<String> {
    let peer = way_out.peer.as_ref()?;
    Some(match session.config.peers.contains_key(&peer.name) {
        true => peer.name.clone(),
        false => NAMED_BY_OTHERS.to_owned(),
    })
}
