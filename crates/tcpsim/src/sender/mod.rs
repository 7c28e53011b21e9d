// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sender as Linux has it: `tcp_ack` and `tcp_write_xmit` over ranges of packets.
//!
//! Not modelled: ECN, undo of spurious recoveries, tail loss probes, F-RTO, and TCP small queues (the device
//! below takes everything at once).

mod rtt;
mod scoreboard;
mod segmentation;
mod send_log;
mod transmit;
mod window;

use super::{
    congestion_control::{self, AckSample, CongestionControl, State, Window},
    receiver::Ack,
};
use longhaul_units::{BitRate, Bytes, Time};
use rtt::RttEstimator;
use scoreboard::{AckUpdate, Scoreboard};
use segmentation::GSO_BYTES;
use send_log::{SendLog, SuperPacket};
use window::{CwndUsage, ProportionalRateReduction};

/// Settings of a connection's sender.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SenderConfig {
    /// Payload of a packet in bytes: 1,448 with an MTU of 1,500 and timestamps.
    pub mss: u32,
    /// Initial window in packets (RFC 6928).
    pub initial_window: u32,
    /// Window that the receiver announces.
    pub receive_window: Bytes,
    /// Payload that the send buffer holds: the most that may be unacknowledged.
    pub send_buffer: Bytes,
    /// Whether super-packets are spaced at the pacing rate (fq, or TCP's own timer).
    pub paced: bool,
    /// Highest pacing rate, `SO_MAX_PACING_RATE`. A limit also turns pacing on.
    pub pacing_rate_max: Option<BitRate>,
    /// Packets to send; `None` never ends.
    pub packets: Option<u64>,
}

impl Default for SenderConfig {
    /// Returns the settings of a bulk flow on Ethernet that no buffer limits. TCP's own largest window is 1 GiB
    /// (RFC 7323 §2.3), 24 Gbit/s at 350 ms. A simulation may go beyond it.
    fn default() -> Self {
        Self {
            mss: 1448,
            initial_window: 10,
            receive_window: Bytes::new(1 << 40),
            send_buffer: Bytes::new(1 << 40),
            paced: false,
            pacing_rate_max: None,
            packets: None,
        }
    }
}

/// Reduction of the congestion window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Time of the reduction.
    pub at: Time,
    /// Window before the reduction, in packets.
    pub cwnd: u32,
    /// Target of the reduction, in packets: ssthresh.
    pub ssthresh: u32,
    /// Whether a retransmission timeout caused it.
    pub timeout: bool,
}

/// Backoffs kept until [`Sender::take_backoffs`], 24 bytes each. Later ones are only counted.
pub const BACKOFFS_MAX: usize = 65_536;

/// Counters of a sender, in packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets sent, retransmissions included.
    pub sent: u64,
    /// Packets retransmitted.
    pub retransmitted: u64,
    /// Reductions of the window.
    pub backoffs: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// ACKs received.
    pub acks: u64,
    /// Packets known to have arrived, selectively acknowledged ones included.
    pub delivered: u64,
}

/// Sending end of one connection. Times are since any origin.
pub struct Sender {
    settings: SenderConfig,
    control: Box<dyn CongestionControl>,
    window: Window,
    /// `snd_cwnd_clamp`.
    clamp: u32,
    state: State,
    scoreboard: Scoreboard,
    send_log: SendLog,
    rtt: RttEstimator,
    reduction: ProportionalRateReduction,
    usage: CwndUsage,
    /// Packet whose acknowledgement ends recovery.
    recovery_end: u64,
    limits: SenderLimits,
    /// Pacing rate, bytes a second.
    pacing_rate: u64,
    /// Whether the sender paces (`sk_pacing_status`): the congestion control gave a rate, or the settings ask
    /// for it. Pacing is never turned off.
    is_pacing: bool,
    /// Time before which pacing holds the next packet back.
    paced_until: Time,
    /// Time at which new data was last sent (`lsndtime`).
    last_sent_at: Time,
    /// Packets left in the first super-packet of the write queue.
    head_packets: u64,
    /// Deadline of the retransmission timer; [`Time::MAX`] if it is off.
    retransmit_at: Time,
    timeouts_in_row: u32,
    /// Deadline of RACK's reordering timer, after which gaps count as losses; [`Time::MAX`] if it is off.
    reordering_timer_at: Time,
    counters: Counters,
    backoffs: Vec<Backoff>,
}

/// Limits of a sender, in packets.
#[derive(Debug)]
struct SenderLimits {
    receive_window: u64,
    send_buffer: u64,
    /// Packets to send in total.
    total_packets: u64,
    /// Most packets in one super-packet.
    packets_per_super_packet: u64,
}

/// `DupThresh`, in SACKed packets.
const DUP_THRESH: u64 = 3;

impl Sender {
    /// Creates a sender that waits for its connection.
    #[must_use]
    pub fn new(settings: SenderConfig, control: Box<dyn CongestionControl>) -> Self {
        let mss = u64::from(settings.mss);
        let packets_per_super_packet = (GSO_BYTES / mss).max(1);
        Self {
            limits: SenderLimits {
                receive_window: settings.receive_window.get() / mss,
                send_buffer: settings.send_buffer.get() / mss,
                total_packets: settings.packets.unwrap_or(u64::MAX),
                packets_per_super_packet,
            },
            is_pacing: settings.paced || settings.pacing_rate_max.is_some(),
            window: Window::new(settings.initial_window),
            clamp: u32::MAX,
            settings,
            control,
            state: State::Open,
            scoreboard: Scoreboard::default(),
            send_log: SendLog::default(),
            rtt: RttEstimator::new(),
            reduction: ProportionalRateReduction::default(),
            usage: CwndUsage::default(),
            recovery_end: 0,
            pacing_rate: u64::MAX,
            paced_until: Time::ZERO,
            last_sent_at: Time::ZERO,
            head_packets: packets_per_super_packet,
            retransmit_at: Time::MAX,
            timeouts_in_row: 0,
            reordering_timer_at: Time::MAX,
            counters: Counters::default(),
            backoffs: Vec::new(),
        }
    }

    /// Adds `packets` of data from the application. Call [`transmit`](Self::transmit) afterwards.
    pub fn write(&mut self, packets: u64) {
        self.limits.total_packets = self.limits.total_packets.saturating_add(packets);
    }

    /// Ends the application's data after the packets sent so far, and returns their number.
    pub fn stop(&mut self) -> u64 {
        self.limits.total_packets = self.scoreboard.next();
        self.limits.total_packets
    }

    /// Ends the handshake now; it took `rtt`.
    pub fn establish(&mut self, now: Time, rtt: Time) {
        self.record_rtt(rtt, rtt);
        self.control.init(&mut self.window, now);
        self.update_pacing_rate();
    }

    /// Returns the congestion window and its threshold.
    #[must_use]
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Caps the congestion window as `TCP_BPF_SNDCWND_CLAMP` does (net/core/filter.c). Slow start ends at the
    /// cap too. A window above it comes down with the next ACK that would have let it grow.
    pub fn clamp_cwnd(&mut self, packets: u32) {
        self.clamp = packets.max(1);
        self.window.ssthresh = self.clamp;
    }

    /// Lifts the cap. The congestion control starts anew from the present window.
    pub fn unclamp_cwnd(&mut self, now: Time) {
        self.clamp = u32::MAX;
        self.control.init(&mut self.window, now);
    }

    /// Returns the smallest round trip so far; [`Time::MAX`] before the first.
    #[must_use]
    pub fn rtt_min(&self) -> Time {
        self.rtt.min()
    }

    /// Returns the packets acknowledged without a gap (`snd_una`).
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.scoreboard.una()
    }

    /// Returns the pacing rate, whether the sender paces or not; 0 before it is known.
    #[must_use]
    pub fn pacing_rate(&self) -> BitRate {
        match self.pacing_rate {
            u64::MAX => BitRate::from_bits(0),
            rate => BitRate::from_bits(rate.saturating_mul(8)),
        }
    }

    /// Returns the smoothed round trip.
    #[must_use]
    pub fn srtt(&self) -> Time {
        self.rtt.smoothed()
    }

    /// Returns the packets in flight by the sender's estimate.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.scoreboard.in_flight()
    }

    /// Returns the congestion state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the counts since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the reductions since the last call, at most [`BACKOFFS_MAX`].
    pub fn take_backoffs(&mut self) -> Vec<Backoff> {
        std::mem::take(&mut self.backoffs)
    }

    /// Whether all data to send is acknowledged.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.scoreboard.una() >= self.limits.total_packets
    }

    /// Returns the time by which [`on_time`](Self::on_time) and [`transmit`](Self::transmit) must be called.
    #[must_use]
    pub fn next_deadline(&self, now: Time) -> Time {
        let paced = if self.paced_until > now {
            self.paced_until
        } else {
            Time::MAX
        };
        self.retransmit_at.min(self.reordering_timer_at).min(paced)
    }

    /// Handles an ACK. Call [`transmit`](Self::transmit) afterwards.
    pub fn on_ack(&mut self, now: Time, ack: &Ack) {
        self.counters.acks += 1;
        let prior_in_flight = self.scoreboard.in_flight() as u32;
        self.control.in_ack_event(now);
        let update = self.scoreboard.on_ack(ack);
        self.counters.delivered += update.delivered;
        if update.delivered == 0 && update.acked == 0 {
            return;
        }
        let newest = self.measure_rtt(now, &update);
        if update.acked > 0 {
            self.timeouts_in_row = 0;
            self.arm_retransmit_timer(now);
        }
        self.report_sample(now, &update, newest);
        let losses = self.detect_losses(now, &update, newest);
        self.update_state(now, losses);
        self.update_window(now, &update, losses, prior_in_flight);
        self.update_pacing_rate();
    }

    /// Handles the timers that are due.
    pub fn on_time(&mut self, now: Time) {
        if self.reordering_timer_at <= now {
            self.reordering_timer_at = Time::MAX;
            self.scoreboard.detect_losses();
            self.update_state(now, 0);
        }
        if self.retransmit_at <= now {
            self.on_retransmit_timeout(now);
        }
    }

    /// Takes the round trips of the oldest and the newest packet that an ACK covers. Returns the newest
    /// packet's transmission.
    fn measure_rtt(&mut self, now: Time, update: &AckUpdate) -> Option<SuperPacket> {
        let oldest = self.send_log.oldest().map(|sent| sent.at);
        let last_acked = match update.acked {
            0 => None,
            _ => self.send_log.release(self.scoreboard.una()),
        };
        let newest = update.newest.and_then(|packet| {
            if packet + 1 == self.scoreboard.una() {
                last_acked
            } else {
                self.send_log.find(packet)
            }
        });
        let last = newest.map(|sent| now.since(sent.at));
        let first = oldest
            .filter(|_| update.acked > 0 && update.first_sent_once)
            .map(|at| now.since(at));
        if let Some(rtt) = first.or(last) {
            self.record_rtt(rtt, last.unwrap_or(rtt));
        }
        newest
    }

    /// Adds a sample to the smoothed and to the smallest round trip.
    fn record_rtt(&mut self, smoothed: Time, least: Time) {
        self.rtt.update_min(least);
        self.rtt
            .add_sample(smoothed, self.scoreboard.una(), self.scoreboard.next());
    }

    /// Reports the sample of an ACK to the congestion control.
    fn report_sample(&mut self, now: Time, update: &AckUpdate, newest: Option<SuperPacket>) {
        let sample = AckSample {
            now,
            pkts_acked: update.acked as u32,
            rtt: newest.map(|sent| now.since(sent.at)),
            in_flight: newest.map_or(0, |sent| sent.in_flight),
            state: self.state,
        };
        self.control.pkts_acked(&self.window, &sample);
    }

    /// Marks packets as lost and returns how many newly are.
    fn detect_losses(&mut self, now: Time, update: &AckUpdate, newest: Option<SuperPacket>) -> u64 {
        let lost_again = self
            .scoreboard
            .detect_lost_retransmissions(update, newest.map(|sent| sent.at));
        // tcp_rack_reo_wnd: no reordering window in recovery, or once three packets were SACKed.
        let may_be_reordered =
            self.state < State::Recovery && self.scoreboard.sacked() < DUP_THRESH;
        if may_be_reordered && self.scoreboard.has_undecided_gap() {
            let rtt = self.rtt.smoothed().as_nanos();
            let window = (self.rtt.min().as_nanos() / 4).min(rtt / 8);
            self.reordering_timer_at = self.reordering_timer_at.min(now + Time::from_nanos(window));
            return lost_again;
        }
        self.reordering_timer_at = Time::MAX;
        lost_again + self.scoreboard.detect_losses()
    }

    /// Changes the congestion state (`tcp_fastretrans_alert`).
    fn update_state(&mut self, now: Time, losses: u64) {
        let recovered = self.scoreboard.una() >= self.recovery_end;
        match self.state {
            State::Recovery | State::Cwr if recovered => {
                self.window.cwnd = self.window.ssthresh;
                self.enter_state(State::Open, now);
            }
            State::Loss if recovered => self.enter_state(State::Open, now),
            _ => {}
        }
        let lost_again = self.state == State::Loss && losses > 0;
        if (self.state < State::Recovery && self.scoreboard.lost_packets() > 0) || lost_again {
            return self.enter_recovery(now);
        }
        let state = match self.scoreboard.sacked() {
            0 => State::Open,
            _ => State::Disorder,
        };
        if self.state < State::Cwr && self.state != state {
            self.enter_state(state, now);
        }
    }

    /// Enters `state` and reports it to the congestion control.
    fn enter_state(&mut self, state: State, now: Time) {
        self.state = state;
        self.control.set_state(&self.window, state, now);
    }

    /// Enters recovery (`tcp_enter_recovery`).
    fn enter_recovery(&mut self, now: Time) {
        self.recovery_end = self.scoreboard.next();
        self.reduction.begin(self.window.cwnd);
        self.back_off(now, false);
        self.enter_state(State::Recovery, now);
    }

    /// Sets the slow-start threshold after a loss and records the backoff.
    fn back_off(&mut self, now: Time, time_out: bool) {
        self.window.cwnd_cnt = 0;
        self.window.ssthresh = self.control.ssthresh(&self.window, now);
        self.counters.backoffs += 1;
        if self.backoffs.len() < BACKOFFS_MAX {
            self.backoffs.push(Backoff {
                at: now,
                cwnd: self.window.cwnd,
                ssthresh: self.window.ssthresh,
                timeout: time_out,
            });
        }
    }

    /// Changes the congestion window after an ACK (`tcp_cong_control`).
    fn update_window(&mut self, now: Time, update: &AckUpdate, losses: u64, prior_in_flight: u32) {
        if matches!(self.state, State::Recovery | State::Cwr) {
            let progress = update.acked > 0 && losses == 0;
            self.window.cwnd = self.reduction.window(
                update.delivered,
                self.scoreboard.in_flight(),
                self.window.ssthresh,
                progress,
            );
        } else if update.acked > 0 {
            let ack = congestion_control::Ack {
                now,
                acked: update.delivered as u32,
                in_flight: prior_in_flight,
                cwnd_limited: self.usage.is_limited(&self.window),
            };
            self.control.cong_avoid(&mut self.window, &ack);
            self.window.cwnd = self.window.cwnd.min(self.clamp);
        }
    }

    /// Handles a retransmission timeout (`tcp_enter_loss`).
    fn on_retransmit_timeout(&mut self, now: Time) {
        if self.state < State::Recovery || self.scoreboard.una() >= self.recovery_end {
            self.back_off(now, true);
        }
        self.counters.timeouts += 1;
        self.scoreboard.mark_all_lost();
        self.window.cwnd = 1;
        self.window.cwnd_cnt = 0;
        self.recovery_end = self.scoreboard.next();
        self.reordering_timer_at = Time::MAX;
        self.timeouts_in_row += 1;
        self.enter_state(State::Loss, now);
        self.arm_retransmit_timer(now);
    }

    /// Arms the retransmission timer, with backoff after timeouts in a row.
    fn arm_retransmit_timer(&mut self, now: Time) {
        let doubled = self.rtt.timeout() * (1 << self.timeouts_in_row.min(10));
        self.retransmit_at = now + doubled.min(Time::from_secs(120));
    }
}
