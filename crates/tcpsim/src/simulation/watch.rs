// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who watches the two ends of a simulated path, as a tap at each would.

use crate::receiver::Ack;
use longhaul_netem::Departure;
use longhaul_units::Time;

/// Sees what each end of each flow sends and gets; packets are counted from 0. The calls of one end
/// of a flow are in order of their times, but what happens at the receiver may be told before its
/// time: a train's fate is known as it is sent. `()` watches nothing and costs nothing.
pub trait Watch {
    /// The SYN was sent at `syn`; the ACK that ends the handshake is sent now.
    fn established(&mut self, _now: Time, _flow: usize, _syn: Time) {}

    /// The sender sends `count` packets from `first` on as one super-packet.
    fn sent(&mut self, _now: Time, _flow: usize, _first: u64, _count: u32) {}

    /// Packets from `first` on come to the receiver.
    fn arrived(&mut self, _flow: usize, _first: u64, _train: &Departure) {}

    /// The receiver sends an ACK, at `ack.at`.
    fn acknowledged(&mut self, _flow: usize, _ack: &Ack) {}

    /// An ACK comes to the sender, at `ack.at`.
    fn ack_arrived(&mut self, _flow: usize, _ack: &Ack) {}
}

impl Watch for () {}
