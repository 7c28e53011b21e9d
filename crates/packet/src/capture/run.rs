// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is in whole records: frames, and what was counted.

use super::pcap::Pcap;
use super::pcapng::{self, Section};
use super::{Damage, Interface, Record};
use std::sync::Arc;

/// Records that follow each other without anything that changes how they are to be read. Their bytes
/// stay with the caller, and may be read on another thread than that of the
/// [`Reader`](super::Reader): all that it takes is in here, and a clone costs next to nothing.
#[derive(Debug, Clone)]
pub struct Run {
    /// Where it begins, in bytes from the beginning of the file.
    pub at: u64,
    /// Length in bytes, more than 0.
    pub len: usize,
    /// How many packets are in it; what is inside of some may still turn out to be damaged.
    pub packets: u64,
    pub(crate) format: Format,
    pub(crate) interfaces: Arc<Vec<Interface>>,
}

/// How records are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Pcap(Pcap),
    Pcapng(Section),
}

impl Run {
    /// The interfaces that [`Frame::interface`](super::Frame::interface) counts.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Reads the run, of which these are the bytes: the first [`len`](Self::len) of those that the
    /// reader was shown.
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

    /// Inlined, with all that leads to a frame: to copy one right after it was put together takes longer than
    /// that.
    #[inline(always)]
    fn next(&mut self) -> Option<Record<'a>> {
        match &self.run.format {
            Format::Pcap(pcap) => {
                let (frame, rest) = pcap.split(&self.bytes[self.at..])?;
                self.at = self.bytes.len() - rest.len();
                Some(Record::Frame(frame))
            }
            Format::Pcapng(section) => self.next_block(section),
        }
    }
}

impl<'a> Records<'a> {
    /// Those with nothing to say are passed over.
    #[inline(always)]
    fn next_block(&mut self, section: &Section) -> Option<Record<'a>> {
        loop {
            let rest = &self.bytes[self.at..];
            let (found, len) = pcapng::record(section, &self.run.interfaces, rest)?;
            let at = self.run.at + self.at as u64;
            self.at += len;
            match found {
                Ok(None) => {}
                Ok(Some(record)) => return Some(record),
                Err(fault) => {
                    let skipped = len as u64;
                    return Some(Record::Damage(Damage { at, skipped, fault }));
                }
            }
        }
    }
}
