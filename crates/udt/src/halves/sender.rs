// SPDX-License-Identifier: MIT OR Apache-2.0
//! The half of a connection that sends data: what goes next, and when (draft-gg-udt-03 §6.1, sender).

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

/// What a late timer makes up for, at most: with 1 Gbit/s some 160 packets at once.
const CATCH_UP_MAX: Time = Time::from_millis(2);

/// Packets that go again at once whose loss report was lost.
const UNREPORTED_MAX: u32 = 16;

#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) buffer: SendBuffer,
    control: Box<dyn Control>,
    lost_queue: LossList,
    /// Reported missing and not acknowledged, sent again or not.
    missing: LossList,
    /// Unless the receiver reports again what stays missing.
    retransmit_timer: Option<RetransmitTimer>,
    /// The first that did not arrive as far as any ACK says. A light one says less than a full one: libudt lets nobody read
    /// what it has not acknowledged by a full one, and never will after a shutdown.
    delivered_up_to: Seq,
    /// The one behind the newest that did; and all that did when all before [`Self::arrived`] had.
    highest_delivered: Seq,
    delivered_packets: u64,
    /// A packet whose way there and back is measured, and what the last one took.
    rtt_probe: Option<(Seq, Time)>,
    rtt_sample: Option<Time>,
    /// The first that was not acknowledged when nothing was heard for long.
    timed_out_at: Option<Seq>,
    /// There was nothing to send for a moment.
    app_limited: bool,
    /// Packets that the receiver has room for behind that.
    flow_window: u32,
    mss: u32,
    rtt: RttEstimator,
    rtt_min: Option<Time>,
    /// Time in which something was under way, and since when something is.
    busy: Time,
    busy_since: Option<Time>,
    /// Packets a second, as the receiver says, smoothed.
    arrival_rate: f64,
    capacity: f64,
    /// When the next packet may go.
    next_at: Time,
    /// The second packet of a pair goes at once.
    pair_pending: bool,
    pub(crate) counts: Counts,
}

/// What a sender has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Data packets, those that went again included.
    pub sent: u64,
    /// Those that went again.
    pub retransmitted: u64,
    /// Packets that the receiver reported missing.
    pub lost: u64,
    /// Times that nothing was heard for so long that all under way counted as lost.
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

    /// The smoothed round trip.
    pub(crate) fn rtt(&self) -> RttEstimator {
        self.rtt
    }

    /// The least round trip, as the receiver says.
    pub(crate) fn rtt_min(&self) -> Option<Time> {
        self.rtt_min
    }

    /// Time in which something was under way.
    pub(crate) fn busy(&self) -> Time {
        self.busy
    }

    fn update_busy(&mut self, now: Time) {
        if let Some(since) = self.busy_since.take() {
            self.busy += now.since(since);
        }
        self.busy_since = self.has_unacked().then_some(now);
    }

    /// Packets a second that the control asks for.
    pub(crate) fn pacing_rate(&self) -> f64 {
        1.0 / self.control.send_period().as_secs_f64().max(1e-9)
    }

    /// Packets that may be under way, as the control and the other end see it.
    pub(crate) fn window(&self) -> u32 {
        self.flow_window.min(self.control.window())
    }

    /// Packets a second at which they arrive over there, as it says.
    pub(crate) fn arrival_rate(&self) -> f64 {
        self.arrival_rate
    }

    /// Packets a second that the link could carry, as the other end says.
    pub(crate) fn capacity(&self) -> f64 {
        self.capacity
    }

    /// Packets that the other end has room for.
    pub(crate) fn flow_window(&self) -> u32 {
        self.flow_window
    }

    /// An acknowledgement; `false` if it is of what was never sent.
    pub(crate) fn on_ack(&mut self, ack: &Ack, now: Time) -> bool {
        if self.buffer.acknowledge(ack.next).is_none() {
            return false;
        }
        self.lost_queue.advance(self.buffer.acked());
        self.advance_delivered(self.buffer.acked(), now);
        let ahead = self.delivered_up_to.since(self.buffer.acked()) as u32;
        self.flow_window = ack.available_buffer.saturating_sub(ahead);
        let rtt = Time::from_micros(ack.rtt_us.into());
        // That is what a receiver says that has not measured any.
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
        let news = self.flow_state(now);
        self.control.on_ack(&news);
        true
    }

    /// All before `next` have arrived.
    fn advance_delivered(&mut self, next: Seq, now: Time) {
        let Ok(new) = u32::try_from(next.since(self.delivered_up_to)) else {
            return;
        };
        if let Some(repeat) = self.retransmit_timer.as_mut().filter(|_| new > 0) {
            repeat.on_advance(now);
        }
        self.delivered_packets += u64::from(new);
        self.delivered_up_to = next;
        self.missing.advance(next);
        self.advance_highest(next, now);
    }

    /// The one before `next` has arrived.
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

    /// One between two full ones: nothing is known of the receiver's room but what it was before.
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

    /// A loss report; `false`, and nothing is done, if it has runs that never were on their way.
    pub(crate) fn on_nak(&mut self, losses: LossReport<'_>, now: Time) -> bool {
        let unsent = self.buffer.unsent();
        let nonsense = |(first, last): (Seq, Seq)| last.is_before(first) || !last.is_before(unsent);
        if losses.runs().any(nonsense) {
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
            // Whoever misses it has the one after it.
            if last.plus(1).is_before(unsent) {
                self.advance_highest(last.plus(2), now);
            }
        }
        if new > 0 {
            let news = self.flow_state(now);
            self.control.on_loss(first, &news);
        }
        true
    }

    /// Nothing was heard for long.
    pub(crate) fn on_timeout(&mut self, now: Time) {
        self.counts.timeouts += 1;
        if self.lost_queue.is_empty() && self.has_unacked() {
            self.mark_lost();
        }
        let news = self.flow_state(now);
        self.control.on_timeout(&news);
    }

    /// What was reported missing was lost again, and the last packet shows what is missing before it. If that brings nothing, all goes
    /// again. (UDT4 sends all at once: after a loss report it is mostly there, and a short queue loses of so many what was missing.)
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

    /// The receiver is no UDT4.
    pub(crate) fn disable_retransmit_timer(&mut self) {
        self.retransmit_timer = None;
    }

    /// When something may have been lost again.
    pub(crate) fn retransmit_deadline(&self) -> Option<Time> {
        let waits = self.unacked_packets() > 0 && !self.lost_queue.contains(self.delivered_up_to);
        let repeat = self.retransmit_timer.as_ref().filter(|_| waits)?;
        Some(repeat.deadline(self.rtt.upper_bound()))
    }

    /// What would be known to have arrived by now goes again.
    pub(crate) fn on_retransmit_timer(&mut self, now: Time) {
        let long = self.rtt.upper_bound();
        let Some(repeat) = &mut self.retransmit_timer else {
            return;
        };
        while let Some(seq) = repeat.pop_due(long, now) {
            if self.missing.contains(seq) {
                self.lost_queue.insert(seq, seq);
            }
        }
        if repeat.check_first(long, now) {
            self.mark_first_lost();
        }
    }

    /// If it was not reported, its report was lost, and more were missing, or all behind it was lost: the last packet shows that.
    fn mark_first_lost(&mut self) {
        let first = self.delivered_up_to;
        self.lost_queue.insert(first, first);
        if self.missing.contains(first) {
            return;
        }
        let is_unheard =
            |seq: &Seq| seq.is_before(self.highest_delivered) && !self.missing.contains(*seq);
        let behind = (1..UNREPORTED_MAX).map(|n| first.plus(n));
        for seq in behind.take_while(is_unheard) {
            self.lost_queue.insert(seq, seq);
        }
        let last = self.buffer.unsent().minus(1);
        self.lost_queue.insert(last, last);
    }

    /// Whether something was sent that is not acknowledged.
    pub(crate) fn has_unacked(&self) -> bool {
        self.buffer.acked() != self.buffer.unsent()
    }

    /// Whether the other end has room, but for the two packets that it always says it has.
    pub(crate) fn has_receive_window(&self) -> bool {
        self.flow_window > 2
    }

    /// The next packet, if one may go now.
    pub(crate) fn next_packet(&mut self, now: Time) -> Option<Seq> {
        if self.deadline().is_none_or(|due| due > now) {
            return None;
        }
        let again = self.lost_queue.first();
        let seq = match again {
            Some(seq) => {
                self.lost_queue.remove(seq, seq);
                self.counts.retransmitted += 1;
                seq
            }
            None => self.buffer.take_unsent()?,
        };
        if let Some(repeat) = &mut self.retransmit_timer {
            repeat.on_sent(seq, again.is_some(), seq == self.delivered_up_to, now);
        }
        self.app_limited |= self.is_app_limited();
        self.counts.sent += 1;
        self.busy_since.get_or_insert(now);
        // A pair is one of new packets: of others the receiver believes nothing.
        let pairs = again.is_none() && seq.get().is_multiple_of(PAIR_EVERY);
        if !std::mem::replace(&mut self.pair_pending, pairs) {
            let earliest = Time::from_nanos(now.as_nanos().saturating_sub(CATCH_UP_MAX.as_nanos()));
            self.next_at = self.next_at.max(earliest);
        }
        self.next_at += self.control.send_period();
        if again.is_none() && self.rtt_probe.is_none() {
            self.rtt_probe = Some((seq, now));
        }
        Some(seq)
    }

    /// When the next packet may go, unless something has to come first.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let may =
            !self.lost_queue.is_empty() || (self.buffer.has_unsent() && self.window_is_open());
        may.then_some(match self.pair_pending {
            true => Time::ZERO,
            false => self.next_at,
        })
    }

    fn window_is_open(&self) -> bool {
        self.unacked_packets() < self.window()
    }

    fn unacked_packets(&self) -> u32 {
        self.buffer.unsent().since(self.delivered_up_to) as u32
    }

    /// Those that arrived behind one that did not.
    fn out_of_order_packets(&self) -> u32 {
        let behind = self.highest_delivered.since(self.delivered_up_to) as u32;
        behind.saturating_sub(self.missing.len())
    }

    /// There is nothing to send, though there would be room to write it.
    fn is_app_limited(&self) -> bool {
        !self.buffer.has_unsent() && self.buffer.free_packets() > self.buffer.capacity() / 4
    }

    fn in_flight(&self) -> u32 {
        let (sent, out_of_order) = (self.unacked_packets(), self.out_of_order_packets());
        sent.saturating_sub(out_of_order)
            .saturating_sub(self.lost_queue.len())
    }

    fn flow_state(&mut self, now: Time) -> FlowState {
        let has_none = self.is_app_limited();
        let limited = std::mem::replace(&mut self.app_limited, has_none) || has_none;
        let out_of_order = self.out_of_order_packets();
        FlowState {
            highest_delivered: self.highest_delivered,
            delivered: self.delivered_packets + u64::from(out_of_order),
            out_of_order,
            lost: self.counts.lost,
            in_flight: self.in_flight(),
            app_limited: limited,
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

/// The first value counts as it is (UDT4 begins with 16 packets a second, and takes seconds to leave that).
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

    /// All that goes until nothing is left, as offsets from the first packet.
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
    fn what_was_reported_missing_goes_again_first_and_all_if_that_brings_nothing() {
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
    fn the_last_packet_alone_goes_again_where_none_was_reported_missing() {
        let mut sender = sender(5);
        transmit_all(&mut sender);
        sender.on_timeout(Time::from_secs(1));
        assert_eq!(transmit_all(&mut sender), [4]);
    }
}
