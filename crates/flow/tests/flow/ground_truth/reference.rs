// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reference time series: computed from segments in the simplest way, with unbounded memory.

use longhaul_flow::{bin::Bin, path_delay::PathDelay, segment::Segment, time_series::TimeSeries};
use std::collections::BTreeMap;

/// Returns the time series of the client's data and the ACKs for it.
pub(crate) fn time_series(segments: &[Segment], width_ns: u64) -> TimeSeries {
    let mut series = TimeSeries::new(segments[0].at_ns, width_ns);
    let mut flow = Reference::default();
    for segment in segments.iter().filter(|segment| segment.flags & 0x02 == 0) {
        let bin = if segment.from_low {
            flow.data(segment)
        } else {
            flow.ack(segment)
        };
        series.add(segment.at_ns, &bin, usize::MAX);
    }
    series
}

#[derive(Default)]
struct Reference {
    /// First sequence number; unwrapped numbers are relative to it.
    origin: Option<u32>,
    next: u64,
    una: u64,
    window: Option<u64>,
    path_delay: PathDelay,
    /// Send time of the segment that ends at each number; `None` if it was retransmitted.
    unacked: BTreeMap<u64, Option<u64>>,
}

impl Reference {
    fn unwrap_number(&mut self, seq: u32) -> u64 {
        let origin = *self.origin.get_or_insert(seq);
        let low = seq.wrapping_sub(origin);
        let near = self.next.max(self.una) as i64;
        let step = low.wrapping_sub(near as u32) as i32;
        (near + i64::from(step)) as u64
    }

    fn data(&mut self, segment: &Segment) -> Bin {
        let from = self.unwrap_number(segment.seq);
        let payload = u64::from(segment.payload);
        if payload == 0 {
            return Bin::default();
        }
        let end = from + payload;
        let retransmitted = end <= self.next;
        let sent = (!retransmitted).then_some(segment.at_ns);
        self.unacked.insert(end, sent);
        self.next = self.next.max(end);
        let is_full = self
            .window
            .is_some_and(|window| self.una + window < end + 1448);
        Bin {
            data_bytes: payload,
            data_segments: u32::from(segment.wire_segments),
            retransmitted_bytes: if retransmitted { payload } else { 0 },
            retransmissions: u32::from(retransmitted),
            window_full: u32::from(is_full),
            in_flight_max: self.next - self.una,
            ..Bin::default()
        }
    }

    fn ack(&mut self, segment: &Segment) -> Bin {
        let ack = self.unwrap_number(segment.ack);
        let newly = ack.saturating_sub(self.una);
        let sent = self.unacked.get(&ack).copied().flatten();
        self.unacked = self.unacked.split_off(&(ack + 1));
        self.una += newly;
        let window = u64::from(segment.window) << 14;
        self.window = Some(window);
        let rtt = sent.filter(|_| newly > 0).map(|sent| segment.at_ns - sent);
        Bin {
            acked_bytes: newly,
            acks: 1,
            advancing_acks: u32::from(newly > 0),
            duplicate_acks: u32::from(newly == 0),
            sacks: u32::from(segment.sack_blocks > 0),
            ack_diff_max: newly as u32,
            rtt_min_ns: rtt.unwrap_or(0),
            rtt_max_ns: rtt.unwrap_or(0),
            rtt_sum_ns: rtt.unwrap_or(0),
            rtt_samples: u32::from(rtt.is_some()),
            window_min: Some(window as u32),
            ack_path_delay_ns: Some(self.path_delay.delay_ns(segment)),
            ..Bin::default()
        }
    }
}
