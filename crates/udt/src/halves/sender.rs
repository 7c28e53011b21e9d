// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sender of a connection: decides which packet is sent next, and when (draft-gg-udt-03 §6.1, sender).

use crate::{
    congestion::{Control, FlowState},
    halves::{
        estimators::{PAIR_EVERY, RttEstimator},
        loss_list::LossList,
        retransmit_timer::RetransmitTimer,
        send_buffer::SendBuffer,
    },
    packet::{Ack, LossReport, Rates, number::Seq},
};
use longhaul_units::Time;

/// Maximum delay of a timer that the sender makes up for with a burst: some 160 packets at 1 Gbit/s.
const CATCH_UP_MAX: Time = Time::from_millis(2);

/// Maximum number of packets that are retransmitted together because their loss report may have been lost.
const UNREPORTED_MAX: u32 = 16;

#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) buffer: SendBuffer,
    control: Box<dyn Control>,
    lost_queue: LossList,
    /// Packets that were reported missing and are not acknowledged, retransmitted or not.
    missing: LossList,
    /// Timer that detects lost retransmissions; `None` if the receiver reports missing packets periodically.
    retransmit_timer: Option<RetransmitTimer>,
    /// First packet that neither a full nor a light ACK covers. After a light ACK, a UDT4 application still cannot read
    /// the data: it must wait for a full ACK, and after a shutdown none comes.
    delivered_up_to: Seq,
    /// Sequence number after the highest packet known to have arrived.
    highest_delivered: Seq,
    /// Number of packets before [`Self::delivered_up_to`].
    delivered_packets: u64,
    /// Number of packets behind it that arrived, by the last ACK; 0 from UDT4, which does not tell.
    acked_out_of_order: u32,
    /// Packet whose round trip is measured, and its send time.
    rtt_probe: Option<(Seq, Time)>,
    /// Last round-trip sample that the congestion control has not seen yet.
    rtt_sample: Option<Time>,
    /// First unacknowledged packet at the last expiration.
    timed_out_at: Option<Seq>,
    /// Whether the application had nothing to send at some moment since the last [`FlowState`].
    app_limited: bool,
    /// Free receive buffer of the peer, in packets, counted from [`Self::delivered_up_to`].
    flow_window: u32,
    mss: u32,
    rtt: RttEstimator,
    rtt_min: Option<Time>,
    /// Total time with unacknowledged packets, up to [`Self::busy_since`].
    busy: Time,
    /// Time from which on unacknowledged packets are not yet counted in [`Self::busy`]; `None` if there are none.
    busy_since: Option<Time>,
    /// Arrival rate and link capacity that the receiver reports, smoothed, in packets per second.
    arrival_rate: f64,
    capacity: f64,
    /// Earliest time of the next packet.
    next_at: Time,
    /// Whether the next packet is the second of a packet pair, which is sent at once.
    pair_pending: bool,
    pub(crate) counts: Counts,
}

/// Packet counters of a sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Data packets sent, retransmissions included.
    pub sent: u64,
    /// Data packets that were retransmissions.
    pub retransmitted: u64,
    /// Packets that the receiver reported missing.
    pub lost: u64,
    /// Expirations: times without an ACK after which packets counted as lost.
    pub timeouts: u64,
}

impl Sender {
    pub(crate) fn new(
        buffer: SendBuffer,
        window: u32,
        mss: u32,
        control: Box<dyn Control>,
    ) -> Self {
        Self {
            lost_queue: LossList::new(buffer.acked(), buffer.free_packets()),
            missing: LossList::new(buffer.acked(), buffer.free_packets()),
            retransmit_timer: Some(RetransmitTimer::new()),
            delivered_up_to: buffer.acked(),
            highest_delivered: buffer.acked(),
            delivered_packets: 0,
            acked_out_of_order: 0,
            rtt_probe: None,
            rtt_sample: None,
            timed_out_at: None,
            app_limited: true,
            buffer,
            control,
            flow_window: window,
            mss,
            rtt: RttEstimator::INITIAL,
            rtt_min: None,
            busy: Time::ZERO,
            busy_since: None,
            arrival_rate: 0.0,
            capacity: 0.0,
            next_at: Time::ZERO,
            pair_pending: false,
            counts: Counts::default(),
        }
    }

    /// Returns the round-trip estimator, fed with the receiver's values.
    pub(crate) fn rtt(&self) -> RttEstimator {
        self.rtt
    }

    /// Returns the minimum round-trip time that the receiver reported.
    pub(crate) fn rtt_min(&self) -> Option<Time> {
        self.rtt_min
    }

    /// Returns the time with unacknowledged packets.
    pub(crate) fn busy(&self) -> Time {
        self.busy
    }

    fn update_busy(&mut self, now: Time) {
        if let Some(since) = self.busy_since.take() {
            self.busy += now.since(since);
        }
        self.busy_since = self.has_unacked().then_some(now);
    }

    /// Returns the sending rate of the congestion control, in packets per second.
    pub(crate) fn pacing_rate(&self) -> f64 {
        1.0 / self.control.send_period().as_secs_f64().max(1e-9)
    }

    /// Returns the maximum number of packets in flight: the smaller of the flow window and the congestion window.
    pub(crate) fn window(&self) -> u32 {
        self.flow_window.min(self.control.window())
    }

    /// Returns the arrival rate that the peer reports, in packets per second.
    pub(crate) fn arrival_rate(&self) -> f64 {
        self.arrival_rate
    }

    /// Returns the link capacity that the peer reports, in packets per second.
    pub(crate) fn capacity(&self) -> f64 {
        self.capacity
    }

    /// Returns the free receive buffer of the peer, in packets.
    pub(crate) fn flow_window(&self) -> u32 {
        self.flow_window
    }

    /// Handles a full ACK. Returns `false` if it acknowledges unsent packets.
    pub(crate) fn on_ack(&mut self, ack: &Ack, now: Time) -> bool {
        if self.buffer.acknowledge(ack.next).is_none() {
            return false;
        }
        self.lost_queue.advance(self.buffer.acked());
        self.advance_delivered(self.buffer.acked(), now);
        self.count_out_of_order(ack);
        let ahead = self.delivered_up_to.since(self.buffer.acked()) as u32;
        self.flow_window = ack.available_buffer.saturating_sub(ahead);
        let rtt = Time::from_micros(ack.rtt_us.into());
        // A receiver sends this value before its first sample.
        if rtt != RttEstimator::INITIAL.smoothed {
            self.rtt.add_sample(rtt);
            self.rtt_min = Some(self.rtt_min.map_or(rtt, |least| least.min(rtt)));
        }
        self.update_busy(now);
        if let Some(Rates {
            arrival_rate: arrival,
            capacity,
        }) = ack.rates
        {
            self.arrival_rate = smoothed(self.arrival_rate, arrival);
            self.capacity = smoothed(self.capacity, capacity);
        }
        let state = self.flow_state(now);
        self.control.on_ack(&state);
        true
    }

    /// Records how many packets the receiver has behind the first missing one. An ACK that was overtaken says less than
    /// the one before.
    fn count_out_of_order(&mut self, ack: &Ack) {
        let delivered_since = self.delivered_up_to.since(ack.next) as u32;
        let packets = ack.out_of_order.unwrap_or(0);
        let behind = packets.saturating_sub(delivered_since);
        self.acked_out_of_order = self.acked_out_of_order.max(behind);
    }

    /// Records that all packets before `next` arrived.
    fn advance_delivered(&mut self, next: Seq, now: Time) {
        let Ok(new) = u32::try_from(next.since(self.delivered_up_to)) else {
            return;
        };
        if let Some(timer) = self.retransmit_timer.as_mut().filter(|_| new > 0) {
            timer.on_advance(now);
        }
        self.delivered_packets += u64::from(new);
        self.acked_out_of_order = self.acked_out_of_order.saturating_sub(new);
        self.delivered_up_to = next;
        self.missing.advance(next);
        self.advance_highest(next, now);
    }

    /// Records that the packet before `next` arrived.
    fn advance_highest(&mut self, next: Seq, now: Time) {
        if !self.highest_delivered.is_before(next) {
            return;
        }
        self.highest_delivered = next;
        if let Some((seq, sent_at)) = self.rtt_probe.take_if(|(seq, _)| seq.is_before(next)) {
            let was_lost = self.missing.contains(seq);
            self.rtt_sample = (!was_lost).then(|| now.since(sent_at)).or(self.rtt_sample);
        }
    }

    /// Handles a light ACK. It does not carry the peer's free buffer, so the flow window shrinks by the new packets.
    /// Returns `false` if it acknowledges unsent packets.
    pub(crate) fn on_light_ack(&mut self, next: Seq, now: Time) -> bool {
        if self.buffer.unsent().is_before(next) {
            return false;
        }
        let new = u32::try_from(next.since(self.delivered_up_to)).unwrap_or(0);
        if new > 0 {
            self.lost_queue.remove(self.delivered_up_to, next.minus(1));
            self.advance_delivered(next, now);
        }
        self.flow_window = self.flow_window.saturating_sub(new);
        true
    }

    /// Handles a loss report. Returns `false`, and changes nothing, if it is empty or contains unsent packets.
    pub(crate) fn on_nak(&mut self, losses: LossReport<'_>, now: Time) -> bool {
        let unsent = self.buffer.unsent();
        let is_invalid =
            |(first, last): (Seq, Seq)| last.is_before(first) || !last.is_before(unsent);
        if losses.runs().any(is_invalid) {
            return false;
        }
        let Some((first, _)) = losses.runs().next() else {
            return false;
        };
        let new: u32 = losses
            .runs()
            .map(|(first, last)| self.lost_queue.insert(first, last))
            .sum();
        self.counts.lost += u64::from(new);
        for (first, last) in losses.runs() {
            self.missing.insert(first, last);
            // The receiver found the gap because the packet after it arrived.
            if last.plus(1).is_before(unsent) {
                self.advance_highest(last.plus(2), now);
            }
        }
        if new > 0 {
            let state = self.flow_state(now);
            self.control.on_loss(first, &state);
        }
        true
    }

    /// Handles an expiration.
    pub(crate) fn on_timeout(&mut self, now: Time) {
        self.counts.timeouts += 1;
        if self.lost_queue.is_empty() && self.has_unacked() {
            self.mark_lost();
        }
        let state = self.flow_state(now);
        self.control.on_timeout(&state);
    }

    /// Marks packets as lost after an expiration: those reported missing, and the last packet sent. When the last
    /// packet arrives, the receiver reports the gaps before it. If no ACK advances until the next expiration, all
    /// unacknowledged packets are marked. (UDT4 marks all of them at the first expiration. Most packets after a missing
    /// one have arrived, so nearly all of that burst is useless, and a short queue drops the needed packets in it.)
    fn mark_lost(&mut self) {
        let (acked, unsent) = (self.buffer.acked(), self.buffer.unsent());
        let last = unsent.minus(1);
        if self.timed_out_at.replace(acked) == Some(acked) {
            self.lost_queue.insert(acked, last);
            return;
        }
        for (first, last) in self.missing.runs(acked) {
            self.lost_queue.insert(first, last);
        }
        self.lost_queue.insert(last, last);
    }

    /// Stops the retransmission timer. The receiver is not UDT4, so it reports missing packets periodically.
    pub(crate) fn disable_retransmit_timer(&mut self) {
        self.retransmit_timer = None;
    }

    /// Returns the time at which the next retransmission counts as lost, if it is not acknowledged before.
    pub(crate) fn retransmit_deadline(&self) -> Option<Time> {
        let is_awaited =
            self.unacked_packets() > 0 && !self.lost_queue.contains(self.delivered_up_to);
        let timer = self.retransmit_timer.as_ref().filter(|_| is_awaited)?;
        Some(timer.deadline(self.rtt.upper_bound()))
    }

    /// Marks retransmissions as lost whose ACKs should have arrived by now.
    pub(crate) fn on_retransmit_timer(&mut self, now: Time) {
        let rtt_bound = self.rtt.upper_bound();
        let Some(timer) = &mut self.retransmit_timer else {
            return;
        };
        while let Some(seq) = timer.pop_due(rtt_bound, now) {
            if self.missing.contains(seq) {
                self.lost_queue.insert(seq, seq);
            }
        }
        if timer.check_first(rtt_bound, now) {
            self.mark_first_lost();
        }
    }

    /// Marks the first undelivered packet as lost. If it was never reported missing, there are two cases. The loss
    /// report was lost, perhaps with reports of the packets behind it: these are marked, too. Or all later packets were
    /// lost: the last packet is marked, too, because its arrival makes the receiver report the gap.
    fn mark_first_lost(&mut self) {
        let first = self.delivered_up_to;
        self.lost_queue.insert(first, first);
        if self.missing.contains(first) {
            return;
        }
        let is_unreported =
            |seq: &Seq| seq.is_before(self.highest_delivered) && !self.missing.contains(*seq);
        let candidates = (1..UNREPORTED_MAX).map(|n| first.plus(n));
        for seq in candidates.take_while(is_unreported) {
            self.lost_queue.insert(seq, seq);
        }
        let last = self.buffer.unsent().minus(1);
        self.lost_queue.insert(last, last);
    }

    /// Whether there are unacknowledged packets.
    pub(crate) fn has_unacked(&self) -> bool {
        self.buffer.acked() != self.buffer.unsent()
    }

    /// Whether the peer has free receive buffer beyond the two packets that it always announces.
    pub(crate) fn has_receive_window(&self) -> bool {
        self.flow_window > 2
    }

    /// Returns the next packet to send if one is due.
    pub(crate) fn next_packet(&mut self, now: Time) -> Option<Seq> {
        if self.deadline().is_none_or(|due| due > now) {
            return None;
        }
        let lost = self.lost_queue.first();
        let seq = match lost {
            Some(seq) => {
                self.lost_queue.remove(seq, seq);
                self.counts.retransmitted += 1;
                seq
            }
            None => self.buffer.take_unsent()?,
        };
        if let Some(timer) = &mut self.retransmit_timer {
            timer.on_sent(seq, lost.is_some(), seq == self.delivered_up_to, now);
        }
        self.app_limited |= self.is_app_limited();
        self.counts.sent += 1;
        self.busy_since.get_or_insert(now);
        // Only new packets form a pair: the receiver does not evaluate others.
        let starts_pair = lost.is_none() && seq.get().is_multiple_of(PAIR_EVERY);
        if !std::mem::replace(&mut self.pair_pending, starts_pair) {
            let earliest = Time::from_nanos(now.as_nanos().saturating_sub(CATCH_UP_MAX.as_nanos()));
            self.next_at = self.next_at.max(earliest);
        }
        self.next_at += self.control.send_period();
        if lost.is_none() && self.rtt_probe.is_none() {
            self.rtt_probe = Some((seq, now));
        }
        Some(seq)
    }

    /// Returns the time of the next packet; `None` if an ACK or new data must come first.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let can_send =
            !self.lost_queue.is_empty() || (self.buffer.has_unsent() && self.window_is_open());
        can_send.then_some(if self.pair_pending {
            Time::ZERO
        } else {
            self.next_at
        })
    }

    fn window_is_open(&self) -> bool {
        self.unacked_packets() < self.window()
    }

    fn unacked_packets(&self) -> u32 {
        self.buffer.unsent().since(self.delivered_up_to) as u32
    }

    /// Returns the number of packets that arrived after a missing one, by the last ACK or by loss reports since.
    fn out_of_order_packets(&self) -> u32 {
        let behind = self.highest_delivered.since(self.delivered_up_to) as u32;
        let reported = behind.saturating_sub(self.missing.len());
        reported.max(self.acked_out_of_order.min(self.unacked_packets()))
    }

    /// Whether the application limits the rate: no packet is unsent, and more than a quarter of the send buffer is
    /// free.
    fn is_app_limited(&self) -> bool {
        !self.buffer.has_unsent() && self.buffer.free_packets() > self.buffer.capacity() / 4
    }

    fn in_flight(&self) -> u32 {
        let (unacked, out_of_order) = (self.unacked_packets(), self.out_of_order_packets());
        unacked
            .saturating_sub(out_of_order)
            .saturating_sub(self.lost_queue.len())
    }

    fn flow_state(&mut self, now: Time) -> FlowState {
        let is_limited_now = self.is_app_limited();
        let app_limited =
            std::mem::replace(&mut self.app_limited, is_limited_now) || is_limited_now;
        let out_of_order = self.out_of_order_packets();
        FlowState {
            highest_delivered: self.highest_delivered,
            delivered: self.delivered_packets + u64::from(out_of_order),
            out_of_order,
            lost: self.counts.lost,
            in_flight: self.in_flight(),
            app_limited,
            rtt_sample: self.rtt_sample.take(),
            now,
            acked: self.buffer.acked(),
            sent: self.buffer.unsent().minus(1),
            rtt: self.rtt.smoothed,
            arrival_rate: self.arrival_rate,
            capacity: self.capacity,
            mss: self.mss,
            flow_window: self.flow_window,
        }
    }
}

/// Smooths a reported rate. The first report replaces the initial 0. (UDT4 starts with 16 packets per second, and its
/// average takes seconds to forget that.)
fn smoothed(old: f64, new: u32) -> f64 {
    match (old > 0.0, new > 0) {
        (_, false) => old,
        (false, true) => f64::from(new),
        (true, true) => old * 0.875 + f64::from(new) * 0.125,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Native;

    const FIRST: Seq = Seq::new(100);

    fn sender(packets: u32) -> Sender {
        let mut buffer = SendBuffer::new(FIRST, 64, 10);
        buffer.write(&vec![0; packets as usize * 10]);
        let control = Box::new(Native::new(FIRST, 64, 1));
        Sender::new(buffer, 64, 1500, control)
    }

    /// Transmits until nothing is due. Returns the packets as offsets from the first one.
    fn transmit_all(sender: &mut Sender) -> Vec<u32> {
        let next = || {
            let due = sender.deadline()?;
            sender.next_packet(due)
        };
        std::iter::from_fn(next)
            .map(|seq| seq.since(FIRST) as u32)
            .collect()
    }

    #[test]
    fn retransmits_reported_packets_first_and_all_at_the_second_expiration() {
        let mut sender = sender(10);
        assert_eq!(transmit_all(&mut sender).len(), 10);
        let mut report = Vec::new();
        LossReport::encode([(FIRST.plus(3), FIRST.plus(4))], 100, &mut report);
        assert!(sender.on_nak(LossReport::from_encoded(&report), Time::from_secs(1)));
        assert_eq!(transmit_all(&mut sender), [3, 4]);
        sender.on_timeout(Time::from_secs(2));
        assert_eq!(transmit_all(&mut sender), [3, 4, 9]);
        sender.on_timeout(Time::from_secs(3));
        assert_eq!(transmit_all(&mut sender), (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn expiration_without_loss_reports_retransmits_the_last_packet() {
        let mut sender = sender(5);
        transmit_all(&mut sender);
        sender.on_timeout(Time::from_secs(1));
        assert_eq!(transmit_all(&mut sender), [4]);
    }
}
