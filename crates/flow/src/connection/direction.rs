// SPDX-License-Identifier: MIT OR Apache-2.0
//! One direction of a connection: its data, and the ACKs for it.

use crate::acks::ack_clocking::BurstTracker;
use crate::acks::path_delay::PathDelay;
use crate::acks::{AckState, SynFinNumbers, block_count, blocks_of, is_pure};
use crate::data::retransmission::{Cause, Evidence, is_reordered};
use crate::data::sequence_gaps::SequenceGap;
use crate::data::stray::StrayNumber;
use crate::data::{SendState, SequenceRange};
use crate::ecn::EcnState;
use crate::memory_budget::MemoryBudget;
use crate::packet_windows::{IN_FLIGHT_EVENTS_MAX, WindowHandle, unwrapped_range};
use crate::record::{self, PacketEventKind, PacketWindow, SynOptions, WindowTrigger};
use crate::round_trips::{RoundTrips, round_trip::PathRoundTrip};
use crate::segment::{Segment, unwrap_near};
use crate::time_series::{TimeSeries, bin::Bin, sender_view::SenderView};
use longhaul_packet::tcp::{ACK, FIN, RST, SYN};
use std::cmp::Ordering;

/// State of a direction.
#[derive(Debug, Default)]
pub(super) struct Direction {
    /// Options of the sender's SYN.
    pub(super) syn_options: SynOptions,
    pub(super) send_state: SendState,
    pub(super) ack_state: AckState,
    pub(super) round_trips: RoundTrips,
    pub(super) window_handle: WindowHandle,
    pub(super) stray_number: StrayNumber,
    pub(super) ecn: EcnState,
    burst_tracker: BurstTracker,
    /// Delay from the sender to the capture point, by its timestamps.
    path_delay: PathDelay,
    /// TSecr of the last data.
    last_tsecr: u32,
    in_flight_max: u64,
}

impl Direction {
    /// Restarts the sequence space, because the sender chose a new initial number; counts stay.
    #[cold]
    pub(super) fn restart_sequence(&mut self) {
        (self.send_state.sequence_gaps).clear(self.ack_state.acked);
        self.send_state.next = 0;
        self.send_state.syn_fin = SynFinNumbers::default();
        self.ack_state.reset();
        self.round_trips.reset();
    }

    /// Forgets the times of all packets, after the capture's clock was set back.
    #[cold]
    pub(super) fn forget_times(&mut self) {
        self.round_trips.forget_times();
        self.ack_state.echoed.clear();
        self.path_delay = PathDelay::default();
    }

    /// Returns whether it began with a SYN that is not acknowledged yet.
    #[inline]
    pub(super) fn awaits_syn_ack(&self) -> bool {
        let syn = self.send_state.syn_fin.syn;
        syn != 0 && self.ack_state.acked == syn
    }

    /// Returns whether a SYN was sent, and the segment acknowledges neither it nor data with it. Such ACKs come from a
    /// server that still has an old connection (RFC 9293 §3.5.1, RFC 5961 §4.2) or from a firewall that wants to see a
    /// reset, or they are late.
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

    /// Processes a segment from the sender, and returns the number of its segments on the wire. `to_sender` are the
    /// round trips between the capture point and the sender.
    #[inline]
    pub(super) fn process_sent(
        &mut self,
        segment: &Segment,
        to_sender: &RoundTrips,
        budget: &mut MemoryBudget,
        bin: &mut Bin,
    ) -> u32 {
        let segments = self.send_state.count_packet(segment);
        if segment.flags & RST == 0 {
            self.process_numbers(segment, segments, to_sender, budget, bin);
        }
        segments
    }

    /// Processes the sequence numbers of a segment that was `segments` segments on the wire.
    #[inline(always)]
    fn process_numbers(
        &mut self,
        segment: &Segment,
        segments: u32,
        to_sender: &RoundTrips,
        budget: &mut MemoryBudget,
        bin: &mut Bin,
    ) {
        let mut range = self.send_state.sequence_range(segment);
        if range.start != self.send_state.next {
            match self.locate_out_of_order(segment, range, budget) {
                Some(located) => range = located,
                None => return self.count_stray(segment, segments, budget, bin),
            }
        }
        if segment.flags & (SYN | FIN) != 0 {
            self.send_state.record_syn_fin(segment, range);
        }
        let occupies_numbers = range.start < range.end;
        self.round_trips
            .record_tsval(segment, occupies_numbers, budget);
        if !occupies_numbers {
            self.process_empty(segment, range, budget);
            return;
        }
        if range.start == self.send_state.next {
            self.process_in_order(segment, range, budget);
        } else {
            self.process_out_of_order(segment, range, to_sender, budget, bin);
        }
        if segment.payload > 0 {
            self.count_data(segment, segments, budget, bin);
            if self.window_handle.is_open() {
                self.record_data_event(segment, range, budget);
            }
        } else {
            self.send_state.packet_gaps.record_syn_fin(segment.at_ns);
        }
    }

    /// Counts the payload of a segment whose sequence range is unknown.
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
        let after_pause =
            (self.send_state.packet_gaps).record_data(segment.at_ns, u64::from(segments), gap_ns);
        (self.burst_tracker).on_data(segment.at_ns, after_pause, gap_ns, &self.send_state.data);
        self.send_state.count_data(segment, segments, bin);
        let full =
            (self.ack_state).is_window_full(self.send_state.next, self.send_state.segment_max());
        bin.window_full += u32::from(full);
        let in_flight = self.in_flight();
        bin.in_flight_max = bin.in_flight_max.max(in_flight);
        self.in_flight_max = self.in_flight_max.max(in_flight);
        bin.all_acked = Some(self.ack_state.acked >= self.send_state.next);
        if segment.has_timestamps {
            self.record_sender_view(segment, &mut bin.sender);
        }
    }

    /// Records what a packet with timestamps tells about its sender by the ACK that it echoes.
    #[inline(always)]
    fn record_sender_view(&mut self, segment: &Segment, view: &mut SenderView) {
        let is_known = view.data_path_delay_us.is_some();
        if let Some(delay_ns) = self.path_delay.least_delay_ns(segment, is_known) {
            let delay_us = delay_ns / 1_000;
            view.record_delay(delay_us.clamp(i32::MIN.into(), i32::MAX.into()) as i32);
        }
        // Of packets with the same TSecr, the first came soonest after the ACK.
        let repeats_echo = std::mem::replace(&mut self.last_tsecr, segment.tsecr) == segment.tsecr;
        let Some(echoed) = self.ack_state.echoed.take(segment.tsecr) else {
            return;
        };
        if echoed.tsval == segment.tsecr && !(repeats_echo && view.rtt_min_us > 0) {
            let rtt_us = segment.at_ns.saturating_sub(echoed.at_ns) / 1_000;
            view.record_rtt(u32::try_from(rtt_us).unwrap_or(u32::MAX).max(1));
        }
        let next = self.send_state.next;
        let in_flight = u32::try_from(next.saturating_sub(echoed.ack)).unwrap_or(u32::MAX);
        view.in_flight_max = view.in_flight_max.max(in_flight);
        let end = next + u64::from(self.send_state.segment_max());
        let is_full = echoed.window_end != 0 && end > echoed.window_end;
        view.window_full += u32::from(is_full);
    }

    /// Processes a segment that occupies no sequence number: an ACK for the other direction, a keep-alive (RFC 9293
    /// §3.8.4), or a window probe of Linux. Both probes have a number that has been acknowledged. An ACK has the next
    /// number to be sent (RFC 9293 §3.10.7.4): numbers below it have been sent, seen or not.
    #[inline]
    fn process_empty(
        &mut self,
        segment: &Segment,
        range: SequenceRange,
        budget: &mut MemoryBudget,
    ) {
        if segment.has_timestamps {
            // Nothing of it is used; but the table would grow if its end never sent data.
            let _ = self.ack_state.echoed.take(segment.tsecr);
        }
        if range.start > self.send_state.next {
            let tsval = segment.has_timestamps.then_some(segment.tsval);
            self.open_gap(range.start, segment.at_ns, tsval, budget);
        } else if range.start + 1 == self.send_state.next && self.is_all_acknowledged() {
            self.send_state.data.window_probes_and_keep_alives += 1;
        }
    }

    fn is_all_acknowledged(&self) -> bool {
        self.ack_state.acked == 0 || self.ack_state.acked >= self.send_state.next
    }

    /// Processes the next new numbers.
    #[inline]
    fn process_in_order(
        &mut self,
        segment: &Segment,
        range: SequenceRange,
        budget: &mut MemoryBudget,
    ) {
        if segment.payload == 1 && self.ack_state.is_window_zero() {
            self.send_state.zero_window_probe = range.start;
            self.send_state.data.window_probes_and_keep_alives += 1;
        }
        self.advance(segment, range, budget);
        self.send_state.data.unique_bytes += u64::from(segment.payload);
    }

    /// Advances to the end of new numbers.
    #[inline]
    fn advance(&mut self, segment: &Segment, range: SequenceRange, budget: &mut MemoryBudget) {
        if self.ack_state.acked == 0 && segment.flags & SYN != 0 {
            self.ack_state.acked = range.start;
        }
        self.round_trips
            .record_sent(range.start, range.len(), segment.at_ns, budget);
        self.send_state.next = range.end;
    }

    #[cold]
    fn process_out_of_order(
        &mut self,
        segment: &Segment,
        range: SequenceRange,
        to_sender: &RoundTrips,
        budget: &mut MemoryBudget,
        bin: &mut Bin,
    ) {
        if range.start > self.send_state.next {
            let tsval = segment.has_timestamps.then_some(segment.tsval);
            self.open_gap(range.start, segment.at_ns, tsval, budget);
            self.advance(segment, range, budget);
            self.send_state.data.unique_bytes += u64::from(segment.payload);
        } else if self.is_probe(segment, range) && !self.is_late_in_gap(segment, to_sender) {
            self.send_state.data.window_probes_and_keep_alives += 1;
            self.round_trips
                .record_retransmission(range.start..range.end);
        } else {
            self.process_below_next(segment, range, to_sender, budget, bin);
        }
    }

    /// Opens a sequence gap up to `to`: a segment or ACK shows that the numbers before it were sent.
    pub(super) fn open_gap(
        &mut self,
        to: u64,
        at_ns: u64,
        tsval: Option<u32>,
        budget: &mut MemoryBudget,
    ) {
        let gap = SequenceGap {
            start: self.send_state.next,
            end: to,
            at_ns,
            tsval,
        };
        (self.send_state.sequence_gaps).open(gap, self.ack_state.acked, budget);
        self.send_state.next = to;
    }

    /// Returns whether a segment is a keep-alive with a byte of garbage, or a repeated byte in a zero window.
    fn is_probe(&self, segment: &Segment, range: SequenceRange) -> bool {
        segment.payload == 1
            && segment.flags & (SYN | FIN) == 0
            && range.end == self.send_state.next
            && (self.is_all_acknowledged() || self.ack_state.is_window_zero())
    }

    /// Returns whether the last number is in a gap, and the segment comes so soon that it is reordered.
    fn is_late_in_gap(&self, segment: &Segment, to_sender: &RoundTrips) -> bool {
        let gap = self
            .send_state
            .sequence_gaps
            .last_ending_at(self.send_state.next);
        let round_trip = (self.round_trips.smoothed()).plus(to_sender.smoothed());
        gap.is_some_and(|gap| is_reordered_segment(segment, gap, round_trip))
    }

    /// Processes numbers below the highest: reordered or retransmitted, perhaps followed by new ones.
    fn process_below_next(
        &mut self,
        segment: &Segment,
        range: SequenceRange,
        to_sender: &RoundTrips,
        budget: &mut MemoryBudget,
        bin: &mut Bin,
    ) {
        let next = self.send_state.next;
        let old_end = range.end.min(next);
        let syn_fin = self.syn_fin_seen(segment, range);
        let (unseen, gap) = (self.send_state.sequence_gaps).fill(range.start, old_end, budget);
        let probed = (range.start..old_end).contains(&self.send_state.zero_window_probe);
        if probed {
            self.send_state.zero_window_probe = 0; // From now on it is ordinary data.
        }
        let seen = old_end - range.start - unseen - u64::from(probed);
        let round_trip = (self.round_trips.smoothed()).plus(to_sender.smoothed());
        let seen_bytes = seen.saturating_sub(syn_fin); // A FIN may have the number of a probe.
        if seen > 0 || gap.is_some_and(|gap| !is_reordered_segment(segment, &gap, round_trip)) {
            self.count_retransmission(
                segment,
                range,
                [seen_bytes, unseen],
                round_trip,
                budget,
                bin,
            );
        } else if gap.is_some() {
            self.send_state.data.reordered += 1;
        }
        let known = seen_bytes + u64::from(probed);
        self.send_state.data.unique_bytes += u64::from(segment.payload).saturating_sub(known);
        if range.end > next {
            let new = SequenceRange {
                start: next,
                ..range
            };
            self.advance(segment, new, budget);
        }
    }

    /// Returns how many of its SYN and FIN, which are not bytes, were seen before.
    fn syn_fin_seen(&self, segment: &Segment, range: SequenceRange) -> u64 {
        let SendState {
            next,
            sequence_gaps,
            ..
        } = &self.send_state;
        let seen = |flag: u8, at: u64| {
            segment.flags & flag != 0 && at < *next && !sequence_gaps.overlaps(at, at + 1)
        };
        u64::from(seen(SYN, range.start)) + u64::from(seen(FIN, range.end - 1))
    }

    /// Counts a retransmission of `seen` bytes that the capture point saw before and `unseen` numbers.
    fn count_retransmission(
        &mut self,
        segment: &Segment,
        range: SequenceRange,
        [seen, unseen]: [u64; 2],
        round_trip: PathRoundTrip,
        budget: &mut MemoryBudget,
        bin: &mut Bin,
    ) {
        self.round_trips
            .record_retransmission(range.start..range.end.min(self.send_state.next));
        if segment.flags & SYN != 0 {
            return; // The handshake tracker counts it.
        }
        self.record_loss(budget);
        self.window_handle.retransmitted = true;
        let cause = self.cause(segment, range, round_trip);
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
        range: SequenceRange,
        round_trip: PathRoundTrip,
    ) -> Cause {
        // The sender stamped a late copy before its silence.
        let silence_ns = if self.round_trips.is_outdated(segment) {
            0
        } else {
            self.send_state.packet_gaps.silence_ns(segment.at_ns)
        };
        let evidence = Evidence {
            start: range.start,
            next: self.send_state.next,
            received: self.ack_state.has_received(range.start, range.end),
            sacked_above: self.ack_state.scoreboard.highest() >= range.end,
            duplicates: self.ack_state.duplicates,
            silence_ns,
            round_trip,
        };
        self.send_state.recovery.classify(&evidence)
    }

    /// Returns the bytes sent and neither acknowledged nor SACKed; 0 before the first ACK.
    #[inline]
    fn in_flight(&self) -> u64 {
        let (acked, next) = (self.ack_state.acked, self.send_state.next);
        if acked == 0 {
            return 0;
        }
        let not_in_flight =
            self.ack_state.scoreboard.bytes() + self.send_state.syn_fin.count_in(acked, next);
        (next - acked).saturating_sub(not_in_flight)
    }

    /// Processes the ACK fields of a segment from the other end.
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
        } else if self.ack_state.is_unchanged(segment)
            && self.round_trips.repeats_last_echo(segment)
        {
            return; // Bulk data in one direction repeats the same ACK.
        }
        let Some(ack) = self.locate_ack(segment, budget) else {
            return;
        };
        let order = ack.cmp(&self.ack_state.acked);
        if order != Ordering::Greater && self.awaits_syn_ack() {
            return; // The ACK is for an older connection.
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
            let is_new = pure || order == Ordering::Greater;
            self.ack_state.update_window(segment, ack, is_new, bin);
            self.ack_state.record_for_echo(segment, budget);
        }
        if self.window_handle.is_open() {
            self.record_ack_event(segment, ack, budget);
        }
    }

    /// Processes what a segment from the other end reports about ECN marks, after its ACK fields.
    pub(super) fn process_ecn_report(&mut self, segment: &Segment, bin: &mut Bin) {
        let is_ack = segment.flags & (SYN | ACK | RST) == ACK;
        if is_ack && self.ack_state.acked > self.send_state.origin {
            let delivered = self.ack_state.acked + self.ack_state.scoreboard.bytes();
            let segment_bytes = self.send_state.segment_max();
            (self.ecn).process_ack(segment, delivered, segment_bytes, bin);
        }
    }

    fn process_repeated_ack(&mut self, segment: &Segment, ack: u64, bin: &mut Bin) {
        // If the capture has no data at all, it is unknown whether any is outstanding.
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
            // How far the first ACK of a capture that begins in the middle advances is unknown.
            self.ack_state.acked = ack;
        } else {
            let segment_max = self.send_state.segment_max();
            let ack = (ack, segment.at_ns);
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

    /// Records a loss, which a retransmission or SACK shows: it triggers one packet window.
    #[cold]
    fn record_loss(&mut self, budget: &mut MemoryBudget) {
        if !self.window_handle.accepts_loss(self.ack_state.acked) {
            return;
        }
        self.window_handle.loss_end = self.send_state.next;
        if budget
            .packet_windows
            .open_window(&mut self.window_handle, WindowTrigger::Loss)
        {
            for (at_ns, start, length) in self.round_trips.oldest().take(IN_FLIGHT_EVENTS_MAX) {
                let numbers = unwrapped_range(self.send_state.next, start, length);
                (budget.packet_windows).record(
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
        range: SequenceRange,
        budget: &mut MemoryBudget,
    ) {
        let kind = if std::mem::take(&mut self.window_handle.retransmitted) {
            PacketEventKind::Retransmitted
        } else {
            PacketEventKind::Sent
        };
        let numbers = (range.start, range.end);
        (budget.packet_windows).record(&mut self.window_handle, segment.at_ns, numbers, kind);
    }

    #[cold]
    fn record_ack_event(&mut self, segment: &Segment, ack: u64, budget: &mut MemoryBudget) {
        if self.send_state.data.data_packets == 0 {
            return;
        }
        let end = self.ack_state.window_end().unwrap_or(ack - 1);
        let at_ns = segment.at_ns;
        (budget.packet_windows).record(
            &mut self.window_handle,
            at_ns,
            (ack, end),
            PacketEventKind::Ack,
        );
        let blocks = blocks_of(segment, self.send_state.next);
        for block in &blocks[..block_count(segment)] {
            (budget.packet_windows).record(
                &mut self.window_handle,
                at_ns,
                *block,
                PacketEventKind::Sack,
            );
        }
    }

    /// Returns whether the capture seems to lack the FIN: one number behind all seen is acknowledged.
    fn lacks_fin(&self) -> bool {
        let SendState {
            next,
            sequence_gaps,
            ..
        } = &self.send_state;
        let last = sequence_gaps.last_ending_at(*next);
        let is_one = last.is_some_and(|gap| gap.end - gap.start == 1);
        is_one && self.send_state.syn_fin.fin == 0 && self.ack_state.acked >= *next
    }

    /// Returns the bytes that were acknowledged but are not in the capture. If that begins in the middle of the
    /// connection, gaps of the first round trip, `rtt_ns`, do not count: their data may have been in flight before.
    fn acked_unseen_bytes(&self, is_over: bool, rtt_ns: u64) -> u64 {
        let send_state = &self.send_state;
        let complete_from_ns = match (send_state.isn, send_state.data.first_data_ns) {
            (None, Some(first_ns)) => first_ns.saturating_add(rtt_ns),
            _ => 0,
        };
        let unseen =
            (send_state.sequence_gaps).acked_unseen(self.ack_state.acked, complete_from_ns);
        unseen.saturating_sub(u64::from(is_over && self.lacks_fin()))
    }

    /// Returns the memory of the distributions, bytes.
    #[inline]
    pub(super) fn distributions_bytes(&self) -> usize {
        self.send_state.packet_gaps.bytes()
            + self.ack_state.distributions_bytes()
            + self.round_trips.bytes()
    }

    /// Returns the memory of the tables, bytes.
    pub(super) fn table_bytes(&self) -> usize {
        self.send_state.sequence_gaps.table_bytes()
            + self.ack_state.scoreboard.table_bytes()
            + self.ack_state.echoed.table_bytes()
            + self.round_trips.table_bytes()
    }

    /// Returns the record of the direction; `is_over` is true if the other end sent a FIN, or either a RST. A stall in a
    /// window of zero lasts until the connection's last packet, at `last_ns`.
    pub(super) fn finish(
        &mut self,
        is_over: bool,
        last_ns: u64,
        time_series: TimeSeries,
        packet_windows: Vec<PacketWindow>,
        budget: &MemoryBudget,
    ) -> record::Direction {
        let gap_ns = budget.settings.burst_gap_ns;
        let is_stalled = self.ack_state.is_window_zero();
        let rtt_by_acks = self.round_trips.by_pairs.summary();
        let acked_unseen_bytes = self.acked_unseen_bytes(is_over, rtt_by_acks.p90);
        let ack_clocking = self.burst_tracker.finish(gap_ns, &self.send_state.data);
        let (gaps, bursts) = self.send_state.packet_gaps.finish();
        let (mut acks, ack_diff, packets_per_ack) = self.ack_state.finish();
        if is_stalled {
            acks.last_zero_window_ns = acks.last_zero_window_ns.map(|_| last_ns);
        }
        record::Direction {
            syn_options: self.syn_options,
            data: record::Data {
                acked_unseen_bytes,
                ..self.send_state.data
            },
            acks,
            ecn: self.ecn.counts(),
            rtt_by_timestamps: self.round_trips.by_timestamps.summary(),
            rtt_by_acks,
            ack_diff: ack_diff.summary(),
            packets_per_ack: packets_per_ack.summary(),
            inter_packet_gaps: gaps.summary(),
            bursts: bursts.summary(),
            in_flight_max_bytes: self.in_flight_max,
            time_series,
            packet_windows,
            ack_clocking,
            ..record::Direction::default()
        }
    }
}

fn is_reordered_segment(segment: &Segment, gap: &SequenceGap, round_trip: PathRoundTrip) -> bool {
    let tsval = segment.has_timestamps.then_some(segment.tsval);
    is_reordered(gap, segment.at_ns, tsval, round_trip)
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
