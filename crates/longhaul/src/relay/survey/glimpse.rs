// SPDX-License-Identifier: MIT OR Apache-2.0
//! One look at one connection: four system calls, and no lock is held meanwhile.

use crate::{
    admin::record::{Group, Leg},
    relay::{
        counters::Direction,
        session::{Session, WayOut},
    },
};
use host::{socket::memory, tcp_info::TcpInfo};
use std::time::Instant;
use tokio::net::TcpStream;

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
    pub(super) info: TcpInfo,
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
        let look = |leg, number, socket: &TcpStream| {
            let group = Group {
                listener: session.door.name(),
                leg,
                peer: peer(session, way_out).filter(|_| leg == Leg::Far),
            };
            LegGlimpse::of(session, group, number, socket)
        };
        let far = way_out.far.as_deref();
        Self {
            number: session.number,
            at,
            bytes_up,
            bytes_down,
            near: look(Leg::Near, 0, &session.client),
            far: far.and_then(|far| look(Leg::Far, way_out.legs, far)),
        }
    }
}

impl LegGlimpse {
    /// `None` if the socket is no more.
    fn of(session: &Session, group: Group, number: u64, socket: &TcpStream) -> Option<Self> {
        let (read, written) = match group.leg {
            Leg::Near => (Direction::Up, Direction::Down),
            Leg::Far => (Direction::Down, Direction::Up),
        };
        let (pauses, is_paused) = session.pauses.read(read);
        Some(Self {
            group,
            number,
            info: TcpInfo::of(socket).ok()?,
            buffered_bytes: memory(socket).ok()?,
            pauses,
            is_paused,
            writer_waits: session.pauses.read(written).1,
        })
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
