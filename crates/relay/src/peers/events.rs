// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of a peer: stored, and logged when the state changes.

use crate::peers::{health::Report, peer::Peer};
use longhaul_admin::relay_record::PeerCounts;
use longhaul_command::errln;
use longhaul_protocol::{
    convert::{GroupId, Stripes},
    failure::Failure,
};
use std::{sync::atomic::Ordering::Relaxed, time::Instant};

impl Peer {
    /// Returns a new stripe group if the configuration wants one and the peer is not known to
    /// refuse groups.
    pub(crate) fn new_stripes(&self) -> Option<Stripes> {
        (self.config.streams > 1 && self.state.striping.may_be_asked())
            .then(|| new_stripes(self.config.streams))
            .flatten()
    }

    /// Records that the peer does not support groups.
    pub(crate) fn refuse_stripes(&self) {
        if self.state.striping.refuse() {
            errln!(
                "longhaul relay: peer {} takes one stream only",
                self.config.name
            );
        }
    }

    /// Counts the legs that could not join their group. Logs this once, and once more when all
    /// could join again.
    pub(crate) fn note_missing_streams(&self, missing: &[Failure]) {
        if !self.state.striping.note_missing(missing.len()) {
            return;
        }
        let (name, streams) = (&self.config.name, self.config.streams);
        match missing {
            [] => errln!("longhaul relay: peer {name}: all {streams} streams join again"),
            [why, ..] => errln!(
                "longhaul relay: peer {name}: {} of {streams} streams could not join: {why}; the \
                 others carry on",
                missing.len()
            ),
        }
    }

    /// Logs once that a listener's clients connect directly while this peer is down.
    pub(crate) fn is_passed_by(&self, listener: &str) {
        if !self.state.passed_by.swap(true, Relaxed) {
            let name = &self.config.name;
            errln!(
                "longhaul relay: {listener}: clients go straight to their destinations while peer \
                 {name} is down"
            );
        }
    }

    /// Marks the peer as up: it has served this relay.
    pub(crate) fn is_back(&self) {
        self.state.passed_by.store(false, Relaxed);
        if self.state.health.reached(Instant::now()) && self.is_configured {
            errln!("longhaul relay: peer {} is back", self.config.name);
        }
    }

    /// Returns the counters of health and pooled connections.
    pub(crate) fn read(&self) -> PeerCounts {
        let Report {
            down_since,
            failures,
        } = self.state.health.report();
        PeerCounts {
            name: self.config.name.clone(),
            address: self.place.destination().to_string(),
            down_s: down_since.map(|since| since.elapsed().as_secs_f64()),
            failures,
            ready: self.state.stock.ready.load(Relaxed),
            ready_hits: self.state.stock.hits.load(Relaxed),
            ready_misses: self.state.stock.misses.load(Relaxed),
            streams_missing: self.state.striping.missing.load(Relaxed),
        }
    }

    /// Counts a request for a pooled connection.
    pub(crate) fn count_taken(&self, found: bool) {
        let counter = match found {
            true => &self.state.stock.hits,
            false => &self.state.stock.misses,
        };
        counter.fetch_add(1, Relaxed);
    }
}

/// Returns a group of this size with an unguessable identifier; `None` if the kernel has no random
/// bytes.
fn new_stripes(count: u8) -> Option<Stripes> {
    let mut id = [0; 16];
    // getrandom(2): up to 256 bytes are never cut short.
    let filled = rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty());
    (filled == Ok(id.len())).then_some(Stripes {
        group: GroupId(id),
        count,
    })
}
