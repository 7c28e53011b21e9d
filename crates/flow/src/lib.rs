// SPDX-License-Identifier: MIT OR Apache-2.0
//! What TCP connections did, and what limited them: each segment in, once, in order of time; records out.
//!
//! [`decode::decode`] makes a [`segment::Segment`] of a captured frame. [`Flows`] takes one segment after the other, and
//! gives a [`Sink`] the bins of each direction and, when a connection is over, a [`record::Flow`] with its verdict.
//! [`both_ends`] compares the segments of one connection that were seen at two places.
//!
//! Nothing here reads a file or a clock, and nothing allocates for a segment once a flow's tables have their size. Every
//! table has a bound ([`Settings`]). `longhaul_packet::capture` knows the files, `longhaul_analysis` is `longhaul tap`.
//!
//! ```
//! use longhaul_flow::segment::{Endpoint, FlowKey, Segment, Vantage};
//! use longhaul_flow::{Flows, Settings, Sink, record, series::Bin};
//!
//! struct Bytes(u64);
//!
//! impl Sink for Bytes {
//!     fn bin(&mut self, _flow: u64, _upload: bool, _width: usize, _from_ns: u64, _bin: &Bin) {}
//!
//!     fn flow(&mut self, flow: record::Flow) {
//!         self.0 += flow.upload.data.unique_bytes;
//!     }
//! }
//!
//! let key = FlowKey {
//!     low: Endpoint { address: "192.0.2.1".parse().unwrap(), port: 40_000 },
//!     high: Endpoint { address: "192.0.2.2".parse().unwrap(), port: 443 },
//! };
//! let segment = Segment { from_low: true, payload: 1_448, wire_segments: 1, ..Segment::default() };
//! let (mut flows, mut bytes) = (Flows::new(Settings::default()), Bytes(0));
//! flows.segment(0, Vantage(0), &key, &segment, &mut bytes);
//! flows.finish(&mut bytes);
//! assert_eq!(bytes.0, 1_448);
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod decode;
pub mod flows;
pub mod record;
pub mod segment;
pub mod settings;
pub mod time_series;
pub mod two_point;
pub mod verdict;

mod acks;
mod clock_skew;
mod connection;
mod data;
mod distribution;
mod memory_budget;
mod packet_windows;
mod round_trips;

pub use acks::ack_path_delay;
pub use flows::Flows;
pub use settings::Settings;
pub use time_series::bin;
pub use verdict::{joint_verdict, limits, phases};

/// Who takes what the analysis has to say, as soon as nothing can change it any more.
pub trait Sink {
    /// A bin of a direction, in order of time; bins without anything in them are left out. `flow` is the
    /// number of the flow's first packet, `upload` is data from the client. `width` counts the settings' bin widths.
    fn bin(&mut self, flow: u64, upload: bool, width: usize, from_ns: u64, bin: &bin::Bin);

    /// A flow that is over, or that the capture ends before.
    fn flow(&mut self, flow: record::Flow);
}
