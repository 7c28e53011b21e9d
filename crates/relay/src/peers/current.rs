// SPDX-License-Identifier: MIT OR Apache-2.0
//! The current configuration and its peers.

use crate::{
    config::{Config, peer::PeerConfig, policy::RouteTarget},
    peers::peer::{Chain, Peer, is_chain_up},
};
use parking_lot::RwLock;
use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

/// Peers of a configuration, by name.
#[derive(Debug, Default)]
pub(crate) struct Peers(BTreeMap<String, Arc<Peer>>);

impl Peers {
    /// Returns the peers of `config`. A peer that is unchanged from `before` keeps its state.
    pub(crate) fn new(config: &Config, before: &Self) -> Self {
        let peer = |(name, config): (&String, &Arc<PeerConfig>)| {
            let kept = before.find_unchanged(config).cloned();
            let peer = kept.unwrap_or_else(|| Peer::configured(config.clone()).into());
            (name.clone(), peer)
        };
        Self(config.peers.iter().map(peer).collect())
    }

    /// Returns the existing peer if its configuration is unchanged. Certificates may have been
    /// renewed: peers with TLS start with fresh state.
    fn find_unchanged(&self, config: &PeerConfig) -> Option<&Arc<Peer>> {
        let old = self.0.get(&config.name)?;
        (*old.config == *config && config.tls.is_none()).then_some(old)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Peer>> {
        self.0.values()
    }

    /// Returns the peer that listens on `address`.
    pub(crate) fn find_by_address(&self, address: SocketAddr) -> Option<&Arc<Peer>> {
        self.all().find(|peer| peer.address.has(address))
    }

    /// Returns the peers of a chain of the same configuration.
    ///
    /// # Panics
    ///
    /// The chain is from another configuration, which has other peers.
    pub(crate) fn chain(&self, chain: &[Arc<PeerConfig>]) -> Chain {
        chain
            .iter()
            .map(|peer| self.0[&peer.name].clone())
            .collect()
    }

    /// Returns whether a chain is left whose peers, if it has any, are up.
    pub(crate) fn is_any_chain_up(&self, target: &RouteTarget) -> bool {
        target
            .chains
            .iter()
            .any(|chain| is_chain_up(&self.chain(chain)))
    }
}

/// Configuration with its peers.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) config: Arc<Config>,
    pub(crate) peers: Arc<Peers>,
}

impl Setup {
    fn new(config: Config, before: &Peers) -> Self {
        Self {
            peers: Peers::new(&config, before).into(),
            config: config.into(),
        }
    }
}

/// The current setup. A reload replaces it.
#[derive(Debug)]
pub(crate) struct CurrentSetup(RwLock<Setup>);

impl CurrentSetup {
    pub(crate) fn new(config: Config) -> Self {
        Self(Setup::new(config, &Peers::default()).into())
    }

    /// Returns the setup for connections that begin now.
    pub(crate) fn get(&self) -> Setup {
        self.0.read().clone()
    }

    /// Replaces the configuration. Unchanged peers keep their state.
    pub(crate) fn set(&self, config: Config) {
        let mut current = self.0.write();
        *current = Setup::new(config, &current.peers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn config(peers: &str) -> Config {
        let text = format!(
            "[[listener]]\nkind = 'socks5'\naddress = '127.0.0.1:0'\n{peers}[[route]]\nvia = ['x', 'y']\n"
        );
        Config::new(&toml::from_str(&text).unwrap()).unwrap()
    }

    fn is_up(setup: &Setup, name: &str) -> bool {
        setup.peers.0[name].state.health.is_up()
    }

    #[test]
    fn keeps_state_of_unchanged_peer_after_reload() {
        let peers = "[peer.x]\naddress = '192.0.2.1'\n[peer.y]\naddress = '192.0.2.2'\n";
        let current = CurrentSetup::new(config(peers));
        let before = current.get();
        for peer in before.peers.all() {
            peer.state.health.record_failure(Instant::now(), 0.5);
        }
        current.set(config(&format!("{peers}streams = 2\n")));
        let after = current.get();
        assert!(!is_up(&after, "x"), "unchanged");
        assert!(is_up(&after, "y"), "changed");
        assert!(
            !is_up(&before, "y"),
            "a session keeps the setup of its start"
        );
        let target = after.config.policy.rules[0].target.as_ref().unwrap();
        assert!(!after.peers.is_any_chain_up(target), "x is in its chain");
    }
}
