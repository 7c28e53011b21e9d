// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs of whole records, and the frames and statistics in them.

use super::pcap::Pcap;
use super::pcapng::{self, Section};
use super::{DamagedRange, Interface, Record};
use std::sync::Arc;

/// Consecutive records that are all read in the same way. Their bytes stay with the caller. A run holds all that is
/// needed to read them, so another thread than that of the [`Reader`](super::Reader) may do that. A clone is cheap: it
/// copies a reference count.
#[derive(Debug, Clone)]
pub struct Run {
    /// Offset of the first record, in bytes from the beginning of the file.
    pub at: u64,
    /// Length in bytes, at least 1.
    pub len: usize,
    /// Number of packets. The contents of some may still turn out to be damaged.
    pub packets: u64,
    pub(crate) format: Format,
    pub(crate) interfaces: Arc<Vec<Interface>>,
}

/// Format of the records of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Pcap(Pcap),
    Pcapng(Section),
}

impl Format {
    /// Returns the format for a record of pcap whose own time is replaced, by one in nanoseconds since 1970.
    pub(crate) fn with_time(self, time_ns: u64) -> Self {
        match self {
            Self::Pcap(pcap) => Self::Pcap(pcap.with_time(time_ns)),
            Self::Pcapng(_) => self,
        }
    }
}

impl Run {
    /// Returns whether this is a single packet whose time is an estimate, because its own is far off
    /// ([`OddTimes::far_off`](super::OddTimes::far_off)).
    #[must_use]
    pub fn has_estimated_time(&self) -> bool {
        matches!(&self.format, Format::Pcap(pcap) if pcap.replaced_time_ns.is_some())
    }

    /// Interfaces of the file so far. [`Frame::interface`](super::Frame::interface) is an index into them.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Iterates over the records of the run. `bytes` are the first [`len`](Self::len) bytes that were passed to
    /// [`Reader::step`](super::Reader::step).
    #[must_use]
    pub fn records<'a>(&'a self, bytes: &'a [u8]) -> Records<'a> {
        Records {
            run: self,
            bytes,
            at: 0,
        }
    }
}

/// The records of a [`Run`].
#[derive(Debug, Clone)]
pub struct Records<'a> {
    run: &'a Run,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    /// Inlined with all that it calls for a frame: copying the finished frame took longer than reading it.
    #[inline(always)]
    fn next(&mut self) -> Option<Record<'a>> {
        match &self.run.format {
            Format::Pcap(pcap) => {
                let (frame, rest) = pcap.split_record(&self.bytes[self.at..])?;
                self.at = self.bytes.len() - rest.len();
                Some(Record::Frame(frame))
            }
            Format::Pcapng(section) => self.next_block(section),
        }
    }
}

impl<'a> Records<'a> {
    /// Reads blocks up to the next one with a frame, statistics or damage.
    #[inline(always)]
    fn next_block(&mut self, section: &Section) -> Option<Record<'a>> {
        loop {
            let rest = &self.bytes[self.at..];
            let (found, len) = pcapng::read_block(section, &self.run.interfaces, rest)?;
            let at = self.run.at + self.at as u64;
            self.at += len;
            match found {
                Ok(None) => {}
                Ok(Some(record)) => return Some(record),
                Err(kind) => {
                    let skipped = len as u64;
                    let damage = DamagedRange { at, skipped, kind };
                    return Some(Record::Damage(Box::new(damage)));
                }
            }
        }
    }
}
