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
    record::{BothEnds, Clocks, Flow, Way},
    segment::{Segment, unwrap_first, unwrap_near},
};
use ack_spacing::AckSpacing;
pub use delays::Bounds;
use delays::{Delays, Line};
use longhaul_packet::tcp::{FIN, SYN};
use unmatched::{Bare, Found, Packet, Unmatched};

/// Where a packet was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
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
    ways: [Travel; 2],
}

impl Comparison {
    /// Nothing seen yet. `same_clock` says that both places' times are by one clock, as in one file.
    #[must_use]
    pub fn new(same_clock: bool, bounds: Bounds) -> Self {
        Self {
            same_clock,
            ways: [Travel::new(bounds), Travel::new(bounds)],
        }
    }

    /// Takes in a segment. Those of a place come in order of time, both places' about together.
    pub fn segment(&mut self, place: Place, segment: &Segment) {
        self.ways[usize::from(!segment.from_low)].segment(place, segment);
    }

    /// Parts of packets that wait for their like: at most [`Bounds::packets_max`] for each place and direction.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.ways.iter().map(Travel::waiting).sum()
    }

    /// Both captures are at their end; `left` and `right` are what the analysis of each says.
    #[must_use]
    pub fn finish(mut self, left: &Flow, right: &Flow) -> BothEnds {
        self.ways.iter_mut().for_each(Travel::give_up_all);
        let low_is_left = self.low_is_left(left, right);
        let (clocks, line) = self.clocks(low_is_left);
        let low_is_client = left.client <= left.server;
        let client_is_left = low_is_left == low_is_client;
        let near = |is_left: bool| if is_left { left } else { right };
        let [low, high] = self.ways;
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
        BothEnds {
            left: left.number,
            right: right.number,
            client_is_left,
            clocks,
            offset_ns: line.at(left.first_ns) as i64,
            skew_ppm: line.slope * 1e6,
            from_client: Way {
                lost_before_bytes: upload.unseen_retransmitted_bytes,
                ..from_client
            },
            from_server: Way {
                lost_before_bytes: download.unseen_retransmitted_bytes,
                ..from_server
            },
        }
    }

    /// Whether packets of the lesser end come to the left first: what right minus left is for them is
    /// a delay and the clocks' offset, for the other way the offset less a delay.
    fn low_is_left(&self, left: &Flow, right: &Flow) -> bool {
        let [low, high] = &self.ways;
        if let (Some(low), Some(high)) = (low.delays.mean(), high.delays.mean()) {
            return low > high;
        }
        if let (true, Some(low)) = (self.same_clock, low.delays.mean()) {
            return low > 0.0;
        }
        if let (true, Some(high)) = (self.same_clock, high.delays.mean()) {
            return high < 0.0;
        }
        let to_server = |flow: &Flow| flow.opening.syn_to_syn_ack_ns;
        let client_is_left = to_server(left) >= to_server(right);
        client_is_left == (left.client <= left.server)
    }

    /// The right's clock less the left's.
    fn clocks(&self, low_is_left: bool) -> (Clocks, Line) {
        if self.same_clock {
            return (Clocks::Same, Line::default());
        }
        let [low, high] = &self.ways;
        let (low, high) = (
            low.delays.least(low_is_left),
            high.delays.least(!low_is_left),
        );
        let sign = if low_is_left { 1.0 } else { -1.0 };
        match (low, high) {
            (Some(low), Some(high)) => (Clocks::Symmetric, Line::between(&low, &high, sign)),
            (Some(low), None) => (Clocks::Relative, Line::below(&low, sign)),
            (None, Some(high)) => (Clocks::Relative, Line::below(&high, -sign)),
            (None, None) => (Clocks::Relative, Line::default()),
        }
    }
}

/// Packets of one end.
#[derive(Debug)]
struct Travel {
    bounds: Bounds,
    /// Highest sequence number and acknowledgement so far.
    seq: Option<u64>,
    ack: Option<u64>,
    /// At the left, and at the right.
    places: [Unmatched; 2],
    delays: Delays,
    matched: u64,
    matched_bytes: u64,
    reordered: u64,
    spacing: AckSpacing,
}

impl Travel {
    fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            seq: None,
            ack: None,
            places: [Unmatched::default(), Unmatched::default()],
            delays: Delays::new(bounds),
            matched: 0,
            matched_bytes: 0,
            reordered: 0,
            spacing: AckSpacing::default(),
        }
    }

    fn segment(&mut self, place: Place, segment: &Segment) {
        let place = place as usize;
        let serial = self.places[place].next_serial();
        let marks = u64::from(segment.flags & SYN != 0) + u64::from(segment.flags & FIN != 0);
        let len = u64::from(segment.payload) + marks;
        let at_ns = segment.at_ns;
        let tsval = segment.has_timestamps.then_some(segment.tsval);
        if len > 0 {
            let start = near(&mut self.seq, segment.seq);
            let segments = u64::from(segment.wire_segments.max(1));
            let packet = Packet {
                end: start + len,
                at_ns,
                tsval,
                segment_bytes: u32::try_from(len.div_ceil(segments)).unwrap_or(u32::MAX),
            };
            self.data(place, serial, start, packet);
        } else {
            let bare = Bare {
                ack: near(&mut self.ack, segment.ack),
                tsval,
                window: segment.window,
                flags: segment.flags,
                sack: (segment.sack_blocks > 0).then_some(segment.sack[0]),
            };
            self.bare(place, serial, bare, at_ns);
        }
        for place in &mut self.places {
            place.give_up_beyond(self.bounds.packets_max);
        }
    }

    fn data(&mut self, place: usize, serial: u64, start: u64, packet: Packet) {
        let mut rest = start;
        let due = self.due_at_other(place, packet.at_ns);
        while let Some(found) = self.places[1 - place].take(rest, &packet, due) {
            if found.start > rest {
                let part = Packet {
                    end: found.start,
                    ..packet
                };
                self.places[place].wait(start, rest, serial, &part);
            }
            rest = found.end;
            self.note(place, serial, packet.at_ns, &found);
        }
        if rest < packet.end {
            self.places[place].wait(start, rest, serial, &packet);
        }
        self.places[place].queue(start, packet.tsval);
    }

    fn bare(&mut self, place: usize, serial: u64, bare: Bare, at_ns: u64) {
        match self.places[1 - place].take_bare(&bare) {
            Some(found) => {
                self.note(place, serial, at_ns, &found);
                let times = in_order(place, at_ns, found.at_ns);
                self.spacing.note(times);
            }
            None => self.places[place].wait_bare(serial, bare, at_ns),
        }
        self.places[place].queue_bare(bare);
    }

    /// When the other place will have seen, or saw, what comes here at `at_ns`.
    fn due_at_other(&self, place: usize, at_ns: u64) -> Option<u64> {
        let recent = self.delays.recent()?;
        let shift = if place == Place::Left as usize {
            recent
        } else {
            recent.saturating_neg()
        };
        Some(at_ns.saturating_add_signed(shift))
    }

    fn note(&mut self, place: usize, serial: u64, at_ns: u64, found: &Found) {
        let [left, right] = in_order(place, at_ns, found.at_ns);
        self.delays.note(left, right);
        self.matched += 1;
        self.matched_bytes += found.end - found.start;
        let overtaken = [
            self.places[place].matched(serial),
            self.places[1 - place].matched(found.serial),
        ];
        self.reordered += u64::from(overtaken[0] || overtaken[1]);
    }

    fn waiting(&self) -> usize {
        self.places.iter().map(Unmatched::waiting).sum()
    }

    fn give_up_all(&mut self) {
        for place in &mut self.places {
            place.give_up_beyond(0);
        }
    }

    /// What is known; `from_left` says that they come to the left first.
    fn finish(self, from_left: bool, line: Line) -> Way {
        let (delay, course) = self.delays.finish(from_left, line);
        let [left, right] = &self.places;
        let (here, there) = if from_left {
            (left, right)
        } else {
            (right, left)
        };
        Way {
            matched: self.matched,
            matched_bytes: self.matched_bytes,
            delay,
            course,
            lost: here.missing(),
            missed: there.missing(),
            at_edges: here.edges(there),
            lost_before_bytes: 0,
            reordered: self.reordered,
            ack_spacing: self.spacing.finish(from_left),
        }
    }
}

fn in_order(place: usize, here: u64, there: u64) -> [u64; 2] {
    match place {
        0 => [here, there],
        _ => [there, here],
    }
}

/// `number` without wrap-around.
fn near(highest: &mut Option<u64>, number: u32) -> u64 {
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
        segment::{Endpoint, FlowKey, NO_SCALE, Vantage},
    };
    use longhaul_packet::tcp;

    const MSS: u32 = 1_000;
    /// Soon wraps.
    const FIRST: u32 = u32::MAX - 4_500;
    const DELAY: u64 = 10_000_000;

    struct Last(Option<Flow>);

    impl Sink for Last {
        fn bin(&mut self, _: u64, _: bool, _: usize, _: u64, _: &crate::series::Bin) {}

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
            flows.segment(number, Vantage(0), &key, segment, &mut last);
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
    fn compare(left: &[Segment], right: &[Segment]) -> BothEnds {
        let mut all: Vec<_> = left.iter().map(|segment| (Place::Left, *segment)).collect();
        all.extend(right.iter().map(|segment| (Place::Right, *segment)));
        all.sort_by_key(|(_, segment)| segment.at_ns);
        let mut comparison = Comparison::new(true, Bounds::default());
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
        assert_eq!((way.lost.bytes, way.missed.bytes), (0, 0));
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
                way.missed.segments,
                way.lost.segments,
                way.at_edges.segments
            ),
            (1, 0, 0)
        );
        // Sent again 300 ms later, and seen at both: the first one never came to the left.
        let mut left = left;
        left.push(data(300_000, 3));
        left.push(data(300_100, 10));
        let right: Vec<_> = left.iter().map(|segment| later(segment, DELAY)).collect();
        let way = compare(&left, &right).from_client;
        assert_eq!((way.missed.segments, way.lost.segments), (0, 0));
        assert_eq!(way.lost_before_bytes, u64::from(MSS));
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
        let bounds = Bounds {
            packets_max: 100,
            ..Bounds::default()
        };
        let mut comparison = Comparison::new(true, bounds);
        let whole = Segment {
            payload: 60_000,
            ..data(0, 0)
        };
        comparison.segment(Place::Left, &whole);
        for byte in 0..1_000 {
            let one = Segment {
                seq: whole.seq.wrapping_add(2 * byte),
                payload: 1,
                ..later(&whole, DELAY)
            };
            comparison.segment(Place::Right, &one);
            assert!(comparison.waiting() <= 2 * 100, "{byte}");
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
            let mut comparison = Comparison::new(true, Bounds::default());
            let right = left.iter().map(|segment| later(segment, DELAY)).rev();
            left.iter()
                .for_each(|one| comparison.segment(Place::Left, one));
            right.for_each(|one| comparison.segment(Place::Right, &one));
            assert_eq!(comparison.waiting(), 0);
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
            (way.lost.bytes, way.missed.bytes, way.at_edges.bytes),
            (0, 0, 0)
        );
    }
}
