// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another relay that connections may leave through, as it is configured.

use crate::config::{
    certificates::identity::Initiator,
    limits::positive,
    location::{In as _, Table},
    profile::{Profile, Profiles, check_transport, profile_named},
    settings::{PeerSettings, RouteSettings, Settings, Transport},
};
use longhaul_command::exit::Refusal;
use longhaul_protocol::{convert, destination::Destination};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// A peer as configured.
#[derive(Debug, PartialEq)]
pub(crate) struct PeerConfig {
    pub(crate) name: String,
    pub(crate) destination: Destination,
    /// Of the legs to it.
    pub(crate) profile: Arc<Profile>,
    /// What the legs to it are protected by.
    pub(crate) tls: Option<Arc<Initiator>>,
    /// What the legs to it go over.
    pub(crate) transport: Transport,
    /// Ready connections that each worker keeps.
    pub(crate) pool: usize,
    /// After which time without use a ready connection is replaced.
    pub(crate) pool_age: Duration,
    /// Legs that carry one client's connection together; 1 is none but the first.
    pub(crate) streams: u8,
    /// Chains pass it and none begins with it: what relays before it say of it is its health.
    pub(crate) is_beyond: bool,
}

/// Half of the time that a Convert listener waits for a request by default.
pub(crate) const POOL_AGE_DEFAULT: Duration = Duration::from_secs(60);

impl PeerConfig {
    /// Without TLS and without ready connections.
    pub(crate) fn new(name: &str, destination: Destination, profile: Arc<Profile>) -> Self {
        Self {
            name: name.to_owned(),
            destination,
            profile,
            tls: None,
            transport: Transport::Tcp,
            pool: 0,
            pool_age: POOL_AGE_DEFAULT,
            is_beyond: false,
            streams: 1,
        }
    }
}

pub(crate) fn peers(
    settings: &Settings,
    profiles: &Profiles,
) -> anyhow::Result<BTreeMap<String, Arc<PeerConfig>>> {
    let chains = || settings.route.iter().flat_map(RouteSettings::chains);
    let peer = |(name, written): (&String, &PeerSettings)| {
        let begins = chains().any(|via| via.first() == Some(name));
        let profile = written.profile.as_deref().unwrap_or("far");
        let user = format!("peer {name}");
        let profile = profile_named(profile, profiles, &user)?;
        check_transport(written.transport, written.tls.is_some(), &profile, &user)?;
        let initiator = |tls| Initiator::new(tls, &user, name).map(Arc::new);
        let peer = PeerConfig {
            is_beyond: !begins && chains().any(|via| via.contains(name)),
            tls: written.tls.as_ref().map(initiator).transpose()?,
            pool: pool_size(written, &user)?,
            streams: streams(written, &user)?,
            transport: written.transport,
            pool_age: written
                .pool_age
                .map_or(Ok(POOL_AGE_DEFAULT), |age| positive("pool_age", age))?,
            ..PeerConfig::new(name, written.address.0.clone(), profile)
        };
        Ok((name.clone(), Arc::new(peer)))
    };
    let located = |(name, written)| peer((name, written)).in_table(Table::Peer(name.clone()));
    settings.peer.iter().map(located).collect()
}

/// A peer's bound on what each worker may keep of it.
const POOL_MAX: u16 = 1024;

fn pool_size(written: &PeerSettings, user: &str) -> anyhow::Result<usize> {
    match written.pool.unwrap_or(0) {
        pool @ 0..=POOL_MAX => Ok(pool.into()),
        _ => Err(Refusal::usage(format!(
            "{user}: pool: want 0 to {POOL_MAX}"
        ))),
    }
}

fn streams(written: &PeerSettings, user: &str) -> anyhow::Result<u8> {
    match written.streams.unwrap_or(1) {
        streams @ 1..=convert::STRIPES_MAX => Ok(streams),
        _ => Err(Refusal::usage(format!(
            "{user}: streams: want 1 to {}",
            convert::STRIPES_MAX
        ))),
    }
}
