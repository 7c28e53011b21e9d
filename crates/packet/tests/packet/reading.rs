// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a whole capture file into memory.

use longhaul_packet::capture::{
    BUFFER_MAX, DamagedRange, EmulatorRecord, FormatError, Frame, Interface, LinkType, OddTimes,
    Reader, Record, Statistics, Step,
};

/// A [`Frame`] that owns its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) at_ns: u64,
    pub(crate) interface: u32,
    pub(crate) link_type: LinkType,
    pub(crate) wire_len: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) segment_size: u16,
    pub(crate) emulator_record: Option<EmulatorRecord>,
}

impl From<Frame<'_>> for Packet {
    fn from(frame: Frame<'_>) -> Self {
        Self {
            at_ns: frame.timestamp_ns,
            interface: frame.interface,
            link_type: frame.link_type,
            wire_len: frame.wire_len,
            bytes: frame.bytes.to_vec(),
            segment_size: frame.segment_size,
            emulator_record: frame.emulator_record,
        }
    }
}

/// Contents of a capture file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) packets: Vec<Packet>,
    pub(crate) statistics: Vec<Statistics>,
    pub(crate) damages: Vec<DamagedRange>,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) odd_times: OddTimes,
}

impl Contents {
    fn push(&mut self, record: Record<'_>) {
        match record {
            Record::Frame(frame) => self.packets.push(frame.into()),
            Record::Statistics(statistics) => self.statistics.push(*statistics),
            Record::Damage(damage) => self.damages.push(*damage),
        }
    }

    /// Returns the captured bytes of every packet.
    pub(crate) fn payloads(&self) -> Vec<&[u8]> {
        self.packets
            .iter()
            .map(|packet| &packet.bytes[..])
            .collect()
    }

    /// Returns the number of bytes skipped as damage.
    pub(crate) fn skipped(&self) -> u64 {
        self.damages.iter().map(|damage| damage.skipped).sum()
    }
}

/// Reads a file in a single chunk.
pub(crate) fn read(file: &[u8]) -> Contents {
    read_in_chunks(file, std::iter::repeat(file.len())).expect("a capture")
}

/// Reads a file in chunks of these sizes in bytes, and checks every step of the reader.
pub(crate) fn read_in_chunks(
    file: &[u8],
    mut chunks: impl Iterator<Item = usize>,
) -> Result<Contents, FormatError> {
    let (mut reader, mut contents) = (Reader::new(), Contents::default());
    let (mut begin, mut end) = (0, 0);
    let mut idle = 0;
    loop {
        assert_eq!(reader.offset(), begin as u64);
        let (buffer, at_end) = (&file[begin..end], end == file.len());
        let step = reader.step(buffer, at_end)?;
        assert!(step.taken() <= buffer.len());
        begin += step.taken();
        idle = if step.taken() > 0 { 0 } else { idle + 1 };
        match &step {
            Step::Run(run) => {
                assert!(run.len > 0);
                run.records(&buffer[..run.len])
                    .for_each(|record| contents.push(record));
            }
            Step::Damage(_, damage) => {
                assert_eq!(damage.at + damage.skipped, begin as u64);
                contents.damages.push(*damage);
            }
            Step::Skip(_) => {}
            Step::More(need) => {
                assert!(!at_end && (buffer.len() + 1..=BUFFER_MAX).contains(need));
                end = file.len().min(end + chunks.next().unwrap_or(1));
                idle = 0;
            }
            Step::End => {
                assert!(at_end && begin == file.len());
                contents.interfaces = reader.interfaces().to_vec();
                contents.odd_times = reader.odd_times();
                return Ok(contents);
            }
        }
        assert!(idle < 4, "steps without progress");
    }
}
