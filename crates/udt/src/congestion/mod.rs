// SPDX-License-Identifier: MIT OR Apache-2.0
//! Congestion controls of a sender. [`Native`] is UDT's own. [`Bbr`] suits paths where losses do not come from a full
//! queue.
//! Callers may provide others.

mod bbr;
mod native;

use crate::packet::number::Seq;
use longhaul_units::Time;
use std::fmt::Debug;

pub use bbr::Bbr;
pub use native::Native;

/// Interval between two rate decisions, and between two full ACKs: 10 ms (draft-gg-udt-03 §6, which calls it SYN).
pub const SYN_INTERVAL: Time = Time::from_millis(10);

/// Congestion control: receives the events of a connection, and sets the sending period and the window.
pub trait Control: Debug + Send {
    /// Handles an ACK.
    fn on_ack(&mut self, flow: &FlowState);

    /// Handles a loss report whose first missing packet is `first`.
    fn on_loss(&mut self, first: Seq, flow: &FlowState);

    /// Handles an expiration: no ACK came for so long that packets in flight count as lost.
    fn on_timeout(&mut self, flow: &FlowState);

    /// Returns the time between two packets.
    fn send_period(&self) -> Time;

    /// Returns the congestion window in packets, from the first packet not known to have arrived to the last sent
    /// one.
    fn window(&self) -> u32;
}

/// State of a connection at an event, as input to a congestion control.
#[derive(Debug, Clone, Copy)]
pub struct FlowState {
    /// Current time.
    pub now: Time,
    /// First unacknowledged packet: all before it arrived.
    pub acked: Seq,
    /// Last packet that was sent.
    pub sent: Seq,
    /// Sequence number after the highest packet known to have arrived.
    pub highest_delivered: Seq,
    /// Total of packets known to have arrived; sometimes corrected downwards.
    pub delivered: u64,
    /// Number of these that arrived after a missing packet.
    pub out_of_order: u32,
    /// Total of packets reported missing.
    pub lost: u64,
    /// Packets in flight: neither known to have arrived nor known to be lost.
    pub in_flight: u32,
    /// Whether the application had nothing to send at some moment since the last event.
    pub app_limited: bool,
    /// Smoothed round-trip time.
    pub rtt: Time,
    /// New round-trip sample of one packet, if any. It includes up to 10 ms until the ACK.
    pub rtt_sample: Option<Time>,
    /// Arrival rate at the receiver, in packets per second; 0 if unknown.
    pub arrival_rate: f64,
    /// Link capacity in packets per second, estimated from packet trains.
    pub capacity: f64,
    /// Maximum packet length in bytes, with the headers of IP and UDP.
    pub mss: u32,
    /// Free receive buffer of the peer, in packets.
    pub flow_window: u32,
}
