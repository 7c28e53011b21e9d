// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers and a writer for capture files, pcap and pcapng. They do no I/O: bytes come in and go out as slices, which
//! may come from a file, a pipe or memory.
//!
//! ```
//! use longhaul_packet::capture::{FormatError, Reader, Record, Step};
//!
//! /// Counts the packets of a file in memory.
//! fn count(file: &[u8]) -> Result<u64, FormatError> {
//!     let (mut reader, mut rest, mut frames) = (Reader::new(), file, 0);
//!
//!     loop {
//!         let step = reader.step(rest, true)?;
//!
//!         match &step {
//!             Step::Run(run) => {
//!                 let records = run.records(&rest[..run.len]);
//!                 frames += records.filter(|record| matches!(record, Record::Frame(_))).count() as u64;
//!             }
//!
//!             Step::Damage(_, damage) => eprintln!("{damage}"),
//!             Step::Skip(_) | Step::More(_) => {}
//!             Step::End => return Ok(frames),
//!         }
//!         rest = &rest[step.taken()..];
//!     }
//! }
//! ```

mod bsd;
mod endianness;
mod erf;
pub(crate) mod ether_type;
mod framing;
mod interface;
pub(crate) mod ip_start;
mod link_type;
mod mpls;
mod nflog;
mod pcap;
mod pcap_variant;
mod pcapng;
pub(crate) mod ppp;
mod reader;
mod record;
mod run;
mod wifi;
mod wrapped;
pub mod writer;

pub use framing::RECORD_MAX;
pub use interface::{INTERFACES_MAX, Interface, NAME_MAX, Statistics};
pub use ip_start::IpNotFound;
pub use link_type::LinkType;
pub use reader::{BUFFER_MAX, FormatError, OddTimes, Reader, Step};
pub use record::{DamageKind, DamagedRange, EmulatorRecord, Frame, Record, Verdict};
pub use run::{Records, Run};
