// SPDX-License-Identifier: MIT OR Apache-2.0
//! Incremental reader of capture files, which finds whole records in the bytes as they arrive.

use super::framing::{Classification, Resync};
use super::interface::Clock;
use super::pcap::{self, Pcap, RecordTime};
use super::pcapng::{self, Section};
use super::run::{Format, Run};
use super::{DamageKind, DamagedRange, INTERFACES_MAX, Interface, LinkType, RECORD_MAX};
use std::sync::Arc;
use thiserror::Error;

/// Most bytes that [`Step::More`] requests: 20 MiB, for a record and the headers that show that another one follows.
pub const BUFFER_MAX: usize = RECORD_MAX + (4 << 20);

/// Counts of odd times in a file. A file of pcapng has none: its times are single numbers of a unit that it names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OddTimes {
    /// The magic number says microseconds, but most of the first 16 packets have fractions of 1,000,000 or more. All
    /// fractions are read as nanoseconds.
    pub in_nanoseconds: bool,
    /// Packets whose fraction is a second or more. Their time is the sum of seconds and fraction.
    pub long_fractions: u64,
    /// Packets whose date is more than a day from those of the packets before and after, which agree. Their time is halfway
    /// between theirs; for the first packet of a file, that of the next. The last packet of a file gets the time of the one
    /// before, if its own is earlier by a day or later by a year. [`Run::has_estimated_time`]
    /// marks them.
    pub far_off: u64,
}

/// Reads a capture file from its beginning, in bounded memory and without I/O.
///
/// The caller holds a buffer and passes its contents to [`step`](Self::step). It then drops the bytes that the step
/// [consumed](Step::taken) and fills the buffer up. The results do not depend on the size of the buffer, except for the
/// lengths of runs.
///
/// A step finds only the boundaries of records, which takes some nanoseconds for each. [`Run::records`] reads their
/// contents, at once or on another thread. The reader reports damage between records and skips as few valid records
/// with it as possible. The run reports damage inside of records.
#[derive(Debug, Clone, Default)]
pub struct Reader {
    /// Bytes consumed so far.
    at: u64,
    format: Option<Format>,
    interfaces: Arc<Vec<Interface>>,
    /// Time of the last valid record of a pcap file.
    last_time: Option<RecordTime>,
    /// Whether the time of the record before that is near it.
    is_last_time_sure: bool,
    odd_times: OddTimes,
    /// Damage whose end is not found yet; the reader is out of sync.
    open_damage: Option<DamagedRange>,
}

/// Result of a step: the next bytes, or a request for more.
#[derive(Debug, Clone)]
pub enum Step {
    /// Whole records.
    Run(Run),
    /// Bytes without records or damage to report, by their number, which may be 0.
    Skip(usize),
    /// Damage, which ends after this many bytes. The number may be 0 because damage may begin in earlier steps.
    Damage(usize, DamagedRange),
    /// Number of bytes that the step needs, from the current offset on.
    More(usize),
    /// The end of the file.
    End,
}

impl Step {
    /// Returns the number of bytes that the step consumed.
    #[must_use]
    pub fn taken(&self) -> usize {
        match self {
            Self::Run(run) => run.len,
            Self::Skip(len) | Self::Damage(len, _) => *len,
            Self::More(_) | Self::End => 0,
        }
    }
}

/// Reason why a file cannot be read at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FormatError {
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// The file ends inside its header.
    #[error("the file ends inside its header")]
    Short,
    /// The file is compressed by this program.
    #[error("the file is compressed with {0}: unpack it first ({0} -d)")]
    Compressed(&'static str),
    /// The file begins with these bytes, which no capture file has.
    #[error("not a capture: expected pcap or pcapng, but the file begins with {}", describe_start(.0))]
    Foreign([u8; 4]),
}

/// Describes the first bytes of a file: as text if they are printable, else in hexadecimal.
fn describe_start(bytes: &[u8]) -> String {
    let is_printable = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    if bytes.iter().all(is_printable) {
        format!("{:?}", String::from_utf8_lossy(bytes))
    } else {
        format!("the bytes {bytes:02x?}")
    }
}

impl Reader {
    /// Creates a reader for a file, of which nothing is read yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of bytes consumed so far.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// Returns `pcap` or `pcapng`; `None` until it is known.
    #[must_use]
    pub fn format(&self) -> Option<&'static str> {
        self.format.map(|format| match format {
            Format::Pcap(_) => "pcap",
            Format::Pcapng(_) => "pcapng",
        })
    }

    /// Interfaces that the file has described so far. [`Frame::interface`](super::Frame::interface) is an index into
    /// them.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Times of packets so far that the file has in another way than its format says.
    #[must_use]
    pub fn odd_times(&self) -> OddTimes {
        self.odd_times
    }

    /// Reads the next bytes of the file, which begin at [`offset`](Self::offset). `at_end` says that the file ends with
    /// `bytes`.
    ///
    /// # Errors
    ///
    /// Fails if the file does not begin with the header of a capture file. Then nothing in it can be read.
    pub fn step(&mut self, bytes: &[u8], at_end: bool) -> Result<Step, FormatError> {
        let step = match self.format {
            None => self.detect_format(bytes, at_end)?,
            Some(format) if self.open_damage.is_some() => self.resync(format, bytes, at_end),
            Some(_) if bytes.is_empty() && at_end => Step::End,
            Some(format) => self.next_step(format, bytes, at_end),
        };
        self.at += step.taken() as u64;
        Ok(step)
    }

    fn detect_format(&mut self, bytes: &[u8], at_end: bool) -> Result<Step, FormatError> {
        let needed = match bytes.first_chunk() {
            None => 4,
            Some(magic) if pcap::is_magic(*magic) => pcap::FILE_HEADER,
            Some(magic) if pcapng::is_magic(*magic) => pcapng::BLOCK_MIN,
            Some(magic) => return Err(not_a_capture(*magic)),
        };
        match (bytes.len() < needed, at_end, bytes) {
            (true, false, _) => Ok(Step::More(needed)),
            (true, true, []) => Err(FormatError::Empty),
            (true, true, _) => Err(FormatError::Short),
            (false, ..) => self.open(bytes, at_end),
        }
    }

    fn open(&mut self, bytes: &[u8], at_end: bool) -> Result<Step, FormatError> {
        let step = self
            .open_pcap(bytes, at_end)
            .or_else(|| self.open_pcapng(bytes));
        step.ok_or_else(|| not_a_capture([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn open_pcap(&mut self, bytes: &[u8], at_end: bool) -> Option<Step> {
        let (header, records) = bytes.split_first_chunk()?;
        let declared = Pcap::parse(header)?;
        let pcap = match declared.detect_layout(records, at_end) {
            Ok(pcap) => pcap,
            Err(need) => return Some(Step::More(pcap::FILE_HEADER + need)),
        };
        self.odd_times.in_nanoseconds = !pcap.has_unit_of(&declared);
        self.interfaces = Arc::new(vec![Interface {
            name: None,
            link_type: pcap.link_type,
            snaplen: pcap.snaplen,
            clock: Clock::MICROSECONDS,
        }]);
        self.format = Some(Format::Pcap(pcap));
        Some(Step::Skip(pcap::FILE_HEADER))
    }

    /// Starts to read pcapng. Consumes no bytes: a later step consumes the section header block, as in the middle of a
    /// file.
    fn open_pcapng(&mut self, bytes: &[u8]) -> Option<Step> {
        self.format = Some(Format::Pcapng(Section::begin(bytes, 0)?));
        Some(Step::Skip(0))
    }

    fn next_step(&mut self, format: Format, bytes: &[u8], at_end: bool) -> Step {
        let at_last = self.far_off_last(format, bytes, at_end);
        let step = match (self.find_run(format, bytes, at_end), at_last) {
            ((0, _), _) => self.classify(format, bytes, at_end),
            ((len, _), Some(time_ns)) => self.far_off_step(format, len, time_ns),
            ((len, packets), None) => self.run_step(format, len, packets),
        };
        if let Step::Run(run) = &step {
            self.count_long_fraction(run, bytes);
        }
        step
    }

    /// Counts the fraction of a run's first record if it is a second or more. Others would have ended the run.
    fn count_long_fraction(&mut self, run: &Run, bytes: &[u8]) {
        if let Format::Pcap(pcap) = run.format
            && let Some(time) = pcap.time(bytes)
        {
            self.odd_times.long_fractions += u64::from(pcap.has_long_fraction(time));
        }
    }

    /// Returns the length in bytes and the number of packets of the run at the beginning of `bytes`.
    fn find_run(&mut self, format: Format, bytes: &[u8], at_end: bool) -> (usize, u64) {
        match format {
            Format::Pcapng(section) => section.run(bytes),
            Format::Pcap(pcap) => {
                let (len, packets, last) = pcap.run(bytes, at_end);
                self.last_time = last.or(self.last_time);
                self.is_last_time_sure |= last.is_some();
                (len, packets)
            }
        }
    }

    fn run_step(&self, format: Format, len: usize, packets: u64) -> Step {
        Step::Run(Run {
            at: self.at,
            len,
            packets,
            format,
            interfaces: Arc::clone(&self.interfaces),
        })
    }

    fn classify(&mut self, format: Format, bytes: &[u8], at_end: bool) -> Step {
        let classification = match format {
            Format::Pcap(pcap) => pcap.classify(bytes, at_end, self.last_time),
            Format::Pcapng(section) => section.classify(bytes, at_end),
        };
        match classification {
            Classification::Record(len) => {
                if let Format::Pcap(pcap) = format {
                    let time = pcap.time(bytes);
                    let both = self.last_time.zip(time);
                    self.is_last_time_sure = both.is_some_and(|(last, time)| time.is_near(last));
                    self.last_time = time;
                }
                let packets = match format {
                    Format::Pcap(_) => 1,
                    Format::Pcapng(section) => section.packets(bytes),
                };
                self.run_step(format, len, packets)
            }
            Classification::FarOff(len, time_ns) => self.far_off_step(format, len, time_ns),
            Classification::Header(len) => self.read_header_block(format, &bytes[..len]),
            Classification::Damage(len, kind) => self.damage_step(len, kind),
            Classification::More(need) => Step::More(need),
            Classification::OutOfSync(kind) => {
                self.open_damage = Some(self.damage(1, kind));
                Step::Skip(1)
            }
        }
    }

    /// Returns a time for the record that ends the file, if its own is far off those of the two before.
    fn far_off_last(&self, format: Format, bytes: &[u8], at_end: bool) -> Option<u64> {
        let last = self.last_time.filter(|_| at_end && self.is_last_time_sure);
        match format {
            Format::Pcap(pcap) => pcap.replacement_at_end_ns(bytes, last?),
            Format::Pcapng(_) => None,
        }
    }

    fn far_off_step(&mut self, format: Format, len: usize, time_ns: u64) -> Step {
        self.odd_times.far_off += 1;
        self.run_step(format.with_time(time_ns), len, 1)
    }

    fn damage_step(&self, len: usize, kind: DamageKind) -> Step {
        Step::Damage(len, self.damage(len, kind))
    }

    fn damage(&self, len: usize, kind: DamageKind) -> DamagedRange {
        DamagedRange {
            at: self.at,
            skipped: len as u64,
            kind,
        }
    }

    /// Reads a block that begins a section or describes an interface.
    fn read_header_block(&mut self, format: Format, block: &[u8]) -> Step {
        let Format::Pcapng(section) = format else {
            return Step::Skip(block.len());
        };
        if let Some(section) = Section::begin(block, self.interfaces.len()) {
            self.format = Some(Format::Pcapng(section));
            return Step::Skip(block.len());
        }
        match self.add_interface(&section, block) {
            Ok(()) => Step::Skip(block.len()),
            Err(kind) => self.damage_step(block.len(), kind),
        }
    }

    /// Adds the interface that a block describes. Adds a placeholder for a damaged description, so that the interfaces
    /// after it keep their numbers.
    fn add_interface(&mut self, section: &Section, block: &[u8]) -> Result<(), DamageKind> {
        if self.interfaces.len() >= INTERFACES_MAX {
            return Err(DamageKind::Interfaces);
        }
        let result = pcapng::parse_interface(section, block);
        let interface = result.clone().unwrap_or(Interface {
            name: None,
            link_type: LinkType::Other(u16::MAX),
            snaplen: 0,
            clock: Clock::MICROSECONDS,
        });
        Arc::make_mut(&mut self.interfaces).push(interface);
        result.map(drop)
    }

    /// Skips bytes up to the next record after damage.
    fn resync(&mut self, format: Format, bytes: &[u8], at_end: bool) -> Step {
        let resync = match format {
            Format::Pcap(pcap) => pcap.resync(bytes, 0..bytes.len(), at_end, self.last_time),
            Format::Pcapng(section) => section.resync(bytes, 0..bytes.len(), at_end),
        };
        match resync {
            Resync::At(at) => self.end_damage(at),
            Resync::Undecided { at: 0, need } => Step::More(need),
            Resync::Undecided { at, .. } => self.extend_damage(at),
            Resync::NotFound if at_end => self.end_damage(bytes.len()),
            Resync::NotFound => Step::More(1),
        }
    }

    fn end_damage(&mut self, len: usize) -> Step {
        self.extend_damage(len);
        match self.open_damage.take() {
            Some(damage) => Step::Damage(len, damage),
            None => Step::Skip(len),
        }
    }

    fn extend_damage(&mut self, len: usize) -> Step {
        if let Some(damage) = &mut self.open_damage {
            damage.skipped += len as u64;
        }
        Step::Skip(len)
    }
}

/// Returns the error for a file that begins with `magic`. Recognizes the magic numbers of gzip (RFC 1952), zstd
/// (RFC 8878), xz, LZ4 and bzip2.
fn not_a_capture(magic: [u8; 4]) -> FormatError {
    match magic {
        [0x1f, 0x8b, ..] => FormatError::Compressed("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd] => FormatError::Compressed("zstd"),
        [0xfd, b'7', b'z', b'X'] => FormatError::Compressed("xz"),
        [0x04, 0x22, 0x4d, 0x18] => FormatError::Compressed("lz4"),
        [b'B', b'Z', b'h', _] => FormatError::Compressed("bzip2"),
        _ => FormatError::Foreign(magic),
    }
}
