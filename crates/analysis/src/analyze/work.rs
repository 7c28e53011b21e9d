// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipeline of an analysis: reads records, decodes segments, gives each to its flow's shard, and collects the
//! output of the shards.

use super::{
    crew::Work,
    load::{Ear, Load, Notes, Said},
    progress::Progress,
    shard::{Shard, shard_of},
    source::span,
    sources::{FileFacts, Place, Sources},
};
use crate::report::{
    CaptureFile, DAMAGES_MAX, Damage, Output, Sources as Told, VantagePoint, Writer,
};
use anyhow::Result;
use longhaul_flow::{
    decode::{Undecoded, decode},
    record::TwoPointComparison,
    segment::CapturedSegment,
};
use longhaul_packet::capture::{Frame, Record};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Maximum number of flows at two capture points in the result, those that end first: up to 400 kB each.
const PAIRS_TOLD: usize = 100;

/// Pipeline of an analysis.
pub(super) struct Analyze<'a> {
    /// True if bins are written or kept.
    pub(super) series: bool,
    pub(super) progress: &'a Progress,
    pub(super) output: &'a Output,
}

/// Collected output of the shards and counters of the batches.
pub(super) struct Gathered<'a> {
    writer: Writer<'a>,
    /// Counters and damages by file.
    files: Vec<Found>,
    /// Number of segments by vantage.
    vantages: Vec<u64>,
    /// Flows that were captured at two points.
    both_ends: Vec<TwoPointComparison>,
}

/// Counters and damages of a file.
#[derive(Debug, Default)]
struct Found {
    packets: u64,
    times: Option<(u64, u64)>,
    left_out: BTreeMap<String, u64>,
    damages: Vec<Damage>,
    damages_more: u64,
    /// Packets that the capturing kernel dropped, by interface; the last counter replaces earlier ones.
    drops: BTreeMap<u32, u64>,
}

impl<'a> Work for Analyze<'a> {
    type Reader = Sources;
    type Load = Load;
    type Shard = Shard;
    type Collector = Gathered<'a>;

    fn read(&self, sources: &mut Sources, load: &mut Load) -> Result<bool> {
        let any = sources.next(load)?;
        self.progress.is_at(sources.offset());
        Ok(any)
    }

    fn spread(&self, load: &mut Load) -> u32 {
        spread(load);
        match load.mixed || load.last {
            true => u32::MAX,
            false => takers(load),
        }
    }

    fn run(&self, number: usize, shard: &mut Shard, load: &Load) {
        let mut said = lock(&load.said[number]);
        let mut ear = Ear {
            said: &mut said,
            output: self.output,
            series: self.series,
        };
        shard.take(number, load, &mut ear);
    }

    fn collect(&self, gathered: &mut Gathered<'a>, load: &Load) -> Result<()> {
        let mut said: Vec<_> = load.said.iter().map(lock).collect();
        gathered.take_bins(&said);
        gathered.take_flows(&mut said);
        said.iter_mut().for_each(|said| said.bins.clear());
        gathered.take_notes(load);
        anyhow::ensure!(!self.output.has_failed(), "cannot write the result");
        Ok(())
    }
}

/// Decodes the records of a batch.
fn spread(load: &mut Load) {
    let mut number = load.first_packet;
    for piece in std::mem::take(&mut load.pieces) {
        let bytes = std::mem::take(&mut load.bytes);
        for record in piece.run.records(&bytes[piece.place]) {
            match record {
                Record::Frame(frame) => {
                    load.take(number, &frame);
                    number += 1;
                }
                Record::Statistics(statistics) => load.notes.statistics.push(statistics),
                Record::Damage(damage) => load.notes.damages.push(damage),
            }
        }
        load.bytes = bytes;
    }
}

impl Load {
    fn take(&mut self, number: u64, frame: &Frame<'_>) {
        self.notes.packets += 1;
        self.notes.times = span(self.notes.times, frame.timestamp_ns);
        let segment = decode(frame);
        match (segment, self.vantages.get(frame.interface as usize)) {
            (Ok((key, segment)), Some(&vantage)) => {
                self.notes.seen_at(vantage);
                self.shares[shard_of(&key)].push(CapturedSegment {
                    number,
                    capture_point: vantage,
                    key,
                    segment,
                });
            }
            (Err(reason), _) => *self.notes.left_out.entry(words(reason)).or_default() += 1,
            // Cannot happen: the reader returns no record of an interface that was not described.
            (Ok(_), None) => {}
        }
    }
}

/// Returns a bit mask of the shards that have segments in a batch.
fn takers(load: &Load) -> u32 {
    let shares = load.shares.iter().enumerate();
    shares
        .filter(|(_, share)| !share.is_empty())
        .map(|(shard, _)| 1 << shard)
        .sum()
}

impl<'a> Gathered<'a> {
    /// Creates an empty collector that writes to `output`.
    pub(super) fn new(output: &'a Output) -> Self {
        Self {
            writer: output.writer(),
            files: Vec::new(),
            vantages: Vec::new(),
            both_ends: Vec::new(),
        }
    }

    /// Writes bins in an order that does not depend on shards: by width, flow, direction and time.
    fn take_bins(&mut self, said: &[MutexGuard<'_, Said>]) {
        let mut bins: Vec<_> = said.iter().flat_map(|said| &said.bins).collect();
        bins.sort_unstable_by_key(|told| told.place());
        for told in bins {
            self.writer.row(told.width, told.row);
        }
    }

    /// Writes flows in order of their numbers.
    fn take_flows(&mut self, said: &mut [MutexGuard<'_, Said>]) {
        let mut flows = Vec::new();
        for said in said {
            flows.append(&mut said.flows);
            let room = PAIRS_TOLD.saturating_sub(self.both_ends.len());
            self.both_ends.extend(said.both_ends.drain(..).take(room));
        }
        flows.sort_unstable_by_key(|flow| flow.number);
        for flow in flows {
            self.writer.flow(flow);
        }
    }

    fn take_notes(&mut self, load: &Load) {
        if self.files.len() <= load.file {
            self.files.resize_with(load.file + 1, Found::default);
        }
        self.files[load.file].add(&load.notes);
        add(&mut self.vantages, &load.notes.vantages);
    }

    /// Closes the writer and returns the facts about files and capture points.
    pub(super) fn close(mut self, sources: Sources) -> Told {
        let (facts, places) = sources.close();
        self.files.resize_with(facts.len(), Found::default);
        let names: Vec<_> = facts
            .iter()
            .map(|file| file.path.display().to_string())
            .collect();
        let files = facts.into_iter().zip(self.files);
        let packets = self.vantages.iter().copied().chain(std::iter::repeat(0));
        let vantages = places.into_iter().zip(packets);
        Told {
            files: files.map(|(facts, found)| found.told(facts)).collect(),
            vantages: vantages
                .map(|(place, packets)| vantage(&place, &names[place.file], packets))
                .collect(),
            both_ends: self.both_ends,
        }
    }
}

impl Found {
    fn add(&mut self, notes: &Notes) {
        self.packets += notes.packets;
        if let Some((first, last)) = notes.times {
            self.times = span(span(self.times, first), last);
        }
        for (reason, count) in &notes.left_out {
            *self.left_out.entry((*reason).to_owned()).or_default() += count;
        }
        for damage in &notes.damages {
            self.damage(damage.at, damage.to_string());
        }
        for counted in &notes.statistics {
            let drops = [counted.if_dropped, counted.os_dropped];
            let known = drops.iter().flatten().copied().max();
            self.drops
                .extend(known.map(|drops| (counted.interface, drops)));
        }
    }

    /// Adds a damage; beyond the maximum it is only counted.
    fn damage(&mut self, at_byte: u64, what: String) {
        match self.damages.len() < DAMAGES_MAX {
            true => self.damages.push(Damage { at_byte, what }),
            false => self.damages_more += 1,
        }
    }

    fn told(mut self, facts: FileFacts) -> CaptureFile {
        for (at, what) in facts.damages {
            self.damage(at, what);
        }
        self.damages.sort_by_key(|damage| damage.at_byte);
        CaptureFile {
            name: facts.path.display().to_string(),
            format: facts.format,
            bytes: facts.bytes,
            packets: self.packets,
            first_ns: self.times.map(|(first, _)| first),
            last_ns: self.times.map(|(_, last)| last),
            kernel_drops: (!self.drops.is_empty()).then(|| self.drops.values().sum()),
            damages: self.damages,
            damages_more: self.damages_more,
            left_out: self.left_out,
        }
    }
}

/// Returns the result's entry of a capture point. An interface without a name gets the name of its file.
fn vantage(place: &Place, file: &str, packets: u64) -> VantagePoint {
    VantagePoint {
        name: place.name.as_deref().unwrap_or(file).to_owned(),
        file: place.file,
        interface: place.interface,
        packets,
    }
}

fn words(reason: Undecoded) -> &'static str {
    match reason {
        Undecoded::LinkType => "a link type that is not known here",
        Undecoded::NotIp => "not IP",
        Undecoded::NotTcp => "not TCP",
        Undecoded::Nested => "not read: in more than eight tunnels",
        Undecoded::Encrypted => "not read: encrypted by IPsec",
        Undecoded::EncryptedWifi => "not read: encrypted 802.11 data",
        Undecoded::AggregatedWifi => "not read: several packets in one 802.11 frame (A-MSDU)",
        Undecoded::WifiFragment => "later fragments of 802.11 frames",
        Undecoded::CompressedPpp => "not read: compressed or encrypted by PPP",
        Undecoded::Fragment => "later fragments of IP packets",
        Undecoded::Short => "cut off before the end of TCP's header",
        Undecoded::Lengths => "lengths that contradict each other",
    }
}

fn add(sums: &mut Vec<u64>, more: &[u64]) {
    sums.resize(sums.len().max(more.len()), 0);
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum += more;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
