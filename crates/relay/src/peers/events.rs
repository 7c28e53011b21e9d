// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of a peer. Each is recorded; those that change the peer's state are logged.

use crate::{
    config::settings::{Streams, Transport},
    peers::{health::HealthReport, peer::Peer},
};
use longhaul_admin::relay_record::PeerCounts;
use longhaul_linux::random::random_bytes;
use longhaul_protocol::{
    convert::{GroupId, STRIPES_MAX, Stripes},
    failure::Failure,
};
use std::{sync::atomic::Ordering::Relaxed, time::Instant};
use tracing::{info, warn};

impl Peer {
    /// Returns a new group that further legs may join, unless the configuration wants a single leg, or the peer is known
    /// to refuse them. Legs over UDT have no window of the kernel: they need no others by themselves.
    pub(crate) fn new_group(&self) -> Option<Stripes> {
        let (count, automatic) = match (self.config.streams, self.config.transport) {
            (Streams::Automatic, Transport::Tcp) => (STRIPES_MAX, true),
            (Streams::Automatic, Transport::Udt) => (1, true),
            (Streams::Fixed(count), _) => (count, false),
        };
        let group = || new_stripes_with_random_id(count, automatic);
        (count > 1 && self.state.striping.may_be_supported())
            .then(group)
            .flatten()
    }

    /// Records that the peer does not support groups.
    pub(crate) fn record_no_striping(&self) {
        if self.state.striping.record_unsupported() {
            warn!("peer {} supports one stream only", self.config.name);
        }
    }

    /// Counts the legs that could not join their group. Logs the first such failure, and the return
    /// of all streams.
    pub(crate) fn record_missing_streams(&self, missing: &[Failure]) {
        if !self.state.striping.record_missing(missing.len()) {
            return;
        }
        let name = &self.config.name;
        match missing {
            [] => info!("peer {name}: all streams join again"),
            [first, ..] => warn!(
                "peer {name}: {} streams could not join: {first}; the others continue",
                missing.len()
            ),
        }
    }

    /// Logs once that a listener's clients connect directly while this peer is down.
    pub(crate) fn log_bypass(&self, listener: &str) {
        if !self.state.bypass_logged.swap(true, Relaxed) {
            let name = &self.config.name;
            warn!(
                "{listener}: clients connect directly to their destinations while \
                 peer {name} is down"
            );
        }
    }

    /// Marks the peer as up, because it has served this relay.
    pub(crate) fn mark_up(&self) {
        self.state.bypass_logged.store(false, Relaxed);
        if self.state.health.record_success(Instant::now()) && self.is_configured {
            info!("peer {} is back", self.config.name);
        }
    }

    /// Returns the counters of the peer's health, pooled connections and missing streams.
    pub(crate) fn counts(&self) -> PeerCounts {
        let HealthReport {
            down_since,
            failures,
        } = self.state.health.report();
        PeerCounts {
            name: self.config.name.clone(),
            address: self.address.destination().to_string(),
            down_s: down_since.map(|since| since.elapsed().as_secs_f64()),
            failures,
            pool_idle: self.state.pool.idle.load(Relaxed),
            pool_hits: self.state.pool.hits.load(Relaxed),
            pool_misses: self.state.pool.misses.load(Relaxed),
            streams_missing: self.state.striping.missing.load(Relaxed),
        }
    }

    /// Counts a request for a pooled connection.
    pub(crate) fn count_pool_lookup(&self, found: bool) {
        let counter = if found {
            &self.state.pool.hits
        } else {
            &self.state.pool.misses
        };
        counter.fetch_add(1, Relaxed);
    }
}

/// Returns a group of this size with an unguessable identifier; `None` if the kernel has no random
/// bytes.
fn new_stripes_with_random_id(count: u8, automatic: bool) -> Option<Stripes> {
    let group = GroupId(random_bytes().ok()?);
    Some(Stripes {
        group,
        count,
        automatic,
    })
}
