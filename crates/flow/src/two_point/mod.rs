// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection seen at two places: which packet is which, how long it took in between, and what
//! did not come.
//!
//! ```text
//! segments at the left ──┐  Travel, one a direction:
//!                        ├─ what one place has and the other not yet (unmatched)
//! segments at the right ─┘  differences of times (delays), distances of ACKs (ack_spacing)
//! ```
//!
//! Data are matched byte by byte, because a super-packet here is many segments there, and only with
//! the same TSval (RFC 7323 §3), which tells a retransmission from its original. Where more than one
//! would do (no time stamps, or the same millisecond), that is taken whose delay is nearest to those
//! just before. Packets without payload match if number, window, time stamp, flags and first SACK
//! block are the same, the first sent first. Nothing that lies between the places may change sequence
//! numbers or time stamps, as some firewalls do: nothing would match.
//!
//! Which place is nearer to the client need not be known: delays of a packet from left to right and
//! of one from right to left differ in sign. Two clocks differ by an offset and a rate: the rate is
//! that of the least delays over time (`clock_skew.rs`), the offset is taken so that the least
//! delays of both ways are equal, which no measurement can know better.

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
use unmatched::{EmptySegment, MatchedPart, Packet, Unmatched};

/// Where a packet was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// At the left.
    Left,
    /// At the right.
    Right,
}

/// Compares one connection at two places.
#[derive(Debug)]
pub struct Comparison {
    same_clock: bool,
    /// From the lesser end, and from the greater.
    directions: [DirectionMatcher; 2],
}

impl Comparison {
    /// Nothing seen yet. `same_clock` says that both places' times are by one clock, as in one file.
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

    /// Takes in a segment. Those of a place come in order of time, both places' about together.
    pub fn segment(&mut self, side: Side, segment: &Segment) {
        self.directions[usize::from(!segment.from_low)].segment(side, segment);
    }

    /// Parts of packets that wait for their like: at most [`ComparisonSettings::packets_max`] for each place and direction.
    #[must_use]
    pub fn unmatched_parts(&self) -> usize {
        self.directions
            .iter()
            .map(DirectionMatcher::unmatched_parts)
            .sum()
    }

    /// Both captures are at their end; `left` and `right` are what the analysis of each says.
    #[must_use]
    pub fn finish(mut self, left: &Flow, right: &Flow) -> TwoPointComparison {
        self.directions
            .iter_mut()
            .for_each(DirectionMatcher::expire_all);
        let low_is_left = self.low_is_left(left, right);
        let (clocks, line) = self.clock_offset(low_is_left);
        let low_is_client = left.client <= left.server;
        let client_is_left = low_is_left == low_is_client;
        let near = |is_left: bool| if is_left { left } else { right };
        let [low, high] = self.directions;
        let [low, high] = [
            low.finish(low_is_left, line),
            high.finish(!low_is_left, line),
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
            offset_ns: line.at(left.first_ns) as i64,
            skew_ppm: line.slope * 1e6,
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

    /// Whether packets of the lesser end come to the left first: what right minus left is for them is
    /// a delay and the clocks' offset, for the other way the offset less a delay.
    fn low_is_left(&self, left: &Flow, right: &Flow) -> bool {
        let [low, high] = &self.directions;
        if let (Some(low), Some(high)) = (low.delays.mean(), high.delays.mean()) {
            return low > high;
        }
        if let (true, Some(low)) = (self.same_clock, low.delays.mean()) {
            return low > 0.0;
        }
        if let (true, Some(high)) = (self.same_clock, high.delays.mean()) {
            return high < 0.0;
        }
        let to_server = |flow: &Flow| flow.handshake.syn_to_syn_ack_ns;
        let client_is_left = to_server(left) >= to_server(right);
        client_is_left == (left.client <= left.server)
    }

    /// The right's clock less the left's.
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
            (Some(low), Some(high)) => (Clocks::Symmetric, ClockOffset::between(&low, &high, sign)),
            (Some(low), None) => (Clocks::Relative, ClockOffset::below(&low, sign)),
            (None, Some(high)) => (Clocks::Relative, ClockOffset::below(&high, -sign)),
            (None, None) => (Clocks::Relative, ClockOffset::default()),
        }
    }
}

/// Packets of one end.
#[derive(Debug)]
struct DirectionMatcher {
    settings: ComparisonSettings,
    /// Highest sequence number and acknowledgement so far.
    seq: Option<u64>,
    ack: Option<u64>,
    /// At the left, and at the right.
    sides: [Unmatched; 2],
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
            seq: None,
            ack: None,
            sides: [Unmatched::default(), Unmatched::default()],
            delays: Delays::new(settings),
            matched: 0,
            matched_bytes: 0,
            reordered: 0,
            spacing: AckSpacing::default(),
        }
    }

    fn segment(&mut self, side: Side, segment: &Segment) {
        let place = side as usize;
        let serial = self.sides[place].next_serial();
        let marks = u64::from(segment.flags & SYN != 0) + u64::from(segment.flags & FIN != 0);
        let len = u64::from(segment.payload) + marks;
        let at_ns = segment.at_ns;
        let tsval = segment.has_timestamps.then_some(segment.tsval);
        if len > 0 {
            let start = unwrap(&mut self.seq, segment.seq);
            let segments = u64::from(segment.wire_segments.max(1));
            let packet = Packet {
                end: start + len,
                at_ns,
                tsval,
                segment_bytes: u32::try_from(len.div_ceil(segments)).unwrap_or(u32::MAX),
            };
            self.match_data(place, serial, start, packet);
        } else {
            let bare = EmptySegment {
                ack: unwrap(&mut self.ack, segment.ack),
                tsval,
                window: segment.window,
                flags: segment.flags,
                sack: (segment.sack_blocks > 0).then_some(segment.sack[0]),
            };
            self.match_empty(place, serial, bare, at_ns);
        }
        for place in &mut self.sides {
            place.expire_beyond(self.settings.packets_max);
        }
    }

    fn match_data(&mut self, side: usize, serial: u64, start: u64, packet: Packet) {
        let mut rest = start;
        let due = self.expected_at_other(side, packet.at_ns);
        while let Some(found) = self.sides[1 - side].take(rest, &packet, due) {
            if found.start > rest {
                let part = Packet {
                    end: found.start,
                    ..packet
                };
                self.sides[side].insert(start, rest, serial, &part);
            }
            rest = found.end;
            self.record_match(side, serial, packet.at_ns, &found);
        }
        if rest < packet.end {
            self.sides[side].insert(start, rest, serial, &packet);
        }
        self.sides[side].queue(start, packet.tsval);
    }

    fn match_empty(&mut self, side: usize, serial: u64, bare: EmptySegment, at_ns: u64) {
        match self.sides[1 - side].take_empty(&bare) {
            Some(found) => {
                self.record_match(side, serial, at_ns, &found);
                let times = left_right(side, at_ns, found.at_ns);
                self.spacing.record(times);
            }
            None => self.sides[side].insert_empty(serial, bare, at_ns),
        }
        self.sides[side].queue_empty(bare);
    }

    /// When the other place will have seen, or saw, what comes here at `at_ns`.
    fn expected_at_other(&self, side: usize, at_ns: u64) -> Option<u64> {
        let recent = self.delays.recent()?;
        let shift = if side == Side::Left as usize {
            recent
        } else {
            recent.saturating_neg()
        };
        Some(at_ns.saturating_add_signed(shift))
    }

    fn record_match(&mut self, side: usize, serial: u64, at_ns: u64, found: &MatchedPart) {
        let [left, right] = left_right(side, at_ns, found.at_ns);
        self.delays.record(left, right);
        self.matched += 1;
        self.matched_bytes += found.end - found.start;
        let overtaken = [
            self.sides[side].matched(serial),
            self.sides[1 - side].matched(found.serial),
        ];
        self.reordered += u64::from(overtaken[0] || overtaken[1]);
    }

    fn unmatched_parts(&self) -> usize {
        self.sides.iter().map(Unmatched::unmatched_parts).sum()
    }

    fn expire_all(&mut self) {
        for place in &mut self.sides {
            place.expire_beyond(0);
        }
    }

    /// What is known; `from_left` says that they come to the left first.
    fn finish(self, from_left: bool, line: ClockOffset) -> OneWayMetrics {
        let (delay, course) = self.delays.finish(from_left, line);
        let [left, right] = &self.sides;
        let (here, there) = if from_left {
            (left, right)
        } else {
            (right, left)
        };
        OneWayMetrics {
            matched: self.matched,
            matched_bytes: self.matched_bytes,
            delay,
            time_series: course,
            lost: here.missing(),
            uncaptured: there.missing(),
            outside_overlap: here.outside_overlap(there),
            lost_upstream_bytes: 0,
            reordered: self.reordered,
            ack_spacing: self.spacing.finish(from_left),
        }
    }
}

fn left_right(side: usize, here: u64, there: u64) -> [u64; 2] {
    match side {
        0 => [here, there],
        _ => [there, here],
    }
}

/// `number` without wrap-around.
fn unwrap(highest: &mut Option<u64>, number: u32) -> u64 {
    let place = match *highest {
        Some(highest) => unwrap_near(highest, number),
        None => unwrap_first(number),
    };
    *highest = (*highest).max(Some(place));
    place
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
    /// Soon wraps.
    const FIRST: u32 = u32::MAX - 4_500;
    const DELAY: u64 = 10_000_000;

    struct Last(Option<Flow>);

    impl Sink for Last {
        fn bin(&mut self, _: u64, _: bool, _: usize, _: u64, _: &crate::bin::Bin) {}

        fn flow(&mut self, flow: Flow) {
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
            flows.segment(number, CapturePoint(0), &key, segment, &mut last);
        }
        flows.finish(&mut last);
        last.0.unwrap()
    }

    /// Packet `number` of the client's, sent at `at_us`.
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

    /// Both places' segments, in order of time.
    fn compare(left: &[Segment], right: &[Segment]) -> TwoPointComparison {
        let mut all: Vec<_> = left.iter().map(|segment| (Side::Left, *segment)).collect();
        all.extend(right.iter().map(|segment| (Side::Right, *segment)));
        all.sort_by_key(|(_, segment)| segment.at_ns);
        let mut comparison = Comparison::new(true, ComparisonSettings::default());
        for (place, segment) in &all {
            comparison.segment(*place, segment);
        }
        comparison.finish(&analysed(left), &analysed(right))
    }

    #[test]
    fn a_packet_that_is_overtaken_is_reordered_and_not_lost() {
        let left: Vec<_> = (0..5).map(|n| data(u64::from(n) * 100, n)).collect();
        let mut right: Vec<_> = left.iter().map(|segment| later(segment, DELAY)).collect();
        right[2].at_ns += 250_000;
        right.sort_by_key(|segment| segment.at_ns);
        let way = compare(&left, &right).from_client;
        assert_eq!((way.matched, way.reordered), (5, 1));
        assert_eq!((way.lost.bytes, way.uncaptured.bytes), (0, 0));
        assert_eq!((way.delay.min, way.delay.max), (DELAY, DELAY + 250_000));
    }

    /// The second time stamp is the first's, so only the delay tells which one came.
    #[test]
    fn of_two_that_look_alike_the_one_with_the_usual_delay_came() {
        let mut left: Vec<_> = (0..10).map(|n| data(u64::from(n) * 100, n)).collect();
        let lost = left[4];
        left.push(later(&lost, 50_000_000));
        let came = left.iter().filter(|segment| **segment != lost);
        let right: Vec<_> = came.map(|segment| later(segment, DELAY)).collect();
        let way = compare(&left, &right).from_client;
        assert_eq!((way.delay.min, way.delay.max), (DELAY, DELAY));
        assert_eq!((way.lost.segments, way.lost.bytes), (1, u64::from(MSS)));
    }

    #[test]
    fn what_only_the_far_place_saw_was_missed_and_what_none_saw_was_lost_before() {
        let all: Vec<_> = (0..10).map(|n| data(u64::from(n) * 100, n)).collect();
        let missed = |segment: &&Segment| segment.seq != all[3].seq;
        let left: Vec<_> = all.iter().filter(missed).copied().collect();
        let right: Vec<_> = all.iter().map(|segment| later(segment, DELAY)).collect();
        let way = compare(&left, &right).from_client;
        assert_eq!(
            (
                way.uncaptured.segments,
                way.lost.segments,
                way.outside_overlap.segments
            ),
            (1, 0, 0)
        );
        // Sent again 300 ms later, and seen at both: the first one never came to the left.
        let mut left = left;
        left.push(data(300_000, 3));
        left.push(data(300_100, 10));
        let right: Vec<_> = left.iter().map(|segment| later(segment, DELAY)).collect();
        let way = compare(&left, &right).from_client;
        assert_eq!((way.uncaptured.segments, way.lost.segments), (0, 0));
        assert_eq!(way.lost_upstream_bytes, u64::from(MSS));
    }

    /// A packet with a FIN is one segment and not two, when it is lost.
    #[test]
    fn a_fin_makes_no_second_segment() {
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
        let way = compare(&left, &right).from_client;
        assert_eq!((way.matched, way.lost.segments), (10, 1));
        assert_eq!(way.lost.bytes, u64::from(MSS) + 1);
    }

    /// Each second byte of a large packet comes alone: what is left are as many parts.
    #[test]
    fn parts_are_bounded_as_packets_are() {
        let settings = ComparisonSettings {
            packets_max: 100,
            ..ComparisonSettings::default()
        };
        let mut comparison = Comparison::new(true, settings);
        let whole = Segment {
            payload: 60_000,
            ..data(0, 0)
        };
        comparison.segment(Side::Left, &whole);
        for byte in 0..1_000 {
            let one = Segment {
                seq: whole.seq.wrapping_add(2 * byte),
                payload: 1,
                ..later(&whole, DELAY)
            };
            comparison.segment(Side::Right, &one);
            assert!(comparison.unmatched_parts() <= 2 * 100, "{byte}");
        }
    }

    /// As many packets as may wait, all with the same number: looking at each of them for each that comes would take a
    /// thousand million looks.
    #[test]
    fn packets_that_are_much_alike_are_matched_without_looking_at_all() {
        const COUNT: u32 = 1 << 15;
        let by_stamp = |n: u32| Segment {
            tsval: n,
            ..data(u64::from(n), 0)
        };
        let alike = |n: u32| Segment {
            tsval: 0,
            ..data(u64::from(n), 0)
        };
        let by_window = |n: u32| Segment {
            payload: 0,
            window: n as u16,
            ..alike(n)
        };
        let kinds: [&dyn Fn(u32) -> Segment; 3] = [&by_stamp, &alike, &by_window];
        for segment in kinds {
            let left: Vec<_> = (0..COUNT).map(segment).collect();
            let mut comparison = Comparison::new(true, ComparisonSettings::default());
            let right = left.iter().map(|segment| later(segment, DELAY)).rev();
            left.iter()
                .for_each(|one| comparison.segment(Side::Left, one));
            right.for_each(|one| comparison.segment(Side::Right, &one));
            assert_eq!(comparison.unmatched_parts(), 0);
        }
    }

    /// Three at the left in one super-packet, at the right two and one, or other pieces altogether.
    #[test]
    fn bytes_are_matched_however_they_are_cut() {
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
        let way = compare(&left, &right).from_client;
        assert_eq!(way.matched_bytes, 7 * u64::from(MSS));
        assert_eq!(
            (
                way.lost.bytes,
                way.uncaptured.bytes,
                way.outside_overlap.bytes
            ),
            (0, 0, 0)
        );
    }
}
