// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who decides how fast a sender sends. UDT's own is [`Native`], [`Bbr`] is for paths that lose packets without a queue; anybody may plug
//! in another.

mod bbr;
mod native;

use crate::packet::number::Seq;
use longhaul_units::Time;
use std::fmt::Debug;

pub use bbr::Bbr;
pub use native::Native;

/// Between two decisions, and between two full ACKs: SYN (draft-gg-udt-03 §6, 10 ms).
pub const SYN: Time = Time::from_millis(10);

/// A congestion control: it hears what becomes of the packets and says when, and how many, may go.
pub trait Control: Debug + Send {
    /// Packets arrived.
    fn on_ack(&mut self, news: &FlowState);

    /// Packets are missing, of which the first is `first`.
    fn on_loss(&mut self, first: Seq, news: &FlowState);

    /// Nothing was heard for so long that all that is under way counts as lost.
    fn on_timeout(&mut self, news: &FlowState);

    /// From one packet to the next.
    fn send_period(&self) -> Time;

    /// Packets that may be under way, from the first that is not known to have arrived to the last that was sent.
    fn window(&self) -> u32;
}

/// What is known when a control is asked.
#[derive(Debug, Clone, Copy)]
pub struct FlowState {
    /// The present.
    pub now: Time,
    /// All packets before this one have arrived.
    pub acked: Seq,
    /// The last that was sent.
    pub sent: Seq,
    /// The one behind the newest that is known to have arrived.
    pub highest_delivered: Seq,
    /// Packets that are known to have arrived, in all; sometimes corrected downwards.
    pub delivered: u64,
    /// Of these those that came before one that is missing.
    pub out_of_order: u32,
    /// Packets that were reported missing, in all.
    pub lost: u64,
    /// Packets that neither arrived nor are known to be lost.
    pub in_flight: u32,
    /// Since the last news there was a moment when nothing was left to send.
    pub app_limited: bool,
    /// The smoothed round trip.
    pub rtt: Time,
    /// What one packet took to be known to have arrived, if that is new: the round trip and up to 10 ms.
    pub rtt_sample: Option<Time>,
    /// Packets a second at which they arrive over there; 0 while that is not known.
    pub arrival_rate: f64,
    /// Packets a second that the link carries, by packets that were sent back to back.
    pub capacity: f64,
    /// Bytes of a packet with the headers of IP and UDP.
    pub mss: u32,
    /// Packets that the other end has room for.
    pub flow_window: u32,
}
