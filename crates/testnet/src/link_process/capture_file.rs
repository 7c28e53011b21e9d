// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capture file of `longhaul link --capture`.

use longhaul_packet::capture::{DamagedRange, EmulatorRecord, Reader, Record, Statistics, Step};

/// Contents of a file as far as it can be read.
#[derive(Default)]
pub struct CaptureFile {
    /// Names of the interfaces.
    pub interfaces: Vec<String>,
    /// Segments, in the order of the file.
    pub segments: Vec<Segment>,
    /// Statistics, in the order of the file.
    pub statistics: Vec<Statistics>,
    /// Damage that the reader found.
    pub damage: Vec<DamagedRange>,
    /// Bytes of the file.
    pub bytes: Vec<u8>,
}

/// Segment at one capture point.
#[derive(Clone)]
pub struct Segment {
    /// Number of the interface.
    pub interface: u32,
    /// Time, in nanoseconds since 1970.
    pub timestamp_ns: u64,
    /// Length on the wire, in bytes.
    pub wire_len: u32,
    /// Captured headers.
    pub headers: Vec<u8>,
    /// Verdict of the emulator; only before the queue.
    pub emulator_record: Option<EmulatorRecord>,
}

impl CaptureFile {
    /// Reads a capture file.
    pub fn read(bytes: Vec<u8>) -> Self {
        let mut file = Self::default();
        let mut reader = Reader::new();
        let mut rest = &bytes[..];
        loop {
            let step = reader.step(rest, true).unwrap();
            match &step {
                Step::Run(run) => run.records(&rest[..run.len]).for_each(|r| file.add(r)),
                Step::Damage(_, damage) => file.damage.push(*damage),
                Step::Skip(_) => {}
                Step::More(_) => panic!("the file is complete"),
                Step::End => break,
            }
            rest = &rest[step.taken()..];
        }
        let names = reader.interfaces().iter().map(|i| i.name.as_deref());
        file.interfaces = names.map(|name| name.unwrap().to_owned()).collect();
        file.bytes = bytes;
        file
    }

    fn add(&mut self, record: Record<'_>) {
        match record {
            Record::Frame(frame) => self.segments.push(Segment {
                interface: frame.interface,
                timestamp_ns: frame.timestamp_ns,
                wire_len: frame.wire_len,
                headers: frame.bytes.to_vec(),
                emulator_record: frame.emulator_record,
            }),
            Record::Statistics(statistics) => self.statistics.push(*statistics),
            Record::Damage(damage) => self.damage.push(*damage),
        }
    }

    /// Returns the segments that arrived at the queue of a direction (0 forward, 1 backward), in order of time.
    pub fn arrivals(&self, direction: u32) -> Vec<Segment> {
        self.select(direction, true)
    }

    /// Returns the segments that left that queue.
    pub fn departures(&self, direction: u32) -> Vec<Segment> {
        self.select(1 - direction, false)
    }

    fn select(&self, interface: u32, with_verdict: bool) -> Vec<Segment> {
        let here = |segment: &&Segment| {
            segment.interface == interface && segment.emulator_record.is_some() == with_verdict
        };
        let mut segments: Vec<_> = self.segments.iter().filter(here).cloned().collect();
        segments.sort_by_key(|segment| segment.timestamp_ns);
        segments
    }

    /// Whether the file contains `text`.
    pub fn contains(&self, text: &str) -> bool {
        let mut places = self.bytes.windows(text.len());
        places.any(|place| place == text.as_bytes())
    }
}
