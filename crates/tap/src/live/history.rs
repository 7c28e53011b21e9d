// SPDX-License-Identifier: MIT OR Apache-2.0
//! History of all flows over the last minute, sorted for display.

use super::flow_sampler::{FlowSample, Snapshot};
use longhaul_flow::{bin::Bin, segment::Endpoint};
use longhaul_units::{BitRate, Time};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, VecDeque},
};

/// Number of seconds kept for a flow. A flow that is silent for this time is removed.
pub(super) const HISTORY_SECONDS: usize = 60;

/// Sort key of the flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SortKey {
    Rate,
    Acks,
    Retransmissions,
    Rtt,
    InFlight,
}

/// Identity of a flow: interface, and number of the flow on that interface.
pub(super) type FlowId = (usize, u64);

/// Flows of the last minute. Each takes about 20 KB.
#[derive(Debug, Clone)]
pub(super) struct History {
    pub(super) interfaces: Vec<String>,
    /// Latest second, since 1970.
    pub(super) second: u64,
    flows: BTreeMap<FlowId, FlowHistory>,
    dropped: Vec<u64>,
}

/// Last minute of a flow.
#[derive(Debug, Clone)]
pub(super) struct FlowHistory {
    /// Client and server.
    endpoints: [Endpoint; 2],
    /// Upload and download bins, one pair a second; the last pair is that of `second`.
    bins: VecDeque<[Bin; 2]>,
    second: u64,
}

/// Flow for display: the direction that carries most of the data.
#[derive(Debug, Clone)]
pub(super) struct DisplayRow<'a> {
    pub(super) id: FlowId,
    pub(super) interface: &'a str,
    pub(super) sender: Endpoint,
    pub(super) receiver: Endpoint,
    /// Bin of the latest second; empty if the flow was silent.
    pub(super) now: Bin,
    /// Bins of the last minute, the oldest first; always [`HISTORY_SECONDS`] of them.
    pub(super) minute: Vec<Bin>,
}

impl SortKey {
    /// Returns the next key; the first follows the last.
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Rate => Self::Acks,
            Self::Acks => Self::Retransmissions,
            Self::Retransmissions => Self::Rtt,
            Self::Rtt => Self::InFlight,
            Self::InFlight => Self::Rate,
        }
    }

    fn value(self, bin: &Bin) -> u64 {
        match self {
            Self::Rate => bin.data_bytes,
            Self::Acks => bin.acks.into(),
            Self::Retransmissions => bin.retransmissions.into(),
            Self::Rtt => rtt_ns(bin).unwrap_or_default(),
            Self::InFlight => bin.in_flight_max,
        }
    }
}

/// Returns the mean round-trip time of a bin, ns.
pub(super) fn rtt_ns(bin: &Bin) -> Option<u64> {
    bin.rtt_sum_ns.checked_div(bin.rtt_samples.into())
}

/// Returns the data segments per pure ACK.
pub(super) fn packets_per_ack(bin: &Bin) -> Option<f64> {
    (bin.acks > 0).then(|| f64::from(bin.data_segments) / f64::from(bin.acks))
}

impl History {
    pub(super) fn new(interfaces: &[String]) -> Self {
        Self {
            interfaces: interfaces.to_vec(),
            second: 0,
            flows: BTreeMap::new(),
            dropped: vec![0; interfaces.len()],
        }
    }

    pub(super) fn add(&mut self, snapshot: Snapshot) {
        self.second = self.second.max(snapshot.second);
        self.dropped[snapshot.interface] = snapshot.dropped;
        for sample in snapshot.flows {
            let id = (snapshot.interface, sample.number);
            let history = self
                .flows
                .entry(id)
                .or_insert_with(|| FlowHistory::new(&sample));
            history.add(snapshot.second, sample.directions);
        }
        let silent_since = self.second.saturating_sub(HISTORY_SECONDS as u64);
        self.flows
            .retain(|_, history| history.second > silent_since);
    }

    /// Returns the packets that the kernel dropped on all interfaces.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Returns all flows, those with the greatest value of `sort_key` first, then by rate. Of equal flows, the one
    /// active most recently comes first, then the older one.
    pub(super) fn rows(&self, sort_key: SortKey) -> Vec<DisplayRow<'_>> {
        let mut rows: Vec<DisplayRow<'_>> = self.flows.iter().map(|flow| self.row(flow)).collect();
        rows.sort_by(|a, b| compare(a, b, sort_key));
        rows
    }

    fn row<'a>(&'a self, (id, history): (&FlowId, &FlowHistory)) -> DisplayRow<'a> {
        let direction = history.data_direction();
        let [client, server] = history.endpoints;
        let minute = history.minute(direction, self.second);
        DisplayRow {
            id: *id,
            interface: &self.interfaces[id.0],
            sender: [client, server][direction],
            receiver: [server, client][direction],
            now: minute.last().copied().unwrap_or_default(),
            minute,
        }
    }
}

fn compare(a: &DisplayRow<'_>, b: &DisplayRow<'_>, sort_key: SortKey) -> Ordering {
    let by = |sort_key: SortKey| sort_key.value(&b.now).cmp(&sort_key.value(&a.now));
    let recent = |row: &DisplayRow<'_>| row.minute.iter().rev().position(|bin| !bin.is_empty());
    by(sort_key)
        .then_with(|| by(SortKey::Rate))
        .then_with(|| recent(a).cmp(&recent(b)))
        .then_with(|| a.id.cmp(&b.id))
}

impl FlowHistory {
    fn new(sample: &FlowSample) -> Self {
        Self {
            endpoints: sample.endpoints,
            bins: VecDeque::new(),
            second: 0,
        }
    }

    /// Adds the bins of a second. Seconds come in order; the bins of a late one are added to the latest second.
    fn add(&mut self, second: u64, bins: [Bin; 2]) {
        let missed = second
            .saturating_sub(self.second)
            .min(HISTORY_SECONDS as u64);
        for _ in 0..missed {
            self.bins.push_back(Default::default());
        }
        while self.bins.len() > HISTORY_SECONDS {
            self.bins.pop_front();
        }
        self.second = self.second.max(second);
        if let Some(last) = self.bins.back_mut() {
            last[0].merge(&bins[0]);
            last[1].merge(&bins[1]);
        }
    }

    /// Returns the direction with most of the data: 0 is upload.
    fn data_direction(&self) -> usize {
        let bytes = |direction: usize| -> u64 {
            self.bins
                .iter()
                .map(|bins| bins[direction].data_bytes)
                .sum()
        };
        usize::from(bytes(1) > bytes(0))
    }

    /// Returns the bins of the last [`HISTORY_SECONDS`] seconds up to `second`.
    fn minute(&self, direction: usize, second: u64) -> Vec<Bin> {
        let silent = second
            .saturating_sub(self.second)
            .min(HISTORY_SECONDS as u64) as usize;
        let past = self.bins.iter().map(|bins| bins[direction]);
        let mut minute = vec![Bin::default(); HISTORY_SECONDS];
        minute.extend(past);
        minute.extend(vec![Bin::default(); silent]);
        minute.split_off(minute.len() - HISTORY_SECONDS)
    }
}

/// Formats the bytes of one second as a rate.
pub(super) fn format_rate(bytes: u64) -> String {
    BitRate::measured(bytes.saturating_mul(8))
}

pub(super) fn format_packets_per_ack(bin: &Bin) -> String {
    packets_per_ack(bin).map_or("–".to_owned(), |count| format!("{count:.1}"))
}

pub(super) fn format_rtt(bin: &Bin) -> String {
    rtt_ns(bin).map_or("–".to_owned(), |ns| Time::from_nanos(ns).to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::live) fn end(last: u8, port: u16) -> Endpoint {
        Endpoint {
            address: [10, 9, 0, last].into(),
            port,
        }
    }

    pub(in crate::live) fn sample(number: u64, bytes: u64, acks: u32) -> FlowSample {
        let upload = Bin {
            data_bytes: bytes,
            data_segments: (bytes / 1448) as u32,
            acked_bytes: bytes,
            acks,
            rtt_sum_ns: 26_000_000 * u64::from(acks),
            rtt_min_ns: if acks > 0 { 25_000_000 } else { 0 },
            rtt_samples: acks,
            ack_diff_max: if acks > 0 { 2_896 } else { 0 },
            in_flight_max: bytes / 40,
            ..Bin::default()
        };
        FlowSample {
            number,
            endpoints: [end(1, 40_000 + number as u16), end(2, 5201)],
            directions: [upload, Bin::default()],
        }
    }

    pub(in crate::live) fn snapshot(second: u64, flows: Vec<FlowSample>) -> Snapshot {
        Snapshot {
            interface: 0,
            second,
            flows,
            dropped: 0,
        }
    }

    fn numbers(history: &History, sort_key: SortKey) -> Vec<u64> {
        history.rows(sort_key).iter().map(|row| row.id.1).collect()
    }

    #[test]
    fn sorts_flows_by_key() {
        let mut history = History::new(&["eth0".to_owned()]);
        let flows = vec![sample(1, 500, 9), sample(2, 900, 3), sample(3, 500, 1)];
        history.add(snapshot(100, flows));
        assert_eq!(numbers(&history, SortKey::Rate), [2, 1, 3]);
        assert_eq!(numbers(&history, SortKey::Acks), [1, 2, 3]);
        let mut sort_key = SortKey::Rate;
        for _ in 0..5 {
            sort_key = sort_key.next();
        }
        assert_eq!(sort_key, SortKey::Rate);
    }

    #[test]
    fn shows_the_direction_with_data() {
        let mut history = History::new(&["eth0".to_owned()]);
        let mut download = sample(1, 5_000, 2);
        download.directions.reverse();
        history.add(snapshot(100, vec![download]));
        let rows = history.rows(SortKey::Rate);
        assert_eq!(
            (rows[0].sender, rows[0].now.data_bytes),
            (end(2, 5201), 5_000)
        );
    }

    #[test]
    fn removes_flows_after_a_silent_minute() {
        let mut history = History::new(&["eth0".to_owned()]);
        history.add(snapshot(100, vec![sample(1, 500, 1)]));
        history.add(snapshot(101, vec![]));
        history.add(snapshot(102, vec![sample(1, 700, 1)]));
        history.add(snapshot(103, vec![]));
        let rates: Vec<u64> = history.rows(SortKey::Rate)[0]
            .minute
            .iter()
            .map(|bin| bin.data_bytes)
            .collect();
        assert_eq!(rates.len(), HISTORY_SECONDS);
        assert_eq!(rates[HISTORY_SECONDS - 5..], [0, 500, 0, 700, 0]);
        history.add(snapshot(161, vec![]));
        assert_eq!(history.rows(SortKey::Rate).len(), 1);
        history.add(snapshot(162, vec![]));
        assert_eq!(history.rows(SortKey::Rate).len(), 0);
    }
}
