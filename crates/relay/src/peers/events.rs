// SPDX-License-Identifier: MIT OR Apache-2.0
//! What befalls a peer, remembered and, where it is news, said.

use crate::peers::{health::Report, peer::Peer};
use longhaul_admin::relay_record::PeerCounts;
use longhaul_command::note;
use longhaul_protocol::{
    convert::{GroupId, Stripes},
    failure::Failure,
};
use std::{sync::atomic::Ordering::Relaxed, time::Instant};

impl Peer {
    /// A new group, if one is wanted and the peer, for all that is known, would take it.
    pub(crate) fn new_stripes(&self) -> Option<Stripes> {
        (self.config.streams > 1 && self.state.striping.may_be_asked())
            .then(|| new_stripes(self.config.streams))
            .flatten()
    }

    /// The peer has said that it knows no groups.
    pub(crate) fn refuse_stripes(&self) {
        if self.state.striping.refuse() {
            note!(
                "longhaul relay: peer {} takes one stream only",
                self.config.name
            );
        }
    }

    /// Counts the legs that could not join their group, and says so once until all could again.
    pub(crate) fn note_missing_streams(&self, missing: &[Failure]) {
        if !self.state.striping.note_missing(missing.len()) {
            return;
        }
        let (name, streams) = (&self.config.name, self.config.streams);
        match missing {
            [] => note!("longhaul relay: peer {name}: all {streams} streams join again"),
            [why, ..] => note!(
                "longhaul relay: peer {name}: {} of {streams} streams could not join: {why}; the \
                 others carry on",
                missing.len()
            ),
        }
    }

    /// Says once that a listener's clients go straight to their destinations without it.
    pub(crate) fn is_passed_by(&self, listener: &str) {
        if !self.state.passed_by.swap(true, Relaxed) {
            let name = &self.config.name;
            note!(
                "longhaul relay: {listener}: clients go straight to their destinations while peer \
                 {name} is down"
            );
        }
    }

    /// It has served this relay.
    pub(crate) fn is_back(&self) {
        self.state.passed_by.store(false, Relaxed);
        if self.state.health.reached(Instant::now()) && self.is_configured {
            note!("longhaul relay: peer {} is back", self.config.name);
        }
    }

    /// Its health and its ready connections.
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

    /// Counts a request that came for a ready connection.
    pub(crate) fn count_taken(&self, found: bool) {
        let counter = match found {
            true => &self.state.stock.hits,
            false => &self.state.stock.misses,
        };
        counter.fetch_add(1, Relaxed);
    }
}

/// A group of this size that nobody can guess; `None` if the kernel has no random bytes.
fn new_stripes(count: u8) -> Option<Stripes> {
    let mut id = [0; 16];
    // getrandom(2): up to 256 bytes are never cut short.
    let filled = rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty());
    (filled == Ok(id.len())).then_some(Stripes {
        group: GroupId(id),
        count,
    })
}
