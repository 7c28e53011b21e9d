// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks capture files: every byte is read, skipped or reported as damaged, for any buffer size. Records that were
//! read can be written and read back. The input is a file.

use longhaul_packet::capture::{
    BUFFER_MAX, DamagedRange, EmulatorRecord, FormatError, Frame, Interface, LinkType, OddTimes,
    Reader, Record, Statistics, Step, writer,
};

pub(crate) fn check(input: &[u8]) {
    let whole = read(input, input.len());
    for piece in [1, 7, 1000] {
        assert_eq!(read(input, piece), whole, "in pieces of {piece}");
    }
    if let Ok(whole) = whole {
        let contents =
            read(&written_file(&whole), usize::MAX).expect("what was written can be read");
        assert_eq!(contents.frames, whole.frames);
        assert!(contents.damages.is_empty());
    }
}

/// Frame with a copy of its bytes.
#[derive(Debug, PartialEq)]
struct OwnedFrame {
    timestamp_ns: u64,
    interface: u32,
    link_type: LinkType,
    wire_len: u32,
    bytes: Vec<u8>,
    segment_size: u16,
    emulator_record: Option<EmulatorRecord>,
}

#[derive(Debug, Default, PartialEq)]
struct Contents {
    frames: Vec<OwnedFrame>,
    statistics: Vec<Statistics>,
    damages: Vec<DamagedRange>,
    interfaces: Vec<Interface>,
    odd_times: OddTimes,
}

fn read(file: &[u8], piece: usize) -> Result<Contents, FormatError> {
    let (mut reader, mut contents) = (Reader::new(), Contents::default());
    let (mut begin, mut end) = (0, file.len().min(piece));
    // A step that takes no bytes is followed by one that does, or by more bytes.
    for _ in 0..4 * file.len() + 16 {
        let (available, at_end) = (&file[begin..end], end == file.len());
        let step = reader.step(available, at_end)?;
        match &step {
            Step::Run(run) => {
                assert_eq!((run.at, run.len > 0), (begin as u64, true));
                run.records(&available[..run.len])
                    .for_each(|record| contents.add(record));
            }
            Step::Damage(len, damage) => {
                assert_eq!(damage.at + damage.skipped, (begin + len) as u64);
                contents.damages.push(*damage);
            }
            Step::Skip(_) => {}
            Step::More(need) => {
                assert!(!at_end && (available.len() + 1..=BUFFER_MAX).contains(need));
                end = file.len().min(end.saturating_add(piece));
            }
            Step::End => {
                assert_eq!((begin, at_end), (file.len(), true));
                contents.interfaces = reader.interfaces().to_vec();
                contents.odd_times = reader.odd_times();
                return Ok(contents);
            }
        }
        begin += step.taken();
        assert_eq!(reader.offset(), begin as u64);
    }
    panic!("no end");
}

impl Contents {
    fn add(&mut self, record: Record<'_>) {
        match record {
            Record::Frame(frame) => self.frames.push(owned_frame(&frame)),
            Record::Statistics(statistics) => self.statistics.push(*statistics),
            Record::Damage(damage) => self.damages.push(*damage),
        }
    }
}

fn owned_frame(frame: &Frame<'_>) -> OwnedFrame {
    assert!(frame.bytes.len() <= frame.wire_len as usize);
    OwnedFrame {
        timestamp_ns: frame.timestamp_ns,
        interface: frame.interface,
        link_type: frame.link_type,
        wire_len: frame.wire_len,
        bytes: frame.bytes.to_vec(),
        segment_size: frame.segment_size,
        emulator_record: frame.emulator_record,
    }
}

/// Writes the records as pcapng.
fn written_file(contents: &Contents) -> Vec<u8> {
    let mut file = Vec::new();
    writer::section(&mut file, &writer::SectionInfo::default());
    for interface in &contents.interfaces {
        let interface = writer::Interface {
            name: interface.name.as_deref().unwrap_or_default(),
            link_type: interface.link_type,
            snaplen: interface.snaplen,
            filter: "",
        };
        writer::interface(&mut file, &interface);
    }
    for frame in &contents.frames {
        let frame = Frame {
            timestamp_ns: frame.timestamp_ns,
            interface: frame.interface,
            link_type: frame.link_type,
            wire_len: frame.wire_len,
            bytes: &frame.bytes,
            segment_size: frame.segment_size,
            emulator_record: frame.emulator_record,
        };
        writer::packet(&mut file, &frame, writer::PacketDirection::Unknown);
    }
    file
}
