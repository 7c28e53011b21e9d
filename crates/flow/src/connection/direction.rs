// SPDX-License-Identifier: MIT OR Apache-2.0
//! One direction of a connection: its data, and the ACKs that come back for it.

use crate::acks::releases::Releases;
use crate::acks::{Acking, Marks, block_count, blocks_of, is_pure};
use crate::bounds::Bounds;
use crate::course::{Course, series::Bin};
use crate::data::holes::Hole;
use crate::data::retransmission::{Cause, Evidence, is_reordered};
use crate::data::stray::Stray;
use crate::data::{Numbers, Sending};
use crate::excerpts::{BEFORE_A_LOSS, Eye, numbers_of};
use crate::record::{self, Excerpt, MarkKind, Occasion, Offer};
use crate::round_trips::{
    RoundTrips,
    round_trip::{PathRoundTrip, RoundTrip},
};
use crate::segment::{Segment, unwrap_near};
use longhaul_packet::tcp::{ACK, FIN, RST, SYN};
use std::cmp::Ordering;

/// All that is known of a direction.
#[derive(Debug, Default)]
pub(super) struct Direction {
    /// What its sender offered.
    pub(super) offer: Offer,
    pub(super) sending: Sending,
    pub(super) acking: Acking,
    pub(super) round_trips: RoundTrips,
    pub(super) eye: Eye,
    pub(super) stray: Stray,
    releases: Releases,
    in_flight_max: u64,
}

impl Direction {
    /// Its sender chose other numbers than all before: what it counted stays.
    #[cold]
    pub(super) fn begin_anew(&mut self) {
        self.sending.next = 0;
        self.sending.marks = Marks::default();
        self.acking.begin_anew();
        self.round_trips.begin_anew();
    }

    /// Whether it began with a SYN that was not acknowledged yet.
    #[inline]
    pub(super) fn awaits_syn_ack(&self) -> bool {
        let syn = self.sending.marks.syn;
        syn != 0 && self.acking.acked == syn
    }

    /// Whether a SYN was sent, and what is acknowledged is not that (or data with it): a server answers so that still
    /// knows an old connection (RFC 9293 §3.5.1, RFC 5961 §4.2), a guard that wants to see a reset, and what is late.
    #[inline]
    pub(super) fn awaits_other_than(&self, segment: &Segment) -> bool {
        self.awaits_syn_ack() && segment.flags & ACK != 0 && !self.covers_syn(segment.ack)
    }

    #[cold]
    fn covers_syn(&self, ack: u32) -> bool {
        let (syn, ack) = (self.sending.marks.syn, unwrap_near(self.sending.next, ack));
        (syn + 1..=self.sending.next).contains(&ack)
    }

    /// Its sender sent a segment. `back` is the round trip between the tap and that sender.
    #[inline]
    pub(super) fn sent(
        &mut self,
        segment: &Segment,
        back: RoundTrip,
        bounds: &mut Bounds,
        bin: &mut Bin,
    ) {
        let segments = self.sending.count_packet(segment);
        if segment.flags & RST != 0 {
            return;
        }
        let mut numbers = self.sending.place(segment);
        if numbers.start != self.sending.next {
            match self.place_elsewhere(segment, numbers, bounds) {
                Some(placed) => numbers = placed,
                None => return self.sent_stray(segment, segments, bounds, bin),
            }
        }
        if segment.flags & (SYN | FIN) != 0 {
            self.sending.mark(segment, numbers);
        }
        let answered = numbers.start < numbers.end;
        self.round_trips.stamped(segment, answered, bounds);
        if !answered {
            self.sent_nothing(segment, numbers, bounds);
            return;
        }
        if numbers.start == self.sending.next {
            self.sent_next(segment, numbers, bounds);
        } else {
            self.sent_elsewhere(segment, numbers, back, bounds, bin);
        }
        if segment.payload > 0 {
            self.sent_data(segment, segments, bounds, bin);
            if self.eye.is_open() {
                self.mark_data(segment, numbers, bounds);
            }
        } else {
            self.sending.gaps.mark(segment.at_ns);
        }
    }

    /// Counts what it carries, wherever that lies.
    #[cold]
    fn sent_stray(&mut self, segment: &Segment, segments: u32, bounds: &mut Bounds, bin: &mut Bin) {
        if segment.payload > 0 {
            self.sent_data(segment, segments, bounds, bin);
        }
    }

    #[inline(always)]
    fn sent_data(&mut self, segment: &Segment, segments: u32, bounds: &mut Bounds, bin: &mut Bin) {
        let gap_ns = bounds.settings.burst_gap_ns;
        let pauses = (self.sending.gaps).data(segment.at_ns, u64::from(segments), gap_ns);
        (self.releases).data(segment.at_ns, pauses, gap_ns, &self.sending.data);
        self.sending.count_data(segment, segments, bin);
        let full = (self.acking).is_window_full(self.sending.next, self.sending.segment_max());
        bin.window_full += u32::from(full);
        let in_flight = self.in_flight();
        bin.in_flight_max = bin.in_flight_max.max(in_flight);
        self.in_flight_max = self.in_flight_max.max(in_flight);
        bin.all_acked = Some(self.acking.acked >= self.sending.next);
    }

    /// An ACK of its sender for the other direction; or a keep-alive (RFC 9293 §3.8.4) or a window probe
    /// of Linux, which ask for an ACK with a number that has been acknowledged. An ACK has the next number to
    /// be sent (RFC 9293 §3.10.7.4): what is below has been sent, seen or not.
    #[inline]
    fn sent_nothing(&mut self, segment: &Segment, numbers: Numbers, bounds: &mut Bounds) {
        if numbers.start > self.sending.next {
            let tsval = segment.has_timestamps.then_some(segment.tsval);
            self.pass_over(numbers.start, segment.at_ns, tsval, bounds);
        } else if numbers.start + 1 == self.sending.next && self.is_all_acknowledged() {
            self.sending.data.probes += 1;
        }
    }

    fn is_all_acknowledged(&self) -> bool {
        self.acking.acked == 0 || self.acking.acked >= self.sending.next
    }

    /// What comes next.
    #[inline]
    fn sent_next(&mut self, segment: &Segment, numbers: Numbers, bounds: &mut Bounds) {
        if segment.payload == 1 && self.acking.is_window_zero() {
            self.sending.probed = numbers.start;
            self.sending.data.probes += 1;
        }
        self.sent_new(segment, numbers, bounds);
        self.sending.data.unique_bytes += u64::from(segment.payload);
    }

    /// New numbers, up to the highest.
    #[inline]
    fn sent_new(&mut self, segment: &Segment, numbers: Numbers, bounds: &mut Bounds) {
        if self.acking.acked == 0 && segment.flags & SYN != 0 {
            self.acking.acked = numbers.start;
        }
        self.round_trips
            .sent(numbers.start, numbers.len(), segment.at_ns, bounds);
        self.sending.next = numbers.end;
    }

    #[cold]
    fn sent_elsewhere(
        &mut self,
        segment: &Segment,
        numbers: Numbers,
        back: RoundTrip,
        bounds: &mut Bounds,
        bin: &mut Bin,
    ) {
        if numbers.start > self.sending.next {
            let tsval = segment.has_timestamps.then_some(segment.tsval);
            self.pass_over(numbers.start, segment.at_ns, tsval, bounds);
            self.sent_new(segment, numbers, bounds);
            self.sending.data.unique_bytes += u64::from(segment.payload);
        } else if self.is_probe(segment, numbers) && !self.comes_late(segment, back) {
            self.sending.data.probes += 1;
            self.round_trips.sent_again(numbers.start..numbers.end);
        } else {
            self.sent_behind(segment, numbers, back, bounds, bin);
        }
    }

    /// Something from `to` on, or for it, was seen, but not what lies before.
    pub(super) fn pass_over(
        &mut self,
        to: u64,
        at_ns: u64,
        tsval: Option<u32>,
        bounds: &mut Bounds,
    ) {
        let hole = Hole {
            start: self.sending.next,
            end: to,
            at_ns,
            tsval,
        };
        (self.sending.holes).open(hole, self.acking.acked, bounds);
        self.sending.next = to;
    }

    /// A keep-alive with a byte of garbage, or a byte sent into a window of zero once more.
    fn is_probe(&self, segment: &Segment, numbers: Numbers) -> bool {
        segment.payload == 1
            && segment.flags & (SYN | FIN) == 0
            && numbers.end == self.sending.next
            && (self.is_all_acknowledged() || self.acking.is_window_zero())
    }

    /// Whether the last number was passed over, and comes so soon after that it was late.
    fn comes_late(&self, segment: &Segment, back: RoundTrip) -> bool {
        let hole = self.sending.holes.ends_at(self.sending.next);
        let round_trip = self.round_trips.smoothed().joined(back);
        hole.is_some_and(|hole| is_overtaken(segment, hole, round_trip))
    }

    /// Numbers below the highest: overtaken or sent again, perhaps with new ones behind.
    fn sent_behind(
        &mut self,
        segment: &Segment,
        numbers: Numbers,
        back: RoundTrip,
        bounds: &mut Bounds,
        bin: &mut Bin,
    ) {
        let next = self.sending.next;
        let old_end = numbers.end.min(next);
        let marks = self.marks_seen(segment, numbers);
        let (unseen, hole) = (self.sending.holes).fill(numbers.start, old_end, bounds);
        let probed = (numbers.start..old_end).contains(&self.sending.probed);
        if probed {
            self.sending.probed = 0; // From now on it is a byte like others.
        }
        let seen = old_end - numbers.start - unseen - u64::from(probed);
        let round_trip = self.round_trips.smoothed().joined(back);
        let seen_bytes = seen.saturating_sub(marks); // A FIN may have the number of a probe.
        if seen > 0 || hole.is_some_and(|hole| !is_overtaken(segment, &hole, round_trip)) {
            self.sent_again(
                segment,
                numbers,
                [seen_bytes, unseen],
                round_trip,
                bounds,
                bin,
            );
        } else if hole.is_some() {
            self.sending.data.reordered += 1;
        }
        let known = seen_bytes + u64::from(probed);
        self.sending.data.unique_bytes += u64::from(segment.payload).saturating_sub(known);
        if numbers.end > next {
            let new = Numbers {
                start: next,
                ..numbers
            };
            self.sent_new(segment, new, bounds);
        }
    }

    /// How many of its SYN and FIN, which are no bytes, were seen before.
    fn marks_seen(&self, segment: &Segment, numbers: Numbers) -> u64 {
        let Sending { next, holes, .. } = &self.sending;
        let seen =
            |flag: u8, at: u64| segment.flags & flag != 0 && at < *next && !holes.touch(at, at + 1);
        u64::from(seen(SYN, numbers.start)) + u64::from(seen(FIN, numbers.end - 1))
    }

    /// A retransmission: of `seen` bytes that the tap saw before and `unseen` numbers.
    fn sent_again(
        &mut self,
        segment: &Segment,
        numbers: Numbers,
        [seen, unseen]: [u64; 2],
        round_trip: PathRoundTrip,
        bounds: &mut Bounds,
        bin: &mut Bin,
    ) {
        self.round_trips
            .sent_again(numbers.start..numbers.end.min(self.sending.next));
        if segment.flags & SYN != 0 {
            return; // The handshake counts it.
        }
        self.loss_shows(bounds);
        self.eye.again = true;
        let cause = self.cause(segment, numbers, round_trip);
        let payload = u64::from(segment.payload);
        let bytes = (seen + unseen).min(payload);
        let data = &mut self.sending.data;
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

    fn cause(&mut self, segment: &Segment, numbers: Numbers, round_trip: PathRoundTrip) -> Cause {
        let evidence = Evidence {
            start: numbers.start,
            next: self.sending.next,
            held: self.acking.holds(numbers.start, numbers.end),
            sacked_above: self.acking.scoreboard.highest() >= numbers.end,
            duplicates: self.acking.duplicates,
            silence_ns: self.sending.gaps.silence_ns(segment.at_ns),
            round_trip,
        };
        self.sending.recovery.cause(&evidence)
    }

    /// Bytes sent and neither acknowledged nor SACKed; 0 before the first ACK.
    #[inline]
    fn in_flight(&self) -> u64 {
        let (acked, next) = (self.acking.acked, self.sending.next);
        if acked == 0 {
            return 0;
        }
        let others = self.acking.scoreboard.bytes() + self.sending.marks.within(acked, next);
        (next - acked).saturating_sub(others)
    }

    /// The other end sent a segment with an ACK.
    #[inline]
    pub(super) fn acknowledged(&mut self, segment: &Segment, bounds: &mut Bounds, bin: &mut Bin) {
        let pure = is_pure(segment);
        if pure {
            self.acking.count_pure(segment, bin);
        } else if self.acking.is_known(segment) && self.round_trips.is_echo_known(segment) {
            return; // Bulk data one way has the same ACK for ever.
        }
        let Some(ack) = self.place_ack(segment, bounds) else {
            return;
        };
        let order = ack.cmp(&self.acking.acked);
        if order != Ordering::Greater && self.awaits_syn_ack() {
            return; // It answers an older connection.
        }
        bin.in_flight_max = bin.in_flight_max.max(self.in_flight());
        let numbers = [self.acking.acked, ack, self.sending.next];
        if let Some(sample) = self.round_trips.answered(numbers, segment) {
            count_rtt(sample.rtt_ns, bin);
            if let Some(age_ns) = sample.unacked_age_ns {
                bin.note_unacked_age(age_ns);
            }
        }
        match order {
            Ordering::Greater => self.moves(segment, ack, bin),
            Ordering::Equal if pure => self.repeats(segment, ack, bin),
            Ordering::Equal => {}
            Ordering::Less => self.acking.is_late(),
        }
        if segment.sack_blocks > 0 {
            self.sacked(segment, ack, bounds, bin);
        }
        if segment.flags & SYN == 0 {
            let tells = pure || order == Ordering::Greater;
            self.acking.window(segment, ack, tells, bin);
        }
        if self.eye.is_open() {
            self.mark_ack(segment, ack, bounds);
        }
    }

    fn repeats(&mut self, segment: &Segment, ack: u64, bin: &mut Bin) {
        // Of data that is not in the capture at all, nobody knows whether it is outstanding.
        let next = self.sending.next;
        let outstanding = next > ack || self.sending.data.packets == 0;
        if self.acking.repeats(segment, [ack, next], outstanding, bin) {
            (self.releases).ack(segment.at_ns, 0, &self.sending.data);
        }
    }

    #[inline]
    fn moves(&mut self, segment: &Segment, ack: u64, bin: &mut Bin) {
        bin.all_acked = Some(ack >= self.sending.next);
        if self.acking.acked == 0 {
            // Of the first ACK of a capture that begins in the middle, nobody knows how far it moves.
            self.acking.acked = ack;
        } else {
            let segment_max = self.sending.segment_max();
            let packets = (self.acking).moves(ack, self.sending.marks, segment_max, bin);
            if packets > 0 {
                (self.releases).ack(segment.at_ns, packets, &self.sending.data);
            }
        }
    }

    #[cold]
    fn sacked(&mut self, segment: &Segment, ack: u64, bounds: &mut Bounds, bin: &mut Bin) {
        self.loss_shows(bounds);
        let end = self
            .acking
            .sacked(segment, ack, self.sending.next, bounds, bin);
        if end > self.sending.next {
            self.catch_up(end, segment.at_ns, bounds);
        }
    }

    /// Something was sent again, or SACKed: an occasion to look at single segments, once a loss.
    #[cold]
    fn loss_shows(&mut self, bounds: &mut Bounds) {
        if !self.eye.awaits_loss(self.acking.acked) {
            return;
        }
        self.eye.until = self.sending.next;
        if bounds.excerpts.begin(&mut self.eye, Occasion::Loss) {
            for (at_ns, start, length) in self.round_trips.oldest().take(BEFORE_A_LOSS) {
                let numbers = numbers_of(self.sending.next, start, length);
                (bounds.excerpts).mark(&mut self.eye, at_ns, numbers, MarkKind::Sent);
            }
        }
    }

    #[cold]
    fn mark_data(&mut self, segment: &Segment, numbers: Numbers, bounds: &mut Bounds) {
        let kind = match std::mem::take(&mut self.eye.again) {
            true => MarkKind::SentAgain,
            false => MarkKind::Sent,
        };
        let numbers = (numbers.start, numbers.end);
        (bounds.excerpts).mark(&mut self.eye, segment.at_ns, numbers, kind);
    }

    #[cold]
    fn mark_ack(&mut self, segment: &Segment, ack: u64, bounds: &mut Bounds) {
        if self.sending.data.data_packets == 0 {
            return;
        }
        let end = self.acking.window_end().unwrap_or(ack - 1);
        let at_ns = segment.at_ns;
        (bounds.excerpts).mark(&mut self.eye, at_ns, (ack, end), MarkKind::Ack);
        let blocks = blocks_of(segment, self.sending.next);
        for block in &blocks[..block_count(segment)] {
            (bounds.excerpts).mark(&mut self.eye, at_ns, *block, MarkKind::Sack);
        }
    }

    /// Whether the capture seems to lack its FIN: one number is acknowledged behind all that was seen.
    fn misses_fin(&self) -> bool {
        let Sending { next, holes, .. } = &self.sending;
        let last = holes.ends_at(*next);
        let is_one = last.is_some_and(|hole| hole.end - hole.start == 1);
        is_one && self.sending.marks.fin == 0 && self.acking.acked >= *next
    }

    /// Memory of its distributions.
    #[inline]
    pub(super) fn distributions_bytes(&self) -> usize {
        self.sending.gaps.bytes() + self.acking.distributions_bytes() + self.round_trips.bytes()
    }

    /// Memory of its tables.
    pub(super) fn table_bytes(&self) -> usize {
        self.sending.holes.table_bytes()
            + self.acking.scoreboard.table_bytes()
            + self.round_trips.table_bytes()
    }

    /// What is said of it; `is_over` says that the other end sent a FIN, or either a RST.
    pub(super) fn finish(
        self,
        is_over: bool,
        course: Course,
        excerpts: Vec<Excerpt>,
        bounds: &Bounds,
    ) -> record::Direction {
        let gap_ns = bounds.settings.burst_gap_ns;
        let missed = self.sending.holes.missed(self.acking.acked);
        let missed_bytes = missed - u64::from(is_over && self.misses_fin());
        let releases = self.releases.finish(gap_ns, &self.sending.data);
        let (gaps, bursts) = self.sending.gaps.finish();
        let (acks, ack_diff, packets_per_ack) = self.acking.finish();
        record::Direction {
            offer: self.offer,
            data: record::Data {
                missed_bytes,
                ..self.sending.data
            },
            acks,
            rtt_by_timestamps: self.round_trips.by_timestamps.summary(),
            rtt_by_pairs: self.round_trips.by_pairs.summary(),
            ack_diff: ack_diff.summary(),
            packets_per_ack: packets_per_ack.summary(),
            gaps: gaps.summary(),
            bursts: bursts.summary(),
            in_flight_max_bytes: self.in_flight_max,
            course,
            excerpts,
            releases,
            ..record::Direction::default()
        }
    }
}

fn is_overtaken(segment: &Segment, hole: &Hole, round_trip: PathRoundTrip) -> bool {
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
