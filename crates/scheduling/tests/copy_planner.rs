// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul_scheduling` under streams that die at any moment or are slow: every block arrives, and none twice but what went a second
//! time because of that, for a far end that counts what came by each stream.

use longhaul_scheduling::{HasEnded, Ledger, Missing, Pace, Parcel, Stragglers, Work};
use longhaul_units::Time;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const NOW: Time = Time::ZERO;

/// A stream, as its two ends know it.
#[derive(Debug)]
struct Stream {
    number: u64,
    /// Sent, and neither arrived nor lost.
    under_way: VecDeque<Parcel>,
    arrived: u64,
    /// The far end has it open.
    alive: bool,
    /// The near end was told that it is not.
    told: bool,
}

#[derive(Debug)]
struct World {
    work: Work,
    ledger: Ledger,
    stragglers: Stragglers,
    repeated: BTreeMap<Parcel, u32>,
    streams: Vec<Stream>,
    next: u64,
    arrivals: BTreeMap<(u64, u64), u32>,
}

/// What happens next to a stream.
#[derive(Debug, Clone, Copy)]
enum Event {
    Takes,
    /// Nothing is left, and this stream is slow.
    Lags,
    Arrives,
    Confirms,
    Dies,
    Tells,
    /// The near end notices by itself, maybe before anybody told it.
    Notices,
}

fn events() -> impl Strategy<Value = Vec<(usize, Event)>> {
    let event = prop_oneof![
        6 => Just(Event::Takes),
        1 => Just(Event::Lags),
        6 => Just(Event::Arrives),
        2 => Just(Event::Confirms),
        1 => Just(Event::Dies),
        1 => Just(Event::Tells),
        1 => Just(Event::Notices),
    ];
    prop::collection::vec((0_usize..4, event), 0..400)
}

/// Files in their order: small ones, or the cuts between what is there and what is missing.
fn files() -> impl Strategy<Value = Vec<Missing>> {
    let cuts = prop::collection::btree_set(0_u64..60, 2..8);
    let blocks = cuts.prop_map(|cuts: BTreeSet<u64>| {
        let cuts: Vec<u64> = cuts.into_iter().collect();
        Missing::Blocks(cuts.chunks_exact(2).map(|two| two[0]..two[1]).collect())
    });
    let small = (0_u64..3 << 20).prop_map(Missing::Whole);
    prop::collection::vec(prop_oneof![3 => small, 1 => blocks], 1..30)
}

fn wanted(files: &[Missing]) -> BTreeSet<(u64, u64)> {
    let blocks = |missing: &Missing| match missing {
        Missing::Whole(_) => vec![0],
        Missing::Blocks(ranges) => ranges.iter().cloned().flatten().collect(),
    };
    let numbered = (0..).zip(files);
    numbered
        .flat_map(|(file, missing)| blocks(missing).into_iter().map(move |block| (file, block)))
        .collect()
}

impl World {
    fn new(files: &[Missing]) -> Self {
        let mut work = Work::default();
        for (file, missing) in (0..).zip(files) {
            work.need(file, missing.clone());
        }
        let mut world = Self {
            work,
            ledger: Ledger::default(),
            stragglers: Stragglers::default(),
            repeated: BTreeMap::new(),
            streams: Vec::new(),
            next: 0,
            arrivals: BTreeMap::new(),
        };
        for _ in 0..4 {
            let stream = world.opened();
            world.streams.push(stream);
        }
        world
    }

    fn opened(&mut self) -> Stream {
        self.next += 1;
        Stream {
            number: self.next,
            under_way: VecDeque::new(),
            arrived: 0,
            alive: true,
            told: false,
        }
    }

    fn happens(&mut self, at: usize, event: Event) {
        match event {
            Event::Takes => self.take(at),
            Event::Lags => self.repeat(at),
            Event::Arrives => self.arrive(at),
            Event::Confirms => {
                let Stream {
                    number, arrived, ..
                } = self.streams[at];
                self.ledger.received(number, arrived, NOW).unwrap();
            }
            Event::Dies => self.die(at),
            Event::Tells => self.tell(at),
            Event::Notices if !self.streams[at].alive => self.replace(at),
            Event::Notices => {}
        }
    }

    /// How often a block may arrive.
    fn times(&self, (file, block): (u64, u64)) -> u32 {
        let named = |parcel: &Parcel| match parcel {
            Parcel::Block { file: f, block: b } => (*f, *b) == (file, block),
            Parcel::Files(files) => files[..] == [file] && block == 0,
        };
        let repeated = self.repeated.iter().filter(|(parcel, _)| named(parcel));
        1 + repeated.map(|(_, times)| times).sum::<u32>()
    }

    /// As `send` of a copy's source does it.
    fn take(&mut self, at: usize) {
        let Some(parcel) = self.work.take() else {
            return;
        };
        let mut singles: VecDeque<Parcel> = match parcel {
            Parcel::Files(files) => files
                .into_iter()
                .map(|file| Parcel::Files(vec![file]))
                .collect(),
            block => [block].into(),
        };
        while let Some(parcel) = singles.pop_front() {
            let stream = &mut self.streams[at];
            match self
                .ledger
                .sent(stream.number, parcel.clone(), 1 << 20, NOW)
            {
                Ok(()) if stream.alive => stream.under_way.push_back(parcel),
                // It goes nowhere, which nobody knows yet.
                Ok(()) => {}
                Err(HasEnded(parcel)) => {
                    self.work.again(parcel);
                    singles.drain(..).for_each(|behind| self.work.again(behind));
                    return self.replace(at);
                }
            }
        }
    }

    /// As the thread that looks at all streams does it.
    fn repeat(&mut self, slow: usize) {
        if !self.work.is_empty() {
            return;
        }
        let pace = |slow: bool| Pace {
            window_bytes: if slow { 1000 } else { 1 << 20 },
            rtt: Time::from_millis(100),
            most_bytes_per_s: u64::MAX,
        };
        let all = self.streams.iter().enumerate();
        let paces = all.map(|(at, stream)| (stream.number, pace(at == slow)));
        for parcel in self.stragglers.repeat(&self.ledger, &paces.collect(), NOW) {
            *self.repeated.entry(parcel.clone()).or_default() += 1;
            self.work.again(parcel);
        }
    }

    fn arrive(&mut self, at: usize) {
        let stream = &mut self.streams[at];
        let Some(parcel) = stream.under_way.pop_front() else {
            return;
        };
        stream.arrived += 1;
        let block = match parcel {
            Parcel::Block { file, block } => (file, block),
            Parcel::Files(files) => (files[0], 0),
        };
        *self.arrivals.entry(block).or_default() += 1;
    }

    fn die(&mut self, at: usize) {
        self.streams[at].alive = false;
        self.streams[at].under_way.clear();
    }

    fn tell(&mut self, at: usize) {
        let stream = &mut self.streams[at];
        if !stream.alive && !stream.told {
            stream.told = true;
            let lost = self
                .ledger
                .ended(stream.number, stream.arrived, NOW)
                .unwrap();
            lost.into_iter()
                .rev()
                .for_each(|parcel| self.work.again(parcel));
        }
    }

    /// The near end opens another; the far end tells of the old one, if it has not.
    fn replace(&mut self, at: usize) {
        self.tell(at);
        self.streams[at] = self.opened();
    }

    /// From now on nothing dies.
    fn finish(&mut self) {
        for at in 0..4 {
            self.happens(at, Event::Notices);
        }
        while !self.work.is_empty() || self.streams.iter().any(|s| !s.under_way.is_empty()) {
            for at in 0..4 {
                self.take(at);
                self.arrive(at);
            }
        }
        (0..4).for_each(|at| self.happens(at, Event::Confirms));
    }
}

proptest! {
    #[test]
    fn every_block_arrives_once_whatever_dies(files in files(), events in events()) {
        let mut world = World::new(&files);
        for (at, event) in events {
            world.happens(at, event);
        }
        world.finish();
        let arrived: BTreeSet<_> = world.arrivals.keys().copied().collect();
        prop_assert_eq!(arrived, wanted(&files));
        prop_assert!(world.arrivals.iter().all(|(block, times)| *times <= world.times(*block)));
        prop_assert!(world.ledger.under_way().next().is_none());
    }
}
