// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP analysis: takes the segments of connections in order of time, and returns what each connection did and what
//! limited it.
//!
//! [`decode::decode`] makes a [`segment::Segment`] of a captured frame. [`Flows`] takes the segments one after the other.
//! It gives a [`Sink`] the bins of each direction and, when a connection ends, a [`record::Flow`] with its verdict.
//! [`two_point`] compares the segments of one connection that were seen at two capture points.
//!
//! No function reads a file or a clock, and none allocates for a segment once a flow's tables have their size. Every
//! table has a bound ([`Settings`]). `longhaul_packet::capture` reads the files; `longhaul_tap` implements
//! `longhaul tap`.
//!
//! ```
//! use longhaul_flow::segment::{CapturePoint, Endpoint, FlowKey, Segment};
//! use longhaul_flow::{Flows, Settings, Sink, bin::Bin, record};
//!
//! struct Bytes(u64);
//!
//! impl Sink for Bytes {
//!     fn receive_bin(&mut self, _flow: u64, _upload: bool, _width: usize, _from_ns: u64, _bin: &Bin) {}
//!
//!     fn receive_flow(&mut self, flow: record::Flow) {
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
//! flows.process_segment(0, CapturePoint(0), &key, &segment, &mut bytes);
//! flows.finish(&mut bytes);
//! assert_eq!(bytes.0, 1_448);
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod decode;
pub mod ecn;
pub mod flows;
pub mod record;
pub mod segment;
pub mod settings;
pub mod time_series;
pub mod two_point;
pub mod udp;
pub mod verdict;

mod acks;
mod clock_skew;
mod connection;
mod data;
mod distribution;
mod memory_budget;
mod packet_windows;
mod round_trips;

pub use acks::path_delay;
pub use flows::Flows;
pub use settings::Settings;
pub use time_series::bin;
pub use verdict::{advertised_window, joint_verdict, limits, phases};

/// Receiver of results. Each result is delivered as soon as it is final.
pub trait Sink {
    /// Receives a bin of a direction, in order of time; empty bins are left out. `flow` is the number of the flow's
    /// first packet. `upload` marks data from the client. `width` is an index into the bin widths of the settings.
    fn receive_bin(&mut self, flow: u64, upload: bool, width: usize, from_ns: u64, bin: &bin::Bin);

    /// Receives a flow that has ended, or that is open at the end of the capture.
    fn receive_flow(&mut self, flow: record::Flow);
}
