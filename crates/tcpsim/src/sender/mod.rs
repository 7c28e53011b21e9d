// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sender as Linux has it: `tcp_ack` and `tcp_write_xmit` over ranges of packets.
//!
//! Left out: ECN, undo of recoveries that were mistaken, tail loss probes, F-RTO, small queues of
//! the device below (it takes everything at once).

mod rtt;
mod scoreboard;
mod segmentation;
mod sent;
mod transmit;
mod window;

use super::{
    congestion_control::{self, AckSample, CongestionControl, State, Window},
    receiver::Ack,
};
use longhaul_units::{BitRate, Bytes, Time};
use rtt::Rtt;
use scoreboard::{Heard, Scoreboard};
use segmentation::GSO_BYTES;
use sent::{Sent, SentLog};
use window::{Reduction, Usage};

/// What a connection's sender is told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Payload of a packet in bytes: 1,448 with an MTU of 1,500 and time stamps.
    pub mss: u32,
    /// Packets of the first round trip (RFC 6928).
    pub initial_window: u32,
    /// The receiver's window.
    pub receive_window: Bytes,
    /// Payload that may be out before it is acknowledged: what the send buffer holds.
    pub send_buffer: Bytes,
    /// Whether super-packets are spaced at the pacing rate (fq, or TCP's own timer).
    pub paced: bool,
    /// `SO_MAX_PACING_RATE`; also paces.
    pub pacing_rate_max: Option<BitRate>,
    /// Packets to send; `None` never ends.
    pub packets: Option<u64>,
}

impl Default for Settings {
    /// A bulk flow on Ethernet that no buffer limits. TCP's own largest window is 1 GiB (RFC 7323
    /// §2.3), 24 Gbit/s at 350 ms: a simulation may go beyond.
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

/// A window that was reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// When.
    pub at: Time,
    /// The window before, in packets.
    pub cwnd: u32,
    /// Where it goes: ssthresh.
    pub ssthresh: u32,
    /// By a retransmission time-out.
    pub time_out: bool,
}

/// Backoffs that are kept until somebody takes them, 24 bytes each; later ones are only counted.
pub const BACKOFFS_MAX: usize = 65_536;

/// Counters of a sender, in packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Sent, each time.
    pub sent: u64,
    /// Sent again.
    pub retransmitted: u64,
    /// Windows reduced.
    pub backoffs: u64,
    /// By time-outs.
    pub time_outs: u64,
    /// ACKs that came.
    pub acks: u64,
    /// Known to have arrived, selectively acknowledged ones included.
    pub delivered: u64,
}

/// One connection's sending end. Times are since any origin.
pub struct Sender {
    settings: Settings,
    control: Box<dyn CongestionControl>,
    window: Window,
    /// `snd_cwnd_clamp`.
    clamp: u32,
    state: State,
    board: Scoreboard,
    sent: SentLog,
    rtt: Rtt,
    reduction: Reduction,
    usage: Usage,
    /// Recovery lasts until this packet is acknowledged.
    high: u64,
    limits: Limits,
    /// Bytes a second.
    pacing_rate: u64,
    /// The congestion control has given a rate, or the settings ask for it (`sk_pacing_status`). It stays so.
    paces: bool,
    paced_until: Time,
    wrote_at: Time,
    /// Packets that are left in the write queue's first super-packet.
    head: u64,
    time_out_at: Time,
    time_outs_in_row: u32,
    /// Judge gaps then, whatever has come by (RACK's reordering window).
    judge_at: Time,
    counters: Counters,
    backoffs: Vec<Backoff>,
}

/// Settings in packets.
#[derive(Debug)]
struct Limits {
    receive_window: u64,
    send_buffer: u64,
    end: u64,
    full: u64,
}

/// `DupThresh`, in packets SACKed.
const DUPLICATES: u64 = 3;

impl Sender {
    /// A sender that waits for its connection.
    #[must_use]
    pub fn new(settings: Settings, control: Box<dyn CongestionControl>) -> Self {
        let mss = u64::from(settings.mss);
        let full = (GSO_BYTES / mss).max(1);
        Self {
            limits: Limits {
                receive_window: settings.receive_window.get() / mss,
                send_buffer: settings.send_buffer.get() / mss,
                end: settings.packets.unwrap_or(u64::MAX),
                full,
            },
            paces: settings.paced || settings.pacing_rate_max.is_some(),
            window: Window::new(settings.initial_window),
            clamp: u32::MAX,
            settings,
            control,
            state: State::Open,
            board: Scoreboard::default(),
            sent: SentLog::default(),
            rtt: Rtt::new(),
            reduction: Reduction::default(),
            usage: Usage::default(),
            high: 0,
            pacing_rate: u64::MAX,
            paced_until: Time::ZERO,
            wrote_at: Time::ZERO,
            head: full,
            time_out_at: Time::MAX,
            time_outs_in_row: 0,
            judge_at: Time::MAX,
            counters: Counters::default(),
            backoffs: Vec::new(),
        }
    }

    /// The application has `packets` more. Call [`transmit`](Self::transmit) afterwards.
    pub fn write(&mut self, packets: u64) {
        self.limits.end = self.limits.end.saturating_add(packets);
    }

    /// The application has no more: what was sent so far is all. Returns how many packets that is.
    pub fn stop(&mut self) -> u64 {
        self.limits.end = self.board.next();
        self.limits.end
    }

    /// The handshake ends now, after `rtt`.
    pub fn establish(&mut self, now: Time, rtt: Time) {
        self.note_rtt(rtt, rtt);
        self.control.init(&mut self.window, now);
        self.update_pacing_rate();
    }

    /// The window and its threshold.
    #[must_use]
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Puts a cap on the congestion window as `TCP_BPF_SNDCWND_CLAMP` does (net/core/filter.c): slow
    /// start ends there too, and a window above it comes down with the next ACK that would have let it
    /// grow.
    pub fn cap(&mut self, packets: u32) {
        self.clamp = packets.max(1);
        self.window.ssthresh = self.clamp;
    }

    /// Takes the cap away; the congestion control begins afresh from the present window.
    pub fn lift(&mut self, now: Time) {
        self.clamp = u32::MAX;
        self.control.init(&mut self.window, now);
    }

    /// The least round trip so far; [`Time::MAX`] before the first.
    #[must_use]
    pub fn rtt_min(&self) -> Time {
        self.rtt.min()
    }

    /// `snd_una`: packets acknowledged without a gap.
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.board.una()
    }

    /// The rate that pacing allows, whether it is kept or not; 0 before it is known.
    #[must_use]
    pub fn pacing_rate(&self) -> BitRate {
        match self.pacing_rate {
            u64::MAX => BitRate::from_bits(0),
            rate => BitRate::from_bits(rate.saturating_mul(8)),
        }
    }

    /// The smoothed round trip.
    #[must_use]
    pub fn srtt(&self) -> Time {
        self.rtt.smoothed()
    }

    /// Packets on the wire as the sender knows.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.board.in_flight()
    }

    /// In which state it is.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Counts since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Reductions since the last call, at most [`BACKOFFS_MAX`].
    pub fn take_backoffs(&mut self) -> Vec<Backoff> {
        std::mem::take(&mut self.backoffs)
    }

    /// Everything that was to be sent is acknowledged.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.board.una() >= self.limits.end
    }

    /// When [`on_time`](Self::on_time) and [`transmit`](Self::transmit) must be called at the
    /// latest.
    #[must_use]
    pub fn next_deadline(&self, now: Time) -> Time {
        let paced = match self.paced_until > now {
            true => self.paced_until,
            false => Time::MAX,
        };
        self.time_out_at.min(self.judge_at).min(paced)
    }

    /// An ACK comes. Call [`transmit`](Self::transmit) afterwards.
    pub fn on_ack(&mut self, now: Time, ack: &Ack) {
        self.counters.acks += 1;
        let prior_in_flight = self.board.in_flight() as u32;
        self.control.in_ack_event(now);
        let heard = self.board.on_ack(ack);
        self.counters.delivered += heard.delivered;
        if heard.delivered == 0 && heard.acked == 0 {
            return;
        }
        let newest = self.measure(now, &heard);
        if heard.acked > 0 {
            self.time_outs_in_row = 0;
            self.arm_time_out(now);
        }
        self.tell_sample(now, &heard, newest);
        let losses = self.judge(now, &heard, newest);
        self.change_state(now, losses);
        self.change_window(now, &heard, losses, prior_in_flight);
        self.update_pacing_rate();
    }

    /// Timers that are due.
    pub fn on_time(&mut self, now: Time) {
        if self.judge_at <= now {
            self.judge_at = Time::MAX;
            self.board.judge();
            self.change_state(now, 0);
        }
        if self.time_out_at <= now {
            self.on_time_out(now);
        }
    }

    /// Round trips of the oldest and the newest packet that an ACK covers; returns the newest.
    fn measure(&mut self, now: Time, heard: &Heard) -> Option<Sent> {
        let oldest = self.sent.oldest().map(|sent| sent.at);
        let reached = match heard.acked {
            0 => None,
            _ => self.sent.release(self.board.una()),
        };
        let newest = heard
            .newest
            .and_then(|packet| match packet + 1 == self.board.una() {
                true => reached,
                false => self.sent.of(packet),
            });
        let last = newest.map(|sent| now.since(sent.at));
        let first = oldest
            .filter(|_| heard.acked > 0 && heard.first_sent_once)
            .map(|at| now.since(at));
        if let Some(rtt) = first.or(last) {
            self.note_rtt(rtt, last.unwrap_or(rtt));
        }
        newest
    }

    fn note_rtt(&mut self, smoothed: Time, least: Time) {
        self.rtt.note_min(least);
        self.rtt
            .sample(smoothed, self.board.una(), self.board.next());
    }

    fn tell_sample(&mut self, now: Time, heard: &Heard, newest: Option<Sent>) {
        let sample = AckSample {
            now,
            pkts_acked: heard.acked as u32,
            rtt: newest.map(|sent| now.since(sent.at)),
            in_flight: newest.map_or(0, |sent| sent.in_flight),
            state: self.state,
        };
        self.control.pkts_acked(&self.window, &sample);
    }

    /// Finds out what is lost; how many packets newly are.
    fn judge(&mut self, now: Time, heard: &Heard, newest: Option<Sent>) -> u64 {
        let again = self.board.judge_resent(heard, newest.map(|sent| sent.at));
        // tcp_rack_reo_wnd: no patience in recovery, or once three packets were SACKed.
        let patient = self.state < State::Recovery && self.board.sacked() < DUPLICATES;
        if patient && self.board.has_unjudged_gap() {
            let rtt = self.rtt.smoothed().as_nanos();
            let patience = (self.rtt.min().as_nanos() / 4).min(rtt / 8);
            self.judge_at = self.judge_at.min(now + Time::from_nanos(patience));
            return again;
        }
        self.judge_at = Time::MAX;
        again + self.board.judge()
    }

    /// `tcp_fastretrans_alert`.
    fn change_state(&mut self, now: Time, losses: u64) {
        let over = self.board.una() >= self.high;
        match self.state {
            State::Recovery | State::Cwr if over => {
                self.window.cwnd = self.window.ssthresh;
                self.enter(State::Open, now);
            }
            State::Loss if over => self.enter(State::Open, now),
            _ => {}
        }
        let lost_again = self.state == State::Loss && losses > 0;
        if (self.state < State::Recovery && self.board.to_resend() > 0) || lost_again {
            return self.recover(now);
        }
        let calm = match self.board.sacked() {
            0 => State::Open,
            _ => State::Disorder,
        };
        if self.state < State::Cwr && self.state != calm {
            self.enter(calm, now);
        }
    }

    fn enter(&mut self, state: State, now: Time) {
        self.state = state;
        self.control.set_state(&self.window, state, now);
    }

    /// `tcp_enter_recovery`.
    fn recover(&mut self, now: Time) {
        self.high = self.board.next();
        self.reduction.begin(self.window.cwnd);
        self.back_off(now, false);
        self.enter(State::Recovery, now);
    }

    fn back_off(&mut self, now: Time, time_out: bool) {
        self.window.cwnd_cnt = 0;
        self.window.ssthresh = self.control.ssthresh(&self.window, now);
        self.counters.backoffs += 1;
        if self.backoffs.len() < BACKOFFS_MAX {
            self.backoffs.push(Backoff {
                at: now,
                cwnd: self.window.cwnd,
                ssthresh: self.window.ssthresh,
                time_out,
            });
        }
    }

    /// `tcp_cong_control`.
    fn change_window(&mut self, now: Time, heard: &Heard, losses: u64, prior_in_flight: u32) {
        if matches!(self.state, State::Recovery | State::Cwr) {
            let progress = heard.acked > 0 && losses == 0;
            self.window.cwnd = self.reduction.window(
                heard.delivered,
                self.board.in_flight(),
                self.window.ssthresh,
                progress,
            );
        } else if heard.acked > 0 {
            let ack = congestion_control::Ack {
                now,
                acked: heard.delivered as u32,
                in_flight: prior_in_flight,
                cwnd_limited: self.usage.is_limited(&self.window),
            };
            self.control.cong_avoid(&mut self.window, &ack);
            self.window.cwnd = self.window.cwnd.min(self.clamp);
        }
    }

    /// `tcp_enter_loss`.
    fn on_time_out(&mut self, now: Time) {
        if self.state < State::Recovery || self.board.una() >= self.high {
            self.back_off(now, true);
        }
        self.counters.time_outs += 1;
        self.board.lose_all();
        self.window.cwnd = 1;
        self.window.cwnd_cnt = 0;
        self.high = self.board.next();
        self.judge_at = Time::MAX;
        self.time_outs_in_row += 1;
        self.enter(State::Loss, now);
        self.arm_time_out(now);
    }

    fn arm_time_out(&mut self, now: Time) {
        let doubled = self.rtt.time_out() * (1 << self.time_outs_in_row.min(10));
        self.time_out_at = now + doubled.min(Time::from_secs(120));
    }
}
