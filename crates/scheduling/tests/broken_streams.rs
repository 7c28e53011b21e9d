// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of the schedule when streams break at any moment or are slow. A simulated receiver counts the parcels of
//! each stream. Every block arrives. No block arrives twice, except those that were resent for a slow stream.

use longhaul_scheduling::{Ledger, Missing, Parcel, StreamEnded, StreamRate, Work};
use longhaul_units::Time;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const NOW: Time = Time::ZERO;

/// Stream with the state of its sender and of its receiver.
#[derive(Debug)]
struct Stream {
    number: u64,
    /// Parcels that were sent, and have neither arrived nor been lost.
    in_flight: VecDeque<Parcel>,
    /// Parcels that arrived.
    arrived: u64,
    /// Whether the receiver has the stream open.
    is_open: bool,
    /// Whether the receiver has reported to the sender that the stream broke.
    is_reported: bool,
}

#[derive(Debug)]
struct Simulation {
    work: Work,
    ledger: Ledger,
    /// Number of times that each parcel was resent for a slow stream.
    resent: BTreeMap<Parcel, u32>,
    streams: Vec<Stream>,
    last_number: u64,
    /// Number of arrivals of each block, by file and block.
    arrivals: BTreeMap<(u64, u64), u32>,
}

/// The next event of a stream.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// The sender sends a parcel.
    Send,
    /// The stream is slow. If no work is left, its parcels are resent.
    Slow,
    /// A parcel arrives.
    Arrive,
    /// The receiver confirms the parcels that arrived.
    Confirm,
    /// The stream breaks.
    Break,
    /// The receiver reports a broken stream.
    Report,
    /// The sender notices a broken stream itself, maybe before the receiver's report.
    Notice,
}

fn events() -> impl Strategy<Value = Vec<(usize, Event)>> {
    let event = prop_oneof![
        6 => Just(Event::Send),
        1 => Just(Event::Slow),
        6 => Just(Event::Arrive),
        2 => Just(Event::Confirm),
        1 => Just(Event::Break),
        1 => Just(Event::Report),
        1 => Just(Event::Notice),
    ];
    prop::collection::vec((0_usize..4, event), 0..400)
}

/// Missing parts of files, in the order of the files: small files, or ranges of blocks.
fn missing_parts() -> impl Strategy<Value = Vec<Missing>> {
    let bounds = prop::collection::btree_set(0_u64..60, 2..8);
    let blocks = bounds.prop_map(|bounds: BTreeSet<u64>| {
        let bounds: Vec<u64> = bounds.into_iter().collect();
        let ranges = bounds.as_chunks().0.iter().map(|&[start, end]| start..end);
        Missing::Blocks(ranges.collect())
    });
    let small = (0_u64..3 << 20).prop_map(Missing::Whole);
    prop::collection::vec(prop_oneof![3 => small, 1 => blocks], 1..30)
}

fn missing_blocks(files: &[Missing]) -> BTreeSet<(u64, u64)> {
    let blocks = |missing: &Missing| match missing {
        Missing::Whole(_) => vec![0],
        Missing::Blocks(ranges) => ranges.iter().cloned().flatten().collect(),
    };
    let numbered = (0..).zip(files);
    numbered
        .flat_map(|(file, missing)| blocks(missing).into_iter().map(move |block| (file, block)))
        .collect()
}

impl Simulation {
    fn new(files: &[Missing]) -> Self {
        let mut work = Work::default();
        for (file, missing) in (0..).zip(files) {
            work.add(file, missing.clone());
        }
        let mut simulation = Self {
            work,
            ledger: Ledger::default(),
            resent: BTreeMap::new(),
            streams: Vec::new(),
            last_number: 0,
            arrivals: BTreeMap::new(),
        };
        for _ in 0..4 {
            let stream = simulation.open();
            simulation.streams.push(stream);
        }
        simulation
    }

    fn open(&mut self) -> Stream {
        self.last_number += 1;
        Stream {
            number: self.last_number,
            in_flight: VecDeque::new(),
            arrived: 0,
            is_open: true,
            is_reported: false,
        }
    }

    fn apply(&mut self, index: usize, event: Event) {
        match event {
            Event::Send => self.send(index),
            Event::Slow => self.resend(index),
            Event::Arrive => self.arrive(index),
            Event::Confirm => {
                let Stream {
                    number, arrived, ..
                } = self.streams[index];
                self.ledger.confirm(number, arrived, NOW).unwrap();
            }
            Event::Break => self.break_stream(index),
            Event::Report => self.report(index),
            Event::Notice if !self.streams[index].is_open => self.replace(index),
            Event::Notice => {}
        }
    }

    /// The largest number of times that a block may arrive.
    fn arrivals_max(&self, (file, block): (u64, u64)) -> u32 {
        let has_block = |parcel: &Parcel| match parcel {
            Parcel::Block { file: f, block: b } => (*f, *b) == (file, block),
            Parcel::Files(files) => files[..] == [file] && block == 0,
        };
        let resent = self.resent.iter().filter(|(parcel, _)| has_block(parcel));
        1 + resent.map(|(_, times)| times).sum::<u32>()
    }

    /// Sends a parcel as the source of a copy does. Each small file is a parcel of its own.
    fn send(&mut self, index: usize) {
        let Some(parcel) = self.work.next_parcel() else {
            return;
        };
        let mut parcels: VecDeque<Parcel> = match parcel {
            Parcel::Files(files) => files
                .into_iter()
                .map(|file| Parcel::Files(vec![file]))
                .collect(),
            block => [block].into(),
        };
        while let Some(parcel) = parcels.pop_front() {
            let stream = &mut self.streams[index];
            match self
                .ledger
                .record_sent(stream.number, parcel.clone(), 1 << 20, NOW)
            {
                Ok(()) if stream.is_open => stream.in_flight.push_back(parcel),
                // The parcel is lost, but neither end knows that yet.
                Ok(()) => {}
                Err(StreamEnded(parcel)) => {
                    self.work.requeue(parcel);
                    parcels
                        .drain(..)
                        .for_each(|parcel| self.work.requeue(parcel));
                    return self.replace(index);
                }
            }
        }
    }

    /// Resends parcels of a slow stream, as the thread that samples all streams does.
    fn resend(&mut self, slow_stream: usize) {
        if !self.work.is_empty() {
            return;
        }
        let rate = |is_slow: bool| StreamRate {
            window_bytes: if is_slow { 1000 } else { 1 << 20 },
            rtt: Time::from_millis(100),
            bytes_per_s_max: u64::MAX,
        };
        let all = self.streams.iter().enumerate();
        let rates = all.map(|(index, stream)| (stream.number, rate(index == slow_stream)));
        for parcel in self.ledger.choose_resends(&rates.collect(), NOW) {
            *self.resent.entry(parcel.clone()).or_default() += 1;
            self.work.requeue(parcel);
        }
    }

    fn arrive(&mut self, index: usize) {
        let stream = &mut self.streams[index];
        let Some(parcel) = stream.in_flight.pop_front() else {
            return;
        };
        stream.arrived += 1;
        let block = match parcel {
            Parcel::Block { file, block } => (file, block),
            Parcel::Files(files) => (files[0], 0),
        };
        *self.arrivals.entry(block).or_default() += 1;
    }

    fn break_stream(&mut self, index: usize) {
        self.streams[index].is_open = false;
        self.streams[index].in_flight.clear();
    }

    fn report(&mut self, index: usize) {
        let stream = &mut self.streams[index];
        if !stream.is_open && !stream.is_reported {
            stream.is_reported = true;
            let lost = self
                .ledger
                .close(stream.number, stream.arrived, NOW)
                .unwrap();
            lost.into_iter()
                .rev()
                .for_each(|parcel| self.work.requeue(parcel));
        }
    }

    /// Opens a new stream in place of a broken one. The receiver reports the broken one, unless it has done so.
    fn replace(&mut self, index: usize) {
        self.report(index);
        self.streams[index] = self.open();
    }

    /// Completes the copy, without further breaks.
    fn finish(&mut self) {
        for index in 0..4 {
            self.apply(index, Event::Notice);
        }
        while !self.work.is_empty() || self.streams.iter().any(|s| !s.in_flight.is_empty()) {
            for index in 0..4 {
                self.send(index);
                self.arrive(index);
            }
        }
        (0..4).for_each(|index| self.apply(index, Event::Confirm));
    }
}

proptest! {
    #[test]
    fn every_block_arrives_once_when_streams_break(files in missing_parts(), events in events()) {
        let mut simulation = Simulation::new(&files);
        for (index, event) in events {
            simulation.apply(index, event);
        }
        simulation.finish();
        let arrived: BTreeSet<_> = simulation.arrivals.keys().copied().collect();
        prop_assert_eq!(arrived, missing_blocks(&files));
        prop_assert!(simulation.arrivals.iter().all(|(block, times)| *times <= simulation.arrivals_max(*block)));
        prop_assert!((0..=simulation.last_number).all(|stream| simulation.ledger.is_idle(stream)));
    }
}
