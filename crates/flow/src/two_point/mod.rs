// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of one connection at two capture points: matched packets, their delays, and losses in between.
//!
//! ```text
//! segments at the left ──┐  DirectionMatcher, one for each direction:
//!                        ├─ packets that only one point has seen so far (unmatched)
//! segments at the right ─┘  time differences (delays), spacing of ACKs (ack_spacing)
//! ```
//!
//! Data is matched byte by byte, because a super-packet at one point is many segments at the other. The TSval (RFC 7323
//! §3) must be equal, which distinguishes a retransmission from its original. If several candidates match (no
//! timestamps, or the same millisecond), the one is taken whose delay is nearest to the latest delays. Packets without
//! payload match if number, window, timestamp, flags and first SACK block are equal, in the order in which they were
//! sent. No device between the points may change sequence numbers or timestamps, as some firewalls do: nothing would
//! match.
//!
//! The point nearer to the client need not be known: delays from left to right and from right to left differ in sign.
//! Two clocks differ by an offset and a skew. The skew is the slope of the least delays over time
//! (`clock_skew.rs`). The offset is chosen so that the least delays of both directions are equal; no measurement can
//! determine it better.

mod ack_spacing;
mod delays;
mod unmatched;

use super::{
    record::{Clocks, Flow, OneWayMetrics, TwoPointComparison},
    segment::{Segment, unwrap_first, unwrap_near},
};
use ack_spacing::AckSpacing;
pub use delays::ComparisonSettings;
use delays::{ClockOffset, Delays};
use longhaul_packet::tcp::{FIN, SYN};
use unmatched::{EmptySegment, MatchedPart, Packet, UnmatchedPackets};

/// Side of the comparison that saw a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Left point.
    Left,
    /// Right point.
    Right,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }
}

/// Compares one connection at two capture points.
#[derive(Debug)]
pub struct Comparison {
    same_clock: bool,
    /// Packets from the low endpoint of the flow, and from the high one.
    directions: [DirectionMatcher; 2],
}

impl Comparison {
    /// Creates an empty comparison. `same_clock` is true if one clock stamped the packets of both points, as in
    /// one file.
    #[must_use]
    pub fn new(same_clock: bool, settings: ComparisonSettings) -> Self {
        Self {
            same_clock,
            directions: [
                DirectionMatcher::new(settings),
                DirectionMatcher::new(settings),
            ],
        }
    }

    /// Processes a segment. Segments of each side come in order of time, and those of the other side in between.
    pub fn process_segment(&mut self, side: Side, segment: &Segment) {
        self.directions[usize::from(!segment.from_low)].process_segment(side, segment);
    }

    /// Returns the number of unmatched parts of packets: at most [`ComparisonSettings::packets_max`] for each point and
    /// direction.
    #[must_use]
    pub fn unmatched_parts(&self) -> usize {
        self.directions
            .iter()
            .map(DirectionMatcher::unmatched_parts)
            .sum()
    }

    /// Returns the result at the end of both captures; `left` and `right` are the flows that the analysis found in
    /// each.
    #[must_use]
    pub fn finish(mut self, left: &Flow, right: &Flow) -> TwoPointComparison {
        self.directions
            .iter_mut()
            .for_each(DirectionMatcher::expire_all);
        let low_is_left = self.low_is_left(left, right);
        let (clocks, clock_offset) = self.clock_offset(low_is_left);
        let low_is_client = left.client <= left.server;
        let client_is_left = low_is_left == low_is_client;
        let near = |is_left: bool| if is_left { left } else { right };
        let [low, high] = self.directions;
        let [low, high] = [
            low.finish(low_is_left, clock_offset),
            high.finish(!low_is_left, clock_offset),
        ];
        let [from_client, from_server] = if low_is_client {
            [low, high]
        } else {
            [high, low]
        };
        let upload = near(client_is_left).upload.data;
        let download = near(!client_is_left).download.data;
        TwoPointComparison {
            left: left.number,
            right: right.number,
            client_is_left,
            clocks,
            offset_ns: clock_offset.offset_ns_at(left.first_ns) as i64,
            skew_ppm: clock_offset.slope * 1e6,
            from_client: OneWayMetrics {
                lost_upstream_bytes: upload.unseen_retransmitted_bytes,
                ..from_client
            },
            from_server: OneWayMetrics {
                lost_upstream_bytes: download.unseen_retransmitted_bytes,
                ..from_server
            },
        }
    }

    /// Returns whether packets from the low endpoint reach the left point first. For them, right minus left is a delay
    /// plus the clock offset; for the other direction it is the offset minus a delay.
    fn low_is_left(&self, left: &Flow, right: &Flow) -> bool {
        let [low, high] = &self.directions;
        if let (Some(low), Some(high)) =
            (low.delays.mean_difference(), high.delays.mean_difference())
        {
            return low > high;
        }
        if let (true, Some(low)) = (self.same_clock, low.delays.mean_difference()) {
            return low > 0.0;
        }
        if let (true, Some(high)) = (self.same_clock, high.delays.mean_difference()) {
            return high < 0.0;
        }
        let to_server = |flow: &Flow| flow.handshake.syn_to_syn_ack_ns;
        let client_is_left = to_server(left) >= to_server(right);
        client_is_left == (left.client <= left.server)
    }

    /// Returns the right clock minus the left one, and how it is known.
    fn clock_offset(&self, low_is_left: bool) -> (Clocks, ClockOffset) {
        if self.same_clock {
            return (Clocks::Same, ClockOffset::default());
        }
        let [low, high] = &self.directions;
        let (low, high) = (
            low.delays.min_delays(low_is_left),
            high.delays.min_delays(!low_is_left),
        );
        let sign = if low_is_left { 1.0 } else { -1.0 };
        match (low, high) {
            (Some(low), Some(high)) => (
                Clocks::Symmetric,
                ClockOffset::from_both_directions(&low, &high, sign),
            ),
            (Some(low), None) => (
                Clocks::Relative,
                ClockOffset::from_one_direction(&low, sign),
            ),
            (None, Some(high)) => (
                Clocks::Relative,
                ClockOffset::from_one_direction(&high, -sign),
            ),
            (None, None) => (Clocks::Relative, ClockOffset::default()),
        }
    }
}

/// Matches the packets of one direction.
#[derive(Debug)]
struct DirectionMatcher {
    settings: ComparisonSettings,
    /// Highest sequence number and ACK number so far, unwrapped.
    highest_seq: Option<u64>,
    highest_ack: Option<u64>,
    /// Unmatched packets of the left point and of the right, in the order of [`Side`].
    unmatched: [UnmatchedPackets; 2],
    delays: Delays,
    matched: u64,
    matched_bytes: u64,
    reordered: u64,
    spacing: AckSpacing,
}

impl DirectionMatcher {
    fn new(settings: ComparisonSettings) -> Self {
        Self {
            settings,
            highest_seq: None,
            highest_ack: None,
            unmatched: [UnmatchedPackets::default(), UnmatchedPackets::default()],
            delays: Delays::new(settings),
            matched: 0,
            matched_bytes: 0,
            reordered: 0,
            spacing: AckSpacing::default(),
        }
    }

    fn unmatched_at(&mut self, side: Side) -> &mut UnmatchedPackets {
        &mut self.unmatched[side as usize]
    }

    fn process_segment(&mut self, side: Side, segment: &Segment) {
        let serial = self.unmatched_at(side).next_serial();
        let syn_fin = u64::from(segment.flags & SYN != 0) + u64::from(segment.flags & FIN != 0);
        let len = u64::from(segment.payload) + syn_fin;
        let at_ns = segment.at_ns;
        let tsval = segment.has_timestamps.then_some(segment.tsval);
        if len > 0 {
            let start = unwrap_number(&mut self.highest_seq, segment.seq);
            let segments = u64::from(segment.wire_segments.max(1));
            let packet = Packet {
                end: start + len,
                at_ns,
                tsval,
                segment_bytes: u32::try_from(len.div_ceil(segments)).unwrap_or(u32::MAX),
            };
            self.match_data(side, serial, start, packet);
        } else {
            let empty_segment = EmptySegment {
                ack: unwrap_number(&mut self.highest_ack, segment.ack),
                tsval,
                window: segment.window,
                flags: segment.flags,
                sack: (segment.sack_blocks > 0).then_some(segment.sack[0]),
            };
            self.match_empty(side, serial, empty_segment, at_ns);
        }
        for unmatched in &mut self.unmatched {
            unmatched.expire_beyond(self.settings.packets_max);
        }
    }

    fn match_data(&mut self, side: Side, serial: u64, start: u64, packet: Packet) {
        let mut rest_start = start;
        let expected_ns = self.expected_at_other(side, packet.at_ns);
        while let Some(found) =
            self.unmatched_at(side.other())
                .take_match(rest_start, &packet, expected_ns)
        {
            if found.start > rest_start {
                let part = Packet {
                    end: found.start,
                    ..packet
                };
                self.unmatched_at(side)
                    .insert(start, rest_start, serial, &part);
            }
            rest_start = found.end;
            self.record_match(side, serial, packet.at_ns, &found);
        }
        if rest_start < packet.end {
            self.unmatched_at(side)
                .insert(start, rest_start, serial, &packet);
        }
        self.unmatched_at(side).enqueue(start, packet.tsval);
    }

    fn match_empty(&mut self, side: Side, serial: u64, empty_segment: EmptySegment, at_ns: u64) {
        match self.unmatched_at(side.other()).take_empty(&empty_segment) {
            Some(found) => {
                self.record_match(side, serial, at_ns, &found);
                let times = left_right(side, at_ns, found.at_ns);
                self.spacing.record(times);
            }
            None => self
                .unmatched_at(side)
                .insert_empty(serial, empty_segment, at_ns),
        }
        self.unmatched_at(side).enqueue_empty(empty_segment);
    }

    /// Returns the expected time at the other point of a packet seen here at `at_ns`.
    fn expected_at_other(&self, side: Side, at_ns: u64) -> Option<u64> {
        let recent = self.delays.recent_difference()?;
        let shift = if side == Side::Left {
            recent
        } else {
            recent.saturating_neg()
        };
        Some(at_ns.saturating_add_signed(shift))
    }

    fn record_match(&mut self, side: Side, serial: u64, at_ns: u64, found: &MatchedPart) {
        let [left, right] = left_right(side, at_ns, found.at_ns);
        self.delays.record(left, right);
        self.matched += 1;
        self.matched_bytes += found.end - found.start;
        let reordered_here = self.unmatched_at(side).record_match(serial);
        let reordered_there = self.unmatched_at(side.other()).record_match(found.serial);
        self.reordered += u64::from(reordered_here || reordered_there);
    }

    fn unmatched_parts(&self) -> usize {
        self.unmatched
            .iter()
            .map(UnmatchedPackets::unmatched_parts)
            .sum()
    }

    fn expire_all(&mut self) {
        for unmatched in &mut self.unmatched {
            unmatched.expire_beyond(0);
        }
    }

    /// Returns the metrics; `from_left` is true if the packets reach the left point first.
    fn finish(self, from_left: bool, clock_offset: ClockOffset) -> OneWayMetrics {
        let (delay, time_series) = self.delays.finish(from_left, clock_offset);
        let [left, right] = &self.unmatched;
        let (first, second) = if from_left {
            (left, right)
        } else {
            (right, left)
        };
        OneWayMetrics {
            matched: self.matched,
            matched_bytes: self.matched_bytes,
            one_way_delay: delay,
            time_series,
            lost: first.missing_packets(),
            uncaptured: second.missing_packets(),
            outside_overlap: first.outside_overlap(second),
            lost_upstream_bytes: 0,
            reordered: self.reordered,
            ack_spacing: self.spacing.finish(from_left),
        }
    }
}

/// Orders two times by point: `here` is that of `side`, `there` that of the other point.
fn left_right(side: Side, here: u64, there: u64) -> [u64; 2] {
    match side {
        Side::Left => [here, there],
        Side::Right => [there, here],
    }
}

/// Unwraps `number` near the highest number so far, and updates that.
fn unwrap_number(highest: &mut Option<u64>, number: u32) -> u64 {
    let unwrapped = match *highest {
        Some(highest) => unwrap_near(highest, number),
        None => unwrap_first(number),
    };
    *highest = (*highest).max(Some(unwrapped));
    unwrapped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Flows, Settings, Sink,
        segment::{CapturePoint, Endpoint, FlowKey, NO_SCALE},
    };
    use longhaul_packet::tcp;

    const MSS: u32 = 1_000;
    /// First sequence number, close to the wrap-around.
    const FIRST: u32 = u32::MAX - 4_500;
    /// One-way delay, ns.
    const DELAY: u64 = 10_000_000;

    struct Last(Option<Flow>);

    impl Sink for Last {
        fn receive_bin(&mut self, _: u64, _: bool, _: usize, _: u64, _: &crate::bin::Bin) {}

        fn receive_flow(&mut self, flow: Flow) {
            self.0 = Some(flow);
        }
    }

    fn analysed(segments: &[Segment]) -> Flow {
        let (mut flows, mut last) = (Flows::new(Settings::default()), Last(None));
        let [low, high] = [1, 2].map(|last| Endpoint {
            address: [10, 0, 0, last].into(),
            port: 5_000,
        });
        let key = FlowKey { low, high };
        for (number, segment) in (0..).zip(segments) {
            flows.process_segment(number, CapturePoint(0), &key, segment, &mut last);
        }
        flows.finish(&mut last);
        last.0.unwrap()
    }

    /// Returns packet `number` of the client, sent at `at_us`.
    fn data(at_us: u64, number: u32) -> Segment {
        Segment {
            at_ns: at_us * 1_000,
            seq: FIRST.wrapping_add(number * MSS),
            ack: 1,
            payload: MSS,
            wire_bytes: MSS + 52,
            wire_segments: 1,
            window: u16::MAX,
            flags: tcp::ACK,
            from_low: true,
            window_scale: NO_SCALE,
            has_timestamps: true,
            tsval: (at_us / 1_000) as u32,
            ..Segment::default()
        }
    }

    fn later(segment: &Segment, ns: u64) -> Segment {
        Segment {
            at_ns: segment.at_ns + ns,
            ..*segment
        }
    }

    /// Compares the segments of both points, in order of time.
    fn compare(left: &[Segment], right: &[Segment]) -> TwoPointComparison {
        let mut all: Vec<_> = left.iter().map(|segment| (Side::Left, *segment)).collect();
        all.extend(right.iter().map(|segment| (Side::Right, *segment)));
        all.sort_by_key(|(_, segment)| segment.at_ns);
        let mut comparison = Comparison::new(true, ComparisonSettings::default());
        for (side, segment) in &all {
            comparison.process_segment(*side, segment);
        }
        comparison.finish(&analysed(left), &analysed(right))
    }

    #[test]
    fn counts_overtaken_packet_as_reordered() {
        let left: Vec<_> = (0..5).map(|n| data(u64::from(n) * 100, n)).collect();
        let mut right: Vec<_> = left.iter().map(|segment| later(segment, DELAY)).collect();
        right[2].at_ns += 250_000;
        right.sort_by_key(|segment| segment.at_ns);
        let metrics = compare(&left, &right).from_client;
        assert_eq!((metrics.matched, metrics.reordered), (5, 1));
        assert_eq!((metrics.lost.bytes, metrics.uncaptured.bytes), (0, 0));
        assert_eq!(
            (metrics.one_way_delay.min, metrics.one_way_delay.max),
            (DELAY, DELAY + 250_000)
        );
    }

    /// Both copies have the same timestamp, so only the delay shows which one arrived.
    #[test]
    fn matches_copy_with_usual_delay() {
        let mut left: Vec<_> = (0..10).map(|n| data(u64::from(n) * 100, n)).collect();
        let lost = left[4];
        left.push(later(&lost, 50_000_000));
        let arrived = left.iter().filter(|segment| **segment != lost);
        let right: Vec<_> = arrived.map(|segment| later(segment, DELAY)).collect();
        let metrics = compare(&left, &right).from_client;
        assert_eq!(
            (metrics.one_way_delay.min, metrics.one_way_delay.max),
            (DELAY, DELAY)
        );
        assert_eq!(
            (metrics.lost.segments, metrics.lost.bytes),
            (1, u64::from(MSS))
        );
    }

    #[test]
    fn distinguishes_uncaptured_from_lost_upstream() {
        let all: Vec<_> = (0..10).map(|n| data(u64::from(n) * 100, n)).collect();
        let is_captured = |segment: &&Segment| segment.seq != all[3].seq;
        let left: Vec<_> = all.iter().filter(is_captured).copied().collect();
        let right: Vec<_> = all.iter().map(|segment| later(segment, DELAY)).collect();
        let metrics = compare(&left, &right).from_client;
        assert_eq!(
            (
                metrics.uncaptured.segments,
                metrics.lost.segments,
                metrics.outside_overlap.segments
            ),
            (1, 0, 0)
        );
        // Retransmitted 300 ms later, and seen at both: the first copy never reached the left point.
        let mut left = left;
        left.push(data(300_000, 3));
        left.push(data(300_100, 10));
        let right: Vec<_> = left.iter().map(|segment| later(segment, DELAY)).collect();
        let metrics = compare(&left, &right).from_client;
        assert_eq!((metrics.uncaptured.segments, metrics.lost.segments), (0, 0));
        assert_eq!(metrics.lost_upstream_bytes, u64::from(MSS));
    }

    /// A lost packet with a FIN is one segment, not two.
    #[test]
    fn counts_lost_fin_with_its_data_segment() {
        let mut left: Vec<_> = (0..10).map(|n| data(u64::from(n) * 100, n)).collect();
        left[9].flags |= tcp::FIN;
        let ack = Segment {
            payload: 0,
            ..data(2_000, 11)
        };
        let right: Vec<_> = left[..9]
            .iter()
            .chain([&ack])
            .map(|s| later(s, DELAY))
            .collect();
        left.push(ack);
        let metrics = compare(&left, &right).from_client;
        assert_eq!((metrics.matched, metrics.lost.segments), (10, 1));
        assert_eq!(metrics.lost.bytes, u64::from(MSS) + 1);
    }

    /// Every second byte of a large packet arrives alone, so as many parts of it stay unmatched.
    #[test]
    fn bounds_unmatched_parts() {
        let settings = ComparisonSettings {
            packets_max: 100,
            ..ComparisonSettings::default()
        };
        let mut comparison = Comparison::new(true, settings);
        let whole = Segment {
            payload: 60_000,
            ..data(0, 0)
        };
        comparison.process_segment(Side::Left, &whole);
        for byte in 0..1_000 {
            let one = Segment {
                seq: whole.seq.wrapping_add(2 * byte),
                payload: 1,
                ..later(&whole, DELAY)
            };
            comparison.process_segment(Side::Right, &one);
            assert!(comparison.unmatched_parts() <= 2 * 100, "{byte}");
        }
    }

    /// As many packets as may be unmatched have the same number: comparing all pairs would take a thousand million
    /// steps.
    #[test]
    fn matches_similar_packets_in_bounded_time() {
        const COUNT: u32 = 1 << 15;
        let distinct_tsvals = |n: u32| Segment {
            tsval: n,
            ..data(u64::from(n), 0)
        };
        let equal_tsvals = |n: u32| Segment {
            tsval: 0,
            ..data(u64::from(n), 0)
        };
        let distinct_windows = |n: u32| Segment {
            payload: 0,
            window: n as u16,
            ..equal_tsvals(n)
        };
        let kinds: [&dyn Fn(u32) -> Segment; 3] =
            [&distinct_tsvals, &equal_tsvals, &distinct_windows];
        for segment in kinds {
            let left: Vec<_> = (0..COUNT).map(segment).collect();
            let mut comparison = Comparison::new(true, ComparisonSettings::default());
            let right = left.iter().map(|segment| later(segment, DELAY)).rev();
            left.iter()
                .for_each(|one| comparison.process_segment(Side::Left, one));
            right.for_each(|one| comparison.process_segment(Side::Right, &one));
            assert_eq!(comparison.unmatched_parts(), 0);
        }
    }

    /// Super-packets have 3, 3 and 1 segments at the left, and 2, 3 and 2 at the right.
    #[test]
    fn matches_bytes_across_segment_boundaries() {
        let join = |first: u32, count: u32| Segment {
            payload: count * MSS,
            wire_segments: count as u16,
            ..data(u64::from(first) * 100, first)
        };
        let left = [join(0, 3), join(3, 3), join(6, 1)];
        let right = [join(0, 2), join(2, 3), join(5, 2)].map(|segment| Segment {
            tsval: left[0].tsval,
            ..later(&segment, DELAY)
        });
        let metrics = compare(&left, &right).from_client;
        assert_eq!(metrics.matched_bytes, 7 * u64::from(MSS));
        assert_eq!(
            (
                metrics.lost.bytes,
                metrics.uncaptured.bytes,
                metrics.outside_overlap.bytes
            ),
            (0, 0, 0)
        );
    }
}
