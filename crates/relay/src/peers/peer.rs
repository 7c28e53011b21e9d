// SPDX-License-Identifier: MIT OR Apache-2.0
//! A peer of a running relay: what it is told to be, and what is known of it.

use crate::{
    config::{peer::PeerConfig, profile::Profile},
    peers::{place::Place, state::State},
};
use longhaul_protocol::destination::Destination;
use longhaul_transport::port::Departure;
use std::{net::SocketAddr, sync::Arc};

/// A peer as configured, and what is known of it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) config: Arc<PeerConfig>,
    /// It is in the configuration. Another one, which only a request names, is not watched, and
    /// nothing is said of it: whoever may ask would choose what.
    pub(crate) is_configured: bool,
    pub(crate) place: Place,
    /// The ports that legs over UDT leave by.
    pub(crate) departure: Departure,
    pub(crate) state: State,
}

/// The same relay by the same means; what is known of it does not count.
impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        self.config == other.config
    }
}

impl Peer {
    /// A peer of the configuration, of which nothing is known yet.
    pub(crate) fn configured(config: Arc<PeerConfig>) -> Self {
        Self {
            place: Place::new(config.destination.clone()),
            config,
            is_configured: true,
            departure: Departure::default(),
            state: State::default(),
        }
    }

    /// A peer that only a request names: without TLS and without ready connections.
    pub(crate) fn named_by_request(address: SocketAddr, profile: Arc<Profile>) -> Self {
        let destination = Destination::Address(address);
        let config = PeerConfig::new(&address.to_string(), destination, profile);
        Self {
            is_configured: false,
            ..Self::configured(config.into())
        }
    }
}

/// Relays to pass, nearest first; none is straight to the destination.
pub(crate) type Chain = Vec<Arc<Peer>>;

/// Whether its peers are up, as far as this relay knows: a further one that another chain begins with
/// is known by connections from here, which say nothing of those from the relay before it.
pub(crate) fn has_hope(chain: &Chain) -> bool {
    let mut counted = chain
        .iter()
        .enumerate()
        .filter(|(n, peer)| *n == 0 || peer.config.is_beyond);
    counted.all(|(_, peer)| peer.state.health.is_up())
}
