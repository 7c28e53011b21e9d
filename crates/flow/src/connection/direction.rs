// SPDX-License-Identifier: MIT OR Apache-2.0
//! One direction of a connection: its data, and the ACKs that come back for it.

use crate::acks::ack_clocking::BurstTracker;
use crate::acks::{AckState, SynFinNumbers, block_count, blocks_of, is_pure};
use crate::data::retransmission::{Cause, Evidence, is_reordered};
use crate::data::sequence_gaps::SequenceGap;
use crate::data::stray::StrayNumber;
use crate::data::{SendState, SequenceRange};
use crate::memory_budget::MemoryBudget;
use crate::packet_windows::{IN_FLIGHT_EVENTS_MAX, WindowHandle, numbers_of};
use crate::record::{self, PacketEventKind, PacketWindow, SynOptions, WindowTrigger};
use crate::round_trips::{
    RoundTrips,
    round_trip::{PathRoundTrip, RoundTrip},
};
use crate::segment::{Segment, unwrap_near};
use crate::time_series::{TimeSeries, bin::Bin};
use longhaul_packet::tcp::{ACK, FIN, RST, SYN};
use std::cmp::Ordering;

/// All that is known of a direction.
#[derive(Debug, Default)]
pub(super) struct Direction {
    /// What its sender offered.
    pub(super) offer: SynOptions,
    pub(super) send_state: SendState,
    pub(super) ack_state: AckState,
    pub(super) round_trips: RoundTrips,
    pub(super) window_handle: WindowHandle,
    pub(super) stray_number: StrayNumber,
    burst_tracker: BurstTracker,
    in_flight_max: u64,
}

impl Direction {
    /// Its sender chose other numbers than all before: what it counted stays.
    #[cold]
    pub(super) fn restart_sequence(&mut self) {
        self.send_state.next = 0;
        self.send_state.syn_fin = SynFinNumbers::default();
        self.ack_state.reset();
        self.round_trips.reset();
    }

    /// Whether it began with a SYN that was not acknowledged yet.
    #[inline]
    pub(super) fn awaits_syn_ack(&self) -> bool {
        let syn = self.send_state.syn_fin.syn;
        syn != 0 && self.ack_state.acked == syn
    }

    /// Whether a SYN was sent, and what is acknowledged is not that (or data with it): a server answers so that still
    /// knows an old connection (RFC 9293 §3.5.1, RFC 5961 §4.2), a guard that wants to see a reset, and what is late.
    #[inline]
    pub(super) fn is_unrelated_ack(&self, segment: &Segment) -> bool {
        self.awaits_syn_ack() && segment.flags & ACK != 0 && !self.covers_syn(segment.ack)
    }

    #[cold]
    fn covers_syn(&self, ack: u32) -> bool {
        let (syn, ack) = (
            self.send_state.syn_fin.syn,
            unwrap_near(self.send_state.next, ack),
        );
        (syn + 1..=self.send_state.next).contains(&ack)
    }

    /// Its sender sent a segment. `back` is the round trip between the tap and that sender.
    #[inline]
    pub(super) fn process_sent(
        &mut self,
        segment: &Segment,
        back: RoundTrip,
        budget: &mut MemoryBudget,
        bin: &mut Bin,
    ) {
        let segments = self.send_state.count_packet(segment);
        if segment.flags & RST != 0 {
            return;
        }
        let mut numbers = self.send_state.locate(segment);
        if numbers.start != self.send_state.next {
            match self.locate_out_of_order(segment, numbers, budget) {
                Some(placed) => numbers = placed,
                None => return self.count_stray(segment, segments, budget, bin),
            }
        }
        if segment.flags & (SYN | FIN) != 0 {
            self.send_state.record_syn_fin(segment, numbers);
        }
        let answered = numbers.start < numbers.end;
        self.round_trips.record_tsval(segment, answered, budget);
        if !answered {
            self.process_empty(segment, numbers, budget);
            return;
        }
        if numbers.start == self.send_state.next {
            self.process_in_order(segment, numbers, budget);
        } else {
            self.process_out_of_order(segment, numbers, back, budget, bin);
        }
        if segment.payload > 0 {
            self.count_data(segment, segments, budget, bin);
            if self.window_handle.is_open() {
                self.record_data_event(segment, numbers, budget);
            }
        } else {
            self.send_state.packet_gaps.record_syn_fin(segment.at_ns);
        }
    }

    /// Counts what it carries, wherever that lies.
    #[cold]
    fn count_stray(
        &mut self,
        segment: &Segment,
        segments: u32,
        budget: &mut MemoryBudget,
        bin: &mut Bin,
    ) {
        if segment.payload > 0 {
            self.count_data(segment, segments, budget, bin);
        }
    }

    #[inline(always)]
    fn count_data(
        &mut self,
        segment: &Segment,
        segments: u32,
        budget: &mut MemoryBudget,
        bin: &mut Bin,
    ) {
        let gap_ns = budget.settings.burst_gap_ns;
        let pauses =
            (self.send_state.packet_gaps).record_data(segment.at_ns, u64::from(segments), gap_ns);
        (self.burst_tracker).on_data(segment.at_ns, pauses, gap_ns, &self.send_state.data);
        self.send_state.count_data(segment, segments, bin);
        let full =
            (self.ack_state).is_window_full(self.send_state.next, self.send_state.segment_max());
        bin.window_full += u32::from(full);
        let in_flight = self.in_flight();
        bin.in_flight_max = bin.in_flight_max.max(in_flight);
        self.in_flight_max = self.in_flight_max.max(in_flight);
        bin.all_acked = Some(self.ack_state.acked >= self.send_state.next);
    }

    /// An ACK of its sender for the other direction; or a keep-alive (RFC 9293 §3.8.4) or a window probe
    /// of Linux, which ask for an ACK with a number that has been acknowledged. An ACK has the next number to
    /// be sent (RFC 9293 §3.10.7.4): what is below has been sent, seen or not.
    #[inline]
    fn process_empty(
        &mut self,
        segment: &Segment,
        numbers: SequenceRange,
        budget: &mut MemoryBudget,
    ) {
        if numbers.start > self.send_state.next {
            let tsval = segment.has_timestamps.then_some(segment.tsval);
            self.open_gap(numbers.start, segment.at_ns, tsval, budget);
        } else if numbers.start + 1 == self.send_state.next && self.is_all_acknowledged() {
            self.send_state.data.probes += 1;
        }
    }

    fn is_all_acknowledged(&self) -> bool {
        self.ack_state.acked == 0 || self.ack_state.acked >= self.send_state.next
    }

    /// What comes next.
    #[inline]
    fn process_in_order(
        &mut self,
        segment: &Segment,
        numbers: SequenceRange,
        budget: &mut MemoryBudget,
    ) {
        if segment.payload == 1 && self.ack_state.is_window_zero() {
            self.send_state.zero_window_probe = numbers.start;
            self.send_state.data.probes += 1;
        }
        self.advance(segment, numbers, budget);
        self.send_state.data.unique_bytes += u64::from(segment.payload);
    }

    /// New numbers, up to the highest.
    #[inline]
    fn advance(&mut self, segment: &Segment, numbers: SequenceRange, budget: &mut MemoryBudget) {
        if self.ack_state.acked == 0 && segment.flags & SYN != 0 {
            self.ack_state.acked = numbers.start;
        }
        self.round_trips
            .record_sent(numbers.start, numbers.len(), segment.at_ns, budget);
        self.send_state.next = numbers.end;
    }

    #[cold]
    fn process_out_of_order(
        &mut self,
        segment: &Segment,
        numbers: SequenceRange,
        back: RoundTrip,
        budget: &mut MemoryBudget,
        bin: &mut Bin,
    ) {
        if numbers.start > self.send_state.next {
            let tsval = segment.has_timestamps.then_some(segment.tsval);
            self.open_gap(numbers.start, segment.at_ns, tsval, budget);
            self.advance(segment, numbers, budget);
            self.send_state.data.unique_bytes += u64::from(segment.payload);
        } else if self.is_probe(segment, numbers) && !self.fills_last_gap(segment, back) {
            self.send_state.data.probes += 1;
            self.round_trips
                .record_retransmission(numbers.start..numbers.end);
        } else {
            self.process_below_next(segment, numbers, back, budget, bin);
        }
    }

    /// Something from `to` on, or for it, was seen, but not what lies before.
    pub(super) fn open_gap(
        &mut self,
        to: u64,
        at_ns: u64,
        tsval: Option<u32>,
        budget: &mut MemoryBudget,
    ) {
        let hole = SequenceGap {
            start: self.send_state.next,
            end: to,
            at_ns,
            tsval,
        };
        (self.send_state.sequence_gaps).open(hole, self.ack_state.acked, budget);
        self.send_state.next = to;
    }

    /// A keep-alive with a byte of garbage, or a byte sent into a window of zero once more.
    fn is_probe(&self, segment: &Segment, numbers: SequenceRange) -> bool {
        segment.payload == 1
            && segment.flags & (SYN | FIN) == 0
            && numbers.end == self.send_state.next
            && (self.is_all_acknowledged() || self.ack_state.is_window_zero())
    }

    /// Whether the last number was passed over, and comes so soon after that it was late.
    fn fills_last_gap(&self, segment: &Segment, back: RoundTrip) -> bool {
        let hole = self
            .send_state
            .sequence_gaps
            .last_ending_at(self.send_state.next);
        let round_trip = self.round_trips.smoothed().plus(back);
        hole.is_some_and(|hole| is_reordered_segment(segment, hole, round_trip))
    }

    /// Numbers below the highest: overtaken or sent again, perhaps with new ones behind.
    fn process_below_next(
        &mut self,
        segment: &Segment,
        numbers: SequenceRange,
        back: RoundTrip,
        budget: &mut MemoryBudget,
        bin: &mut Bin,
    ) {
        let next = self.send_state.next;
        let old_end = numbers.end.min(next);
        let marks = self.syn_fin_seen(segment, numbers);
        let (unseen, hole) = (self.send_state.sequence_gaps).fill(numbers.start, old_end, budget);
        let probed = (numbers.start..old_end).contains(&self.send_state.zero_window_probe);
        if probed {
            self.send_state.zero_window_probe = 0; // From now on it is a byte like others.
        }
        let seen = old_end - numbers.start - unseen - u64::from(probed);
        let round_trip = self.round_trips.smoothed().plus(back);
        let seen_bytes = seen.saturating_sub(marks); // A FIN may have the number of a probe.
        if seen > 0 || hole.is_some_and(|hole| !is_reordered_segment(segment, &hole, round_trip)) {
            self.count_retransmission(
                segment,
                numbers,
                [seen_bytes, unseen],
                round_trip,
                budget,
                bin,
            );
        } else if hole.is_some() {
            self.send_state.data.reordered += 1;
        }
        let known = seen_bytes + u64::from(probed);
        self.send_state.data.unique_bytes += u64::from(segment.payload).saturating_sub(known);
        if numbers.end > next {
            let new = SequenceRange {
                start: next,
                ..numbers
            };
            self.advance(segment, new, budget);
        }
    }

    /// How many of its SYN and FIN, which are no bytes, were seen before.
    fn syn_fin_seen(&self, segment: &Segment, numbers: SequenceRange) -> u64 {
        let SendState {
            next,
            sequence_gaps: holes,
            ..
        } = &self.send_state;
        let seen = |flag: u8, at: u64| {
            segment.flags & flag != 0 && at < *next && !holes.overlaps(at, at + 1)
        };
        u64::from(seen(SYN, numbers.start)) + u64::from(seen(FIN, numbers.end - 1))
    }

    /// A retransmission: of `seen` bytes that the tap saw before and `unseen` numbers.
    fn count_retransmission(
        &mut self,
        segment: &Segment,
        numbers: SequenceRange,
        [seen, unseen]: [u64; 2],
        round_trip: PathRoundTrip,
        budget: &mut MemoryBudget,
        bin: &mut Bin,
    ) {
        self.round_trips
            .record_retransmission(numbers.start..numbers.end.min(self.send_state.next));
        if segment.flags & SYN != 0 {
            return; // The handshake counts it.
        }
        self.record_loss(budget);
        self.window_handle.retransmitted = true;
        let cause = self.cause(segment, numbers, round_trip);
        let payload = u64::from(segment.payload);
        let bytes = (seen + unseen).min(payload);
        let data = &mut self.send_state.data;
        match cause {
            Cause::Spurious => data.spurious_retransmissions += 1,
            Cause::Fast => data.fast_retransmissions += 1,
            Cause::Timeout => data.timeout_retransmissions += 1,
            Cause::Other => data.other_retransmissions += 1,
        }
        data.retransmissions += 1;
        data.retransmitted_bytes += bytes;
        if seen == 0 && unseen > 0 {
            data.unseen_retransmissions += 1;
        }
        data.unseen_retransmitted_bytes += bytes.saturating_sub(seen);
        bin.retransmissions += 1;
        bin.timeouts += u32::from(cause == Cause::Timeout);
        bin.retransmitted_bytes += bytes;
    }

    fn cause(
        &mut self,
        segment: &Segment,
        numbers: SequenceRange,
        round_trip: PathRoundTrip,
    ) -> Cause {
        let evidence = Evidence {
            start: numbers.start,
            next: self.send_state.next,
            received: self.ack_state.has_received(numbers.start, numbers.end),
            sacked_above: self.ack_state.scoreboard.highest() >= numbers.end,
            duplicates: self.ack_state.duplicates,
            silence_ns: self.send_state.packet_gaps.silence_ns(segment.at_ns),
            round_trip,
        };
        self.send_state.recovery.cause(&evidence)
    }

    /// Bytes sent and neither acknowledged nor SACKed; 0 before the first ACK.
    #[inline]
    fn in_flight(&self) -> u64 {
        let (acked, next) = (self.ack_state.acked, self.send_state.next);
        if acked == 0 {
            return 0;
        }
        let others =
            self.ack_state.scoreboard.bytes() + self.send_state.syn_fin.within(acked, next);
        (next - acked).saturating_sub(others)
    }

    /// The other end sent a segment with an ACK.
    #[inline]
    pub(super) fn process_ack(
        &mut self,
        segment: &Segment,
        budget: &mut MemoryBudget,
        bin: &mut Bin,
    ) {
        let pure = is_pure(segment);
        if pure {
            self.ack_state.count_pure(segment, bin);
        } else if self.ack_state.is_unchanged(segment) && self.round_trips.is_echo_known(segment) {
            return; // Bulk data one way has the same ACK for ever.
        }
        let Some(ack) = self.locate_ack(segment, budget) else {
            return;
        };
        let order = ack.cmp(&self.ack_state.acked);
        if order != Ordering::Greater && self.awaits_syn_ack() {
            return; // It answers an older connection.
        }
        bin.in_flight_max = bin.in_flight_max.max(self.in_flight());
        let numbers = [self.ack_state.acked, ack, self.send_state.next];
        if let Some(sample) = self.round_trips.process_ack(numbers, segment) {
            count_rtt(sample.rtt_ns, bin);
            if let Some(age_ns) = sample.unacked_age_ns {
                bin.record_unacked_age(age_ns);
            }
        }
        match order {
            Ordering::Greater => self.process_advancing_ack(segment, ack, bin),
            Ordering::Equal if pure => self.process_repeated_ack(segment, ack, bin),
            Ordering::Equal => {}
            Ordering::Less => self.ack_state.count_out_of_order(),
        }
        if segment.sack_blocks > 0 {
            self.process_sack(segment, ack, budget, bin);
        }
        if segment.flags & SYN == 0 {
            let tells = pure || order == Ordering::Greater;
            self.ack_state.update_window(segment, ack, tells, bin);
        }
        if self.window_handle.is_open() {
            self.record_ack_event(segment, ack, budget);
        }
    }

    fn process_repeated_ack(&mut self, segment: &Segment, ack: u64, bin: &mut Bin) {
        // Of data that is not in the capture at all, nobody knows whether it is outstanding.
        let next = self.send_state.next;
        let outstanding = next > ack || self.send_state.data.packets == 0;
        if self
            .ack_state
            .count_duplicate(segment, [ack, next], outstanding, bin)
        {
            (self.burst_tracker).on_ack(segment.at_ns, 0, &self.send_state.data);
        }
    }

    #[inline]
    fn process_advancing_ack(&mut self, segment: &Segment, ack: u64, bin: &mut Bin) {
        bin.all_acked = Some(ack >= self.send_state.next);
        if self.ack_state.acked == 0 {
            // Of the first ACK of a capture that begins in the middle, nobody knows how far it moves.
            self.ack_state.acked = ack;
        } else {
            let segment_max = self.send_state.segment_max();
            let packets = (self.ack_state).advance(ack, self.send_state.syn_fin, segment_max, bin);
            if packets > 0 {
                (self.burst_tracker).on_ack(segment.at_ns, packets, &self.send_state.data);
            }
        }
    }

    #[cold]
    fn process_sack(
        &mut self,
        segment: &Segment,
        ack: u64,
        budget: &mut MemoryBudget,
        bin: &mut Bin,
    ) {
        self.record_loss(budget);
        let end = self
            .ack_state
            .record_sack(segment, ack, self.send_state.next, budget, bin);
        if end > self.send_state.next {
            self.extend_to(end, segment.at_ns, budget);
        }
    }

    /// Something was sent again, or SACKed: an occasion to look at single segments, once a loss.
    #[cold]
    fn record_loss(&mut self, budget: &mut MemoryBudget) {
        if !self.window_handle.accepts_loss(self.ack_state.acked) {
            return;
        }
        self.window_handle.loss_end = self.send_state.next;
        if budget
            .excerpts
            .begin(&mut self.window_handle, WindowTrigger::Loss)
        {
            for (at_ns, start, length) in self.round_trips.oldest().take(IN_FLIGHT_EVENTS_MAX) {
                let numbers = numbers_of(self.send_state.next, start, length);
                (budget.excerpts).record(
                    &mut self.window_handle,
                    at_ns,
                    numbers,
                    PacketEventKind::Sent,
                );
            }
        }
    }

    #[cold]
    fn record_data_event(
        &mut self,
        segment: &Segment,
        numbers: SequenceRange,
        budget: &mut MemoryBudget,
    ) {
        let kind = match std::mem::take(&mut self.window_handle.retransmitted) {
            true => PacketEventKind::Retransmitted,
            false => PacketEventKind::Sent,
        };
        let numbers = (numbers.start, numbers.end);
        (budget.excerpts).record(&mut self.window_handle, segment.at_ns, numbers, kind);
    }

    #[cold]
    fn record_ack_event(&mut self, segment: &Segment, ack: u64, budget: &mut MemoryBudget) {
        if self.send_state.data.data_packets == 0 {
            return;
        }
        let end = self.ack_state.window_end().unwrap_or(ack - 1);
        let at_ns = segment.at_ns;
        (budget.excerpts).record(
            &mut self.window_handle,
            at_ns,
            (ack, end),
            PacketEventKind::Ack,
        );
        let blocks = blocks_of(segment, self.send_state.next);
        for block in &blocks[..block_count(segment)] {
            (budget.excerpts).record(
                &mut self.window_handle,
                at_ns,
                *block,
                PacketEventKind::Sack,
            );
        }
    }

    /// Whether the capture seems to lack its FIN: one number is acknowledged behind all that was seen.
    fn lacks_fin(&self) -> bool {
        let SendState {
            next,
            sequence_gaps: holes,
            ..
        } = &self.send_state;
        let last = holes.last_ending_at(*next);
        let is_one = last.is_some_and(|hole| hole.end - hole.start == 1);
        is_one && self.send_state.syn_fin.fin == 0 && self.ack_state.acked >= *next
    }

    /// Memory of its distributions.
    #[inline]
    pub(super) fn distributions_bytes(&self) -> usize {
        self.send_state.packet_gaps.bytes()
            + self.ack_state.distributions_bytes()
            + self.round_trips.bytes()
    }

    /// Memory of its tables.
    pub(super) fn table_bytes(&self) -> usize {
        self.send_state.sequence_gaps.table_bytes()
            + self.ack_state.scoreboard.table_bytes()
            + self.round_trips.table_bytes()
    }

    /// What is said of it; `is_over` says that the other end sent a FIN, or either a RST.
    pub(super) fn finish(
        self,
        is_over: bool,
        time_series: TimeSeries,
        packet_windows: Vec<PacketWindow>,
        budget: &MemoryBudget,
    ) -> record::Direction {
        let gap_ns = budget.settings.burst_gap_ns;
        let missed = self
            .send_state
            .sequence_gaps
            .acked_unseen(self.ack_state.acked);
        let missed_bytes = missed - u64::from(is_over && self.lacks_fin());
        let releases = self.burst_tracker.finish(gap_ns, &self.send_state.data);
        let (gaps, bursts) = self.send_state.packet_gaps.finish();
        let (acks, ack_diff, packets_per_ack) = self.ack_state.finish();
        record::Direction {
            syn_options: self.offer,
            data: record::Data {
                acked_unseen_bytes: missed_bytes,
                ..self.send_state.data
            },
            acks,
            rtt_by_timestamps: self.round_trips.by_timestamps.summary(),
            rtt_by_pairs: self.round_trips.by_pairs.summary(),
            ack_diff: ack_diff.summary(),
            packets_per_ack: packets_per_ack.summary(),
            gaps: gaps.summary(),
            bursts: bursts.summary(),
            in_flight_max_bytes: self.in_flight_max,
            time_series,
            packet_windows,
            ack_clocking: releases,
            ..record::Direction::default()
        }
    }
}

fn is_reordered_segment(segment: &Segment, hole: &SequenceGap, round_trip: PathRoundTrip) -> bool {
    let tsval = segment.has_timestamps.then_some(segment.tsval);
    is_reordered(hole, segment.at_ns, tsval, round_trip)
}

#[inline]
fn count_rtt(rtt_ns: u64, bin: &mut Bin) {
    if bin.rtt_samples == 0 {
        bin.rtt_min_ns = rtt_ns;
    }
    bin.rtt_min_ns = bin.rtt_min_ns.min(rtt_ns);
    bin.rtt_max_ns = bin.rtt_max_ns.max(rtt_ns);
    bin.rtt_sum_ns = bin.rtt_sum_ns.saturating_add(rtt_ns);
    bin.rtt_samples += 1;
}
