// SPDX-License-Identifier: MIT OR Apache-2.0
//! All flows of a shard.

use super::segment::{FlowKey, Segment, Vantage};
use super::{Settings, Sink};

/// All flows of one shard: whoever has several gives each all segments of its flows, in order of time.
#[derive(Debug)]
pub struct Flows {
    settings: Settings,
}

impl Flows {
    /// No flow yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    /// Takes a segment in. `number` counts the capture's packets (over all vantages and shards); a flow
    /// has the number of its first packet, so that numbers don't depend on how flows are sharded.
    pub fn segment(
        &mut self,
        number: u64,
        vantage: Vantage,
        key: &FlowKey,
        segment: &Segment,
        sink: &mut impl Sink,
    ) {
        let _ = (number, vantage, key, segment, sink, &self.settings);
    }

    /// The capture is at its end: every flow is reported, in order of its number.
    pub fn finish(self, sink: &mut impl Sink) {
        let _ = sink;
    }
}
