// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a sender asks of a congestion control, in the shape of Linux's `tcp_congestion_ops`
//! (include/net/tcp.h), so that one arithmetic serves a kernel and a simulation.
//!
//! Order within one ACK, as in `tcp_ack` (net/ipv4/tcp_input.c): [`in_ack_event`], [`pkts_acked`],
//! then, where the state changes, [`ssthresh`] (on the way into CWR, Recovery or Loss) and
//! [`set_state`], and at last [`cong_avoid`], unless the window is being reduced.
//!
//! [`in_ack_event`]: CongestionControl::in_ack_event
//! [`pkts_acked`]: CongestionControl::pkts_acked
//! [`ssthresh`]: CongestionControl::ssthresh
//! [`set_state`]: CongestionControl::set_state
//! [`cong_avoid`]: CongestionControl::cong_avoid

pub mod cubic;
pub mod reno;

use longhaul_units::{BitRate, Time};

/// `snd_ssthresh` before the first loss: slow start has no end (`TCP_INFINITE_SSTHRESH`).
pub const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// A sender's windows, in packets of one MSS: what a congestion control may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Congestion window, `snd_cwnd`.
    pub cwnd: u32,
    /// ACKed packets that have not yet made `cwnd` grow, `snd_cwnd_cnt`.
    pub cwnd_cnt: u32,
    /// Slow start goes on below this, `snd_ssthresh`.
    pub ssthresh: u32,
}

impl Window {
    /// As a connection begins with `initial` packets.
    #[must_use]
    pub fn new(initial: u32) -> Self {
        Self {
            cwnd: initial,
            cwnd_cnt: 0,
            ssthresh: INFINITE_SSTHRESH,
        }
    }

    /// Whether the window still doubles each round trip.
    #[must_use]
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }
}

/// `enum tcp_ca_state` (include/uapi/linux/tcp.h), with its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// Nothing unusual.
    Open = 0,
    /// Duplicate ACKs or SACKs that may yet be reordering.
    Disorder = 1,
    /// The window is reduced for ECN or local congestion.
    Cwr = 2,
    /// Fast retransmit.
    Recovery = 3,
    /// After a retransmission time-out.
    Loss = 4,
}

/// An ACK that lets the window grow: `cong_avoid(sk, ack, acked)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// When it came.
    pub now: Time,
    /// Packets that it newly says were delivered, cumulatively or by SACK.
    pub acked: u32,
    /// Packets out before it came.
    pub in_flight: u32,
    /// Whether the window, and not the application, held the sender back
    /// (`tcp_is_cwnd_limited`).
    pub cwnd_limited: bool,
}

/// What one ACK measured: `struct ack_sample`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckSample {
    /// When it came.
    pub now: Time,
    /// Packets that it took out of the retransmission queue.
    pub pkts_acked: u32,
    /// Round trip of the newest of them that was sent once, if there is one.
    pub rtt: Option<Time>,
    /// Packets that were out when the newest ACKed one was sent.
    pub in_flight: u32,
    /// The sender's state as the ACK came.
    pub state: State,
}

/// A congestion control's decisions for one connection. Windows are packets; nothing here reads a
/// clock.
pub trait CongestionControl {
    /// The connection is established.
    fn init(&mut self, window: &mut Window, now: Time);

    /// Where slow start is to end after a loss noticed now, at least two packets. Called once a
    /// loss event.
    fn ssthresh(&mut self, window: &Window, now: Time) -> u32;

    /// Lets the window grow. Not called while it is being reduced.
    fn cong_avoid(&mut self, window: &mut Window, ack: &Ack);

    /// Learns from each ACK that acknowledges something new.
    fn pkts_acked(&mut self, _window: &Window, _sample: &AckSample) {}

    /// The sender enters `state`.
    fn set_state(&mut self, _window: &Window, _state: State, _now: Time) {}

    /// Any ACK at all, duplicates too, before anything else is done with it.
    fn in_ack_event(&mut self, _now: Time) {}

    /// The window to go back to when a loss turns out to be none; `prior_cwnd` is what it was.
    fn undo_cwnd(&mut self, window: &Window, prior_cwnd: u32, _now: Time) -> u32 {
        window.cwnd.max(prior_cwnd)
    }

    /// A pacing rate of its own, which also makes the sender pace from then on; `None` leaves the rate to the
    /// sender (`tcp_update_pacing_rate`: 200 % of cwnd/RTT in slow start, 120 % later).
    fn pacing_rate(&self, _window: &Window, _srtt: Time) -> Option<BitRate> {
        None
    }
}
