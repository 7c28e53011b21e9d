// SPDX-License-Identifier: MIT OR Apache-2.0
//! What goes through the crew: some records of one file, what is in them, and what shards say of them.

use super::crew::SHARDS;
use crate::{report::Output, series::Row};
use longhaul_flow::{
    Sink,
    record::{BothEnds, Flow},
    segment::{Item, Vantage},
    series::Bin,
};
use longhaul_packet::capture::{Damage, Run, Statistics};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex},
};

/// Whole records of one file. All of it is recycled: after the first few loads nothing is allocated.
///
/// Memory: the bytes (256 KiB, up to 20 MiB if a record is that long), 144 bytes for each packet in them
/// (at most 16,000, which takes packets of nothing; usually 2,500), and what shards say.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Which file, in the order of the command line.
    pub(super) file: usize,
    /// The capture's last: no bytes, and whatever waits is to be said now.
    pub(super) last: bool,
    /// Number of the first packet, over all files; they count from 1, as Wireshark does.
    pub(super) first_packet: u64,
    /// The file's bytes.
    pub(super) bytes: Vec<u8>,
    /// Where records are in them.
    pub(super) pieces: Vec<Piece>,
    /// By interface of the file.
    pub(super) vantages: Arc<Vec<Vantage>>,
    /// Segments may be of several places: there are several files, or interfaces.
    pub(super) places: bool,
    /// Files overlap in time here.
    pub(super) mixed: bool,
    /// If they do: nothing before this is still to come from any of them.
    pub(super) complete_ns: u64,

    /// The segments of each shard, in the order of the file.
    pub(super) shares: [Vec<Item>; SHARDS],
    /// What else was found.
    pub(super) notes: Notes,

    /// What shards said.
    pub(super) said: [Mutex<Said>; SHARDS],
}

/// Records that follow each other.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) run: Run,
    pub(super) place: Range<usize>,
}

/// What is in records beside segments.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Packets of all kinds.
    pub(super) packets: u64,
    /// Their times, first and last.
    pub(super) times: Option<(u64, u64)>,
    /// Segments, by vantage.
    pub(super) vantages: Vec<u64>,
    /// Packets that are not analysed, by reason.
    pub(super) left_out: BTreeMap<&'static str, u64>,
    /// Records that are whole, but not what is in them.
    pub(super) damages: Vec<Damage>,
    /// What interfaces counted.
    pub(super) statistics: Vec<Statistics>,
}

impl Notes {
    /// A segment was seen there.
    pub(super) fn seen_at(&mut self, vantage: Vantage) {
        let at = vantage.0 as usize;
        if self.vantages.len() <= at {
            self.vantages.resize(at + 1, 0);
        }
        self.vantages[at] += 1;
    }
}

/// What a shard said of a load.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) bins: Vec<Told>,
    #[allow(clippy::vec_box, reason = "they are large and go from hand to hand")]
    pub(super) flows: Vec<Box<Flow>>,
    /// Those that two places saw.
    pub(super) both_ends: Vec<BothEnds>,
}

/// The arguments of [`Sink::bin`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Told {
    pub(super) width: usize,
    pub(super) row: Row,
}

impl Told {
    /// What rows of a load are in order of.
    pub(super) fn place(&self) -> (usize, u64, bool, u64) {
        let Row {
            flow,
            upload,
            from_ns,
            ..
        } = self.row;
        (self.width, flow, !upload, from_ns)
    }
}

/// Listens to a shard's flows.
pub(super) struct Ear<'a> {
    pub(super) said: &'a mut Said,
    pub(super) output: &'a Output,
    /// Whether bins go anywhere.
    pub(super) series: bool,
}

impl Sink for Ear<'_> {
    fn bin(&mut self, flow: u64, upload: bool, width: usize, from_ns: u64, bin: &Bin) {
        if self.series {
            self.said.bins.push(Told {
                width,
                row: Row {
                    flow,
                    upload,
                    from_ns,
                    bin: *bin,
                },
            });
        }
    }

    fn flow(&mut self, mut flow: Flow) {
        self.output.thin(&mut flow);
        self.said.flows.push(Box::new(flow));
    }
}

impl Load {
    /// Empty, with all of its memory kept.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.shares.iter_mut().for_each(Vec::clear);
        self.notes = Notes::default();
        self.last = false;
        self.mixed = false;
        self.complete_ns = 0;
    }
}
