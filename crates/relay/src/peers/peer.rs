// SPDX-License-Identifier: MIT OR Apache-2.0
//! A peer of a running relay: its configuration and its state.

use crate::{
    config::{peer::PeerConfig, profile::Profile},
    peers::{address::PeerAddress, state::PeerState},
};
use longhaul_protocol::destination::Destination;
use longhaul_transport::port::OutboundSockets;
use std::{net::SocketAddr, sync::Arc};

/// Configuration and state of a peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) config: Arc<PeerConfig>,
    /// Whether the peer is in the configuration. A peer that only a request names is not watched
    /// and not logged: otherwise clients would choose the contents of the log.
    pub(crate) is_configured: bool,
    pub(crate) address: PeerAddress,
    /// Local ports of legs over UDT.
    pub(crate) udt_ports: OutboundSockets,
    pub(crate) state: PeerState,
}

/// Compares the configuration only, not the state.
impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        self.config == other.config
    }
}

impl Peer {
    /// Returns a peer of the configuration with fresh state.
    pub(crate) fn configured(config: Arc<PeerConfig>) -> Self {
        Self {
            address: PeerAddress::new(config.destination.clone()),
            config,
            is_configured: true,
            udt_ports: OutboundSockets::default(),
            state: PeerState::default(),
        }
    }

    /// Returns a peer that only a request names, without TLS and without pooled connections.
    pub(crate) fn named_by_request(address: SocketAddr, profile: Arc<Profile>) -> Self {
        let destination = Destination::Address(address);
        let config = PeerConfig::new(&address.to_string(), destination, profile);
        Self {
            is_configured: false,
            ..Self::configured(config.into())
        }
    }
}

/// Relays to pass, nearest first; an empty chain leads directly to the destination.
pub(crate) type Chain = Vec<Arc<Peer>>;

/// Returns whether the peers of the chain are up, as far as this relay knows. If another chain
/// begins with a later peer of this chain, its state comes from connections from here, and says
/// nothing about connections from the relay before it. Such a peer does not count.
pub(crate) fn is_chain_up(chain: &Chain) -> bool {
    let mut counted = chain
        .iter()
        .enumerate()
        .filter(|(n, peer)| *n == 0 || peer.config.is_behind_peers);
    counted.all(|(_, peer)| peer.state.health.is_up())
}
