// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds whole records in the bytes of a capture file, as they come.

use super::framing::{Judgement, Search};
use super::interface::Clock;
use super::pcap::{self, Pcap};
use super::pcapng::{self, Section};
use super::run::{Format, Run};
use super::{Damage, Fault, INTERFACES_MAX, Interface, LinkType, RECORD_MAX};
use std::sync::Arc;
use thiserror::Error;

/// Most that [`Step::More`] asks for: 20 MiB, a record and what it takes to see that another follows.
pub const BUFFER_MAX: usize = RECORD_MAX + (4 << 20);

/// Reads a capture file from its beginning, in bounded memory and without I/O.
///
/// The caller holds a buffer, shows what is in it to [`step`](Self::step), drops what that
/// [took](Step::taken) from its beginning, and fills up. What a step says does not depend on how much it
/// was shown at once, but for the lengths of runs.
///
/// A step only looks at where records begin and end, some nanoseconds for each; what is in them is read by
/// [`Run::records`], at once or on another thread. Damage between records is found here, and skipped with
/// as few of its neighbours as possible; damage inside of one is found there.
#[derive(Debug, Clone, Default)]
pub struct Reader {
    /// Bytes taken so far.
    at: u64,
    format: Option<Format>,
    interfaces: Arc<Vec<Interface>>,
    /// Seconds of the last sound record of a pcap file.
    before: Option<u32>,
    /// Damage whose end is not found yet.
    lost: Option<Damage>,
}

/// What the next bytes are.
#[derive(Debug, Clone)]
pub enum Step {
    /// Whole records.
    Run(Run),
    /// So many bytes with nothing to read in them; may be 0.
    Skip(usize),
    /// Something that can't be read, and ends (here) after so many bytes; may be 0.
    Damage(usize, Damage),
    /// Nothing can be said before there are so many bytes from here on.
    More(usize),
    /// The file ends.
    End,
}

impl Step {
    /// How many of the bytes need not be shown again.
    #[must_use]
    pub fn taken(&self) -> usize {
        match self {
            Self::Run(run) => run.len,
            Self::Skip(len) | Self::Damage(len, _) => *len,
            Self::More(_) | Self::End => 0,
        }
    }
}

/// Why a file can't be read at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotACapture {
    /// There is nothing in it.
    #[error("the file is empty")]
    Empty,
    /// It ends within the file header.
    #[error("the file ends inside its header")]
    Short,
    /// A compressed file.
    #[error("the file is compressed with {0}: unpack it first ({0} -d)")]
    Compressed(&'static str),
    /// It begins with something else.
    #[error("neither pcap nor pcapng: the file begins with {0:02x?}")]
    Foreign([u8; 4]),
}

impl Reader {
    /// At the beginning of a file.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many bytes were taken so far.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// `pcap` or `pcapng`, as soon as that is known.
    #[must_use]
    pub fn format(&self) -> Option<&'static str> {
        self.format.map(|format| match format {
            Format::Pcap(_) => "pcap",
            Format::Pcapng(_) => "pcapng",
        })
    }

    /// The interfaces that the file has described so far, as [`Frame::interface`](super::Frame::interface)
    /// counts them.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// What the next bytes of the file are. `at_end` says that the file ends with them.
    ///
    /// # Errors
    ///
    /// If the file does not begin as a capture does. Then nothing in it can be read.
    pub fn step(&mut self, bytes: &[u8], at_end: bool) -> Result<Step, NotACapture> {
        let step = match self.format {
            None => self.begin(bytes, at_end)?,
            Some(format) if self.lost.is_some() => self.search(format, bytes, at_end),
            Some(_) if bytes.is_empty() && at_end => Step::End,
            Some(format) => self.read(format, bytes, at_end),
        };
        self.at += step.taken() as u64;
        Ok(step)
    }

    fn begin(&mut self, bytes: &[u8], at_end: bool) -> Result<Step, NotACapture> {
        let needed = match bytes.first_chunk() {
            None => 4,
            Some(magic) if pcap::is_magic(*magic) => pcap::FILE_HEADER,
            Some(magic) if pcapng::is_magic(*magic) => pcapng::BLOCK_MIN,
            Some(magic) => return Err(foreign(*magic)),
        };
        match (bytes.len() < needed, at_end, bytes) {
            (true, false, _) => Ok(Step::More(needed)),
            (true, true, []) => Err(NotACapture::Empty),
            (true, true, _) => Err(NotACapture::Short),
            (false, ..) => self.begin_format(bytes, at_end),
        }
    }

    fn begin_format(&mut self, bytes: &[u8], at_end: bool) -> Result<Step, NotACapture> {
        let begun = self
            .begin_pcap(bytes, at_end)
            .or_else(|| self.begin_pcapng(bytes));
        begun.ok_or_else(|| foreign([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn begin_pcap(&mut self, bytes: &[u8], at_end: bool) -> Option<Step> {
        let (header, records) = bytes.split_first_chunk()?;
        let pcap = match Pcap::parse(header)?.settled(records, at_end) {
            Ok(pcap) => pcap,
            Err(need) => return Some(Step::More(pcap::FILE_HEADER + need)),
        };
        self.interfaces = Arc::new(vec![Interface {
            name: None,
            link_type: pcap.link_type,
            snaplen: pcap.snaplen,
            clock: Clock::MICROSECONDS,
        }]);
        self.format = Some(Format::Pcap(pcap));
        Some(Step::Skip(pcap::FILE_HEADER))
    }

    /// The section header block itself is taken later, as those in the middle of a file are.
    fn begin_pcapng(&mut self, bytes: &[u8]) -> Option<Step> {
        self.format = Some(Format::Pcapng(Section::begin(bytes, 0)?));
        Some(Step::Skip(0))
    }

    fn read(&mut self, format: Format, bytes: &[u8], at_end: bool) -> Step {
        match self.run(format, bytes, at_end) {
            (0, _) => self.judge(format, bytes, at_end),
            (len, packets) => self.found(format, len, packets),
        }
    }

    fn run(&mut self, format: Format, bytes: &[u8], at_end: bool) -> (usize, u64) {
        match format {
            Format::Pcapng(section) => section.run(bytes),
            Format::Pcap(pcap) => {
                let (len, packets, last) = pcap.run(bytes, at_end);
                self.before = last.or(self.before);
                (len, packets)
            }
        }
    }

    fn found(&self, format: Format, len: usize, packets: u64) -> Step {
        Step::Run(Run {
            at: self.at,
            len,
            packets,
            format,
            interfaces: Arc::clone(&self.interfaces),
        })
    }

    fn judge(&mut self, format: Format, bytes: &[u8], at_end: bool) -> Step {
        let judgement = match format {
            Format::Pcap(pcap) => pcap.judge(bytes, at_end, self.before),
            Format::Pcapng(section) => section.judge(bytes, at_end),
        };
        match judgement {
            Judgement::Record(len) => {
                if let Format::Pcap(pcap) = format {
                    self.before = pcap.seconds(bytes);
                }
                let packets = match format {
                    Format::Pcap(_) => 1,
                    Format::Pcapng(section) => section.packets(bytes),
                };
                self.found(format, len, packets)
            }
            Judgement::Header(len) => self.header(format, &bytes[..len]),
            Judgement::Damage(len, fault) => self.damage(len, fault),
            Judgement::More(need) => Step::More(need),
            Judgement::Lost(fault) => {
                self.lost = Some(self.damaged(1, fault));
                Step::Skip(1)
            }
        }
    }

    fn damage(&self, len: usize, fault: Fault) -> Step {
        Step::Damage(len, self.damaged(len, fault))
    }

    fn damaged(&self, len: usize, fault: Fault) -> Damage {
        Damage {
            at: self.at,
            skipped: len as u64,
            fault,
        }
    }

    /// A block that begins a section or describes an interface.
    fn header(&mut self, format: Format, block: &[u8]) -> Step {
        let Format::Pcapng(section) = format else {
            return Step::Skip(block.len());
        };
        if let Some(section) = Section::begin(block, self.interfaces.len()) {
            self.format = Some(Format::Pcapng(section));
            return Step::Skip(block.len());
        }
        match self.describe(&section, block) {
            Ok(()) => Step::Skip(block.len()),
            Err(fault) => self.damage(block.len(), fault),
        }
    }

    /// A description that can't be read still counts, or those after it would have wrong numbers.
    fn describe(&mut self, section: &Section, block: &[u8]) -> Result<(), Fault> {
        if self.interfaces.len() >= INTERFACES_MAX {
            return Err(Fault::Interfaces);
        }
        let described = pcapng::interface(section, block);
        let known = described.clone().unwrap_or(Interface {
            name: None,
            link_type: LinkType::Other(u16::MAX),
            snaplen: 0,
            clock: Clock::MICROSECONDS,
        });
        Arc::make_mut(&mut self.interfaces).push(known);
        described.map(drop)
    }

    /// Goes on to where records begin again.
    fn search(&mut self, format: Format, bytes: &[u8], at_end: bool) -> Step {
        let search = match format {
            Format::Pcap(pcap) => pcap.search(bytes, 0..bytes.len(), at_end, self.before),
            Format::Pcapng(section) => section.search(bytes, 0..bytes.len(), at_end),
        };
        match search {
            Search::At(at) => self.is_over(at),
            Search::Unsure { at: 0, need } => Step::More(need),
            Search::Unsure { at, .. } => self.goes_on(at),
            Search::Nowhere if at_end => self.is_over(bytes.len()),
            Search::Nowhere => Step::More(1),
        }
    }

    fn is_over(&mut self, len: usize) -> Step {
        self.goes_on(len);
        match self.lost.take() {
            Some(damage) => Step::Damage(len, damage),
            None => Step::Skip(len),
        }
    }

    fn goes_on(&mut self, len: usize) -> Step {
        if let Some(damage) = &mut self.lost {
            damage.skipped += len as u64;
        }
        Step::Skip(len)
    }
}

/// What compressors begin their files with (RFC 1952, RFC 8878, xz, LZ4 and bzip2).
fn foreign(magic: [u8; 4]) -> NotACapture {
    match magic {
        [0x1f, 0x8b, ..] => NotACapture::Compressed("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd] => NotACapture::Compressed("zstd"),
        [0xfd, b'7', b'z', b'X'] => NotACapture::Compressed("xz"),
        [0x04, 0x22, 0x4d, 0x18] => NotACapture::Compressed("lz4"),
        [b'B', b'Z', b'h', _] => NotACapture::Compressed("bzip2"),
        _ => NotACapture::Foreign(magic),
    }
}
