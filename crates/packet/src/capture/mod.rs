// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capture files: pcap and pcapng, what is in them and how to write them. No I/O: bytes come in and
//! go out as slices, so a reader may take a file, a pipe or a test's vector.
//!
//! ```
//! use longhaul_packet::capture::{NotACapture, Reader, Record, Step};
//!
//! /// Counts the packets of a file that is in memory as a whole.
//! fn count(file: &[u8]) -> Result<u64, NotACapture> {
//!     let (mut reader, mut rest, mut frames) = (Reader::new(), file, 0);
//!     loop {
//!         let step = reader.step(rest, true)?;
//!         match &step {
//!             Step::Run(run) => {
//!                 let records = run.records(&rest[..run.len]);
//!                 frames += records.filter(|record| matches!(record, Record::Frame(_))).count() as u64;
//!             }
//!             Step::Damage(_, damage) => eprintln!("{damage}"),
//!             Step::Skip(_) | Step::More(_) => {}
//!             Step::End => return Ok(frames),
//!         }
//!         rest = &rest[step.taken()..];
//!     }
//! }
//! ```

mod damage;
mod framing;
mod interface;
mod link_type;
mod order;
mod pcap;
mod pcapng;
mod reader;
mod records;
pub mod writer;

pub use damage::{Damage, Fault};
pub use interface::{INTERFACES_MAX, Interface, NAME_MAX, Statistics};
pub use link_type::{LinkType, NoIp};
pub use reader::{BUFFER_MAX, NotACapture, RECORD_MAX, Reader, Step};
pub use records::{Record, Records, Run};

/// One captured packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Nanoseconds since 1970, UTC. Captures of a simulation begin at 0.
    pub at_ns: u64,
    /// Which of the file's interfaces, from 0 (pcap: always 0).
    pub interface: u32,
    /// What the bytes begin with.
    pub link_type: LinkType,
    /// Length on the wire in bytes, link-layer header included; of a super-packet, its own.
    pub wire_len: u32,
    /// What was captured of it, from the link-layer header on.
    pub bytes: &'a [u8],
    /// Payload of each segment but the last, where the capture says that this is a super-packet; 0 is
    /// no word about it.
    pub segment_size: u16,
    /// What `longhaul link` says of it, in captures that it wrote.
    pub truth: Option<Truth>,
}

/// What only the emulator knows of a segment (`longhaul link --tap`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truth {
    /// Bytes in the queue when it came to it, itself not counted.
    pub queue_bytes: u32,
    /// What became of it.
    pub fate: Fate,
}

/// What becomes of a segment in the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It went on.
    Passed,
    /// The path lost it.
    Lost,
    /// The queue was full, or its discipline dropped it.
    Dropped,
    /// A rule for ACKs took it away.
    Thinned,
}
