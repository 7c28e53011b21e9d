// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log lines about refused clients and destinations. Strangers cause them, so their number is bounded.

use crate::faults::{
    limited_leg::{Limit, LimitedLeg},
    misconfiguration::DenialReason,
};
use longhaul_command::logging::{Decision, RateLimit};
use longhaul_interception::held::PENDING_PER_CLIENT_MAX;
use longhaul_protocol::{destination::Destination, networks::network};
use std::net::IpAddr;
use tracing::warn;

/// Log lines of one listener, limited by cause and by the client's address or /64.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    refused: RateLimit<(IpAddr, u8)>,
    refused_destinations: RateLimit<IpAddr>,
    client_limit: RateLimit<IpAddr>,
    passwords: RateLimit<(IpAddr, Vec<u8>, PasswordOutcome)>,
    bypassed: RateLimit<Option<IpAddr>>,
    limited: RateLimit<(IpAddr, Limit)>,
}

/// Reason for which a client's password does not let it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PasswordOutcome {
    Wrong,
    /// Not checked: it would have had to wait for too long.
    NotChecked,
}

impl PasswordOutcome {
    fn message(self) -> &'static str {
        match self {
            Self::Wrong => {
                "client refused: its password is wrong; further ones for this user from this address are delayed longer"
            }
            Self::NotChecked => {
                "client refused: after many wrong passwords, those for this user from this address are not checked now, \
                 right ones included; correct the client that sends the wrong ones, or lower limits.password_delay"
            }
        }
    }
}

impl Warnings {
    /// Logs why `listener` refuses `client`.
    pub(crate) fn log_refused_client(&self, listener: &str, client: IpAddr, reason: &DenialReason) {
        let Some(message) = reason.message() else {
            return;
        };
        let client = client.to_canonical();
        match self.refused.check((network(client), reason.code())) {
            Decision::Write => warn!(%client, listener, "client refused: {message}"),
            Decision::WriteOverflow => {
                warn!(listener, "more clients refused; not named for some minutes");
            }
            Decision::Suppress => {}
        }
    }

    /// Logs that this relay refuses a destination.
    pub(crate) fn log_refused_destination(
        &self,
        listener: &str,
        client: IpAddr,
        destination: &Destination,
    ) {
        let client = client.to_canonical();
        match self.refused_destinations.check(network(client)) {
            Decision::Write => warn!(
                %client,
                listener,
                %destination,
                "destination refused: a route denies it, it is an address of this host (allow_local), or this \
                 host's firewall rejects it"
            ),
            Decision::WriteOverflow => warn!(
                listener,
                "more destinations refused; not named for some minutes"
            ),
            Decision::Suppress => {}
        }
    }

    /// Logs that a buffer limits a leg.
    pub(crate) fn log_limited_leg(&self, listener: &str, leg: &LimitedLeg) {
        let to = network(leg.to.ip().to_canonical());
        if let Decision::Write = self.limited.check((to, leg.limit)) {
            warn!(listener, "{leg}");
        }
    }

    /// Logs that `client` has all `connections` that it may have.
    pub(crate) fn log_client_limit(&self, listener: &str, client: IpAddr, connections: usize) {
        let client = client.to_canonical();
        match self.client_limit.check(network(client)) {
            Decision::Write => warn!(
                %client,
                listener,
                "client has {connections} connections, all that it may have: its others are reset \
                 (limits.connections_per_client)"
            ),
            Decision::WriteOverflow => warn!(
                listener,
                "more clients have all connections that they may have; not named for some minutes"
            ),
            Decision::Suppress => {}
        }
    }

    /// Logs that the password of `client` for `user` is wrong or not checked.
    pub(crate) fn log_password(
        &self,
        listener: &str,
        client: IpAddr,
        user: &[u8],
        outcome: PasswordOutcome,
    ) {
        let client = client.to_canonical();
        let key = (network(client), user.to_vec(), outcome);
        let user = String::from_utf8_lossy(user);
        match self.passwords.check(key) {
            Decision::Write => warn!(%client, %user, listener, "{}", outcome.message()),
            Decision::WriteOverflow => warn!(
                listener,
                "clients refused because of passwords for more users; not named for some minutes"
            ),
            Decision::Suppress => {}
        }
    }

    /// Logs that connections bypass the relay: because of the number that `client` has, or without a
    /// client that all clients have.
    pub(crate) fn log_bypass(&self, listener: &str, client: Option<IpAddr>) {
        let client = client.map(|client| client.to_canonical());
        let Decision::Write = self.bypassed.check(client.map(network)) else {
            return;
        };
        match client {
            Some(client) => warn!(
                %client,
                listener,
                "client has {PENDING_PER_CLIENT_MAX} handshakes in progress, or all connections that it may have: its others \
                 bypass the relay"
            ),
            None => warn!(
                listener,
                "no room for more handshakes: further connections bypass the relay"
            ),
        }
    }
}
