// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interface between a sender and its congestion control. It follows Linux's `tcp_congestion_ops`
//! (include/net/tcp.h), so that the same algorithm can run in a kernel and in a simulation.
//!
//! Calls for each ACK come in the order of `tcp_ack` (net/ipv4/tcp_input.c):
//!
//! 1. [`in_ack_event`], then [`pkts_acked`].
//! 2. [`ssthresh`] on entry to CWR, Recovery or Loss.
//! 3. [`set_state`] when the state changes.
//! 4. [`cong_avoid`], unless the window is being reduced.
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

/// Windows of a sender, in packets of one MSS: the state that a congestion control may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Congestion window, `snd_cwnd`.
    pub cwnd: u32,
    /// ACKed packets that have not yet made `cwnd` grow, `snd_cwnd_cnt`.
    pub cwnd_cnt: u32,
    /// Slow-start threshold, `snd_ssthresh`: slow start goes on below it.
    pub ssthresh: u32,
}

impl Window {
    /// Returns the windows of a new connection: `initial` packets and no slow-start threshold.
    #[must_use]
    pub fn new(initial: u32) -> Self {
        Self {
            cwnd: initial,
            cwnd_cnt: 0,
            ssthresh: INFINITE_SSTHRESH,
        }
    }

    /// Returns whether the window is below the threshold, so that it doubles each round trip.
    #[must_use]
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }
}

/// Congestion state: `enum tcp_ca_state` (include/uapi/linux/tcp.h), with its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// Normal state: no duplicate ACK and no loss.
    Open = 0,
    /// Duplicate ACKs or SACKs, which reordering may still explain.
    Disorder = 1,
    /// Window reduction after ECN or local congestion.
    Cwr = 2,
    /// Fast retransmit after a loss.
    Recovery = 3,
    /// Recovery after a retransmission timeout.
    Loss = 4,
}

/// An ACK that lets the window grow: `cong_avoid(sk, ack, acked)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// Time of arrival.
    pub now: Time,
    /// Packets newly delivered, cumulatively or by SACK.
    pub acked: u32,
    /// Packets in flight before the ACK.
    pub in_flight: u32,
    /// Whether the congestion window, and not the application, limited the sender (`tcp_is_cwnd_limited`).
    pub cwnd_limited: bool,
}

/// Measurements of one ACK: `struct ack_sample`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckSample {
    /// Time of arrival.
    pub now: Time,
    /// Packets that the ACK removed from the retransmission queue.
    pub pkts_acked: u32,
    /// Round trip of the newest of these packets that was sent once, if there is one.
    pub rtt: Option<Time>,
    /// Packets in flight when the newest ACKed packet was sent.
    pub in_flight: u32,
    /// State of the sender when the ACK arrives.
    pub state: State,
}

/// Congestion control of one connection. Windows are in packets. The caller passes the time: an implementation
/// reads no clock.
pub trait CongestionControl {
    /// Starts the control when the connection is established.
    fn init(&mut self, window: &mut Window, now: Time);

    /// Returns the slow-start threshold after a loss noticed now, at least two packets. Called once for each
    /// loss event.
    fn ssthresh(&mut self, window: &Window, now: Time) -> u32;

    /// Lets the window grow. Not called while the window is being reduced.
    fn cong_avoid(&mut self, window: &mut Window, ack: &Ack);

    /// Handles the sample of each ACK that acknowledges new data.
    fn pkts_acked(&mut self, _window: &Window, _sample: &AckSample) {}

    /// Handles the sender's entry into `state`.
    fn set_state(&mut self, _window: &Window, _state: State, _now: Time) {}

    /// Handles any ACK, also a duplicate, before all other processing of that ACK.
    fn in_ack_event(&mut self, _now: Time) {}

    /// Returns the window to restore when a loss turns out to be spurious. `prior_cwnd` is the window before
    /// the loss.
    fn undo_cwnd(&mut self, window: &Window, prior_cwnd: u32, _now: Time) -> u32 {
        window.cwnd.max(prior_cwnd)
    }

    /// Returns the control's own pacing rate. From then on the sender paces. `None` leaves the rate to the
    /// sender (`tcp_update_pacing_rate`: 200 % of cwnd/RTT in slow start, 120 % later).
    fn pacing_rate(&self, _window: &Window, _srtt: Time) -> Option<BitRate> {
        None
    }
}
