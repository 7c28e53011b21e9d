// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peer configuration: another relay that connections may pass through.

use crate::config::{
    certificates::identity::Initiator,
    limits::check_positive,
    location::{Table, in_table, refused},
    profile::{Profile, Profiles, UPSTREAM, check_transport, profile_named},
    settings::{PeerSettings, RouteSettings, Settings, Streams, Transport},
};
use longhaul_protocol::destination::Destination;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Checked configuration of a peer.
#[derive(Debug, PartialEq)]
pub(crate) struct PeerConfig {
    pub(crate) name: String,
    pub(crate) destination: Destination,
    /// Profile of the legs to the peer.
    pub(crate) profile: Arc<Profile>,
    /// TLS of the legs to the peer.
    pub(crate) tls: Option<Arc<Initiator>>,
    /// Transport of the legs to the peer.
    pub(crate) transport: Transport,
    /// Idle connections that each worker keeps open.
    pub(crate) pool: usize,
    /// Idle time after which a pooled connection is replaced.
    pub(crate) pool_age: Duration,
    /// Parallel legs for one client's connection.
    pub(crate) streams: Streams,
    /// Chains contain the peer but none begins with it, so this relay never connects to it. Its
    /// health is what earlier relays report.
    pub(crate) is_behind_peers: bool,
}

/// Half of the time for which a Convert listener waits for a request by default.
pub(crate) const POOL_AGE_DEFAULT: Duration = Duration::from_secs(60);

impl PeerConfig {
    /// Returns the number of legs that each client's connection has from the beginning.
    pub(crate) fn fixed_streams(&self) -> u8 {
        match self.streams {
            Streams::Automatic => 1,
            Streams::Fixed(streams) => streams,
        }
    }

    /// Peer with defaults: no TLS and no pooled connections.
    pub(crate) fn new(name: &str, destination: Destination, profile: Arc<Profile>) -> Self {
        Self {
            name: name.to_owned(),
            destination,
            profile,
            tls: None,
            transport: Transport::Tcp,
            pool: 0,
            pool_age: POOL_AGE_DEFAULT,
            is_behind_peers: false,
            streams: Streams::Automatic,
        }
    }
}

pub(crate) fn peers(
    settings: &Settings,
    profiles: &Profiles,
) -> anyhow::Result<BTreeMap<String, Arc<PeerConfig>>> {
    let chains = || settings.route.iter().flat_map(RouteSettings::chains);
    let peer = |(name, peer_settings): (&String, &PeerSettings)| {
        let begins = chains().any(|via| via.first() == Some(name));
        let profile = peer_settings.profile.as_deref().unwrap_or(UPSTREAM);
        let profile = profile_named(profile, profiles)?;
        let has_tls = peer_settings.tls.is_some();
        check_transport(peer_settings.transport, has_tls, &profile)?;
        let initiator = |tls| Initiator::new(tls, name).map(Arc::new);
        let peer = PeerConfig {
            is_behind_peers: !begins && chains().any(|via| via.contains(name)),
            tls: peer_settings.tls.as_ref().map(initiator).transpose()?,
            pool: pool_size(peer_settings)?,
            streams: peer_settings.streams.unwrap_or(Streams::Automatic),
            transport: peer_settings.transport,
            pool_age: peer_settings
                .pool_age
                .map_or(Ok(POOL_AGE_DEFAULT), |age| check_positive("pool_age", age))?,
            ..PeerConfig::new(name, peer_settings.address.0.clone(), profile)
        };
        Ok((name.clone(), Arc::new(peer)))
    };
    let located = |(name, peer_settings): (&String, _)| {
        in_table(peer((name, peer_settings)), Table::Peer(name.clone()))
    };
    settings.peer.iter().map(located).collect()
}

/// Most pooled connections of a peer in each worker.
const POOL_MAX: u16 = 1024;

fn pool_size(settings: &PeerSettings) -> anyhow::Result<usize> {
    match settings.pool.unwrap_or(0) {
        pool @ 0..=POOL_MAX => Ok(pool.into()),
        pool => {
            let problem = format!("pool {pool}: expected 0 to {POOL_MAX}");
            Err(refused("pool", problem))
        }
    }
}
