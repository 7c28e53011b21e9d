// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection at one capture point, from its first segment to its last.

mod bins;
mod copies;
mod direction;
mod handshake;
mod sequence_space;

use crate::ecn::negotiation::EcnNegotiation;
use crate::memory_budget::MemoryBudget;
use crate::packet_windows::SAMPLE_EVERY;
use crate::record::{Flow, SynOptions, Termination, WindowTrigger};
use crate::segment::{
    CapturePoint, CapturedSegment, Endpoint, FlowKey, NO_SCALE, Segment, WINDOW_MAX,
};
use crate::time_series::bin::Bin;
use crate::{Sink, verdict};
use bins::Bins;
use copies::CopyFilter;
use direction::Direction;
use handshake::HandshakeTracker;
use longhaul_packet::capture::{EmulatorRecord, Verdict};
use longhaul_packet::tcp::{ACK, FIN, RST, SYN};

/// Silence after which equal sequence numbers may belong to a new connection: twice the maximum segment lifetime as
/// systems have it (Linux: `TCP_TIMEWAIT_LEN`, 60 s; RFC 9293 requires four minutes).
const REUSE_NS: u64 = 120_000_000_000;
/// Least time by which packets come before an earlier one if the capture's clock was set back, ns. Several queues disorder
/// packets by less; ntpd sets a clock that is off by 128 ms or more.
const CLOCK_STEP_NS: u64 = 100_000_000;
/// Time of a packet whose own is wrong, for the detection of clock steps: later than all others.
const TIME_UNKNOWN: u64 = u64::MAX;
/// Largest window scale (RFC 7323 §2.3).
const SHIFT_MAX: u8 = 14;
/// Least port that Linux gives to clients (`net.ipv4.ip_local_port_range`). Most other systems begin at 49,152 (RFC 6335
/// §6).
const EPHEMERAL_PORT_MIN: u16 = 32_768;

/// State of a connection. In arrays of two, 0 is the client or the upload, 1 the server or the download.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) capture_point: CapturePoint,
    pub(super) key: FlowKey,
    /// Number of its first packet.
    pub(super) number: u64,
    client_is_low: bool,
    first_ns: u64,
    last_ns: u64,
    /// Times of the last packet and of the one before it, ns, or [`TIME_UNKNOWN`].
    previous_ns: [u64; 2],
    clock_steps_back: u32,
    handshake: HandshakeTracker,
    fin_seen: [bool; 2],
    reset: Option<Termination>,
    directions: [Direction; 2],
    copy_filter: CopyFilter,
    /// Number of packets at which packet windows are updated next.
    next_window_update: u64,
    bins: Bins,
    /// Memory that the budget counts for it, bytes.
    accounted_bytes: usize,
}

impl Connection {
    /// Creates a connection whose first segment is that of `item`, which is processed later.
    pub(super) fn new(item: &CapturedSegment, budget: &mut MemoryBudget) -> Self {
        let segment = &item.segment;
        let mut connection = Self {
            capture_point: item.capture_point,
            key: item.key,
            number: item.number,
            client_is_low: is_client_low(&item.key, segment),
            first_ns: segment.at_ns,
            last_ns: segment.at_ns,
            previous_ns: [segment.at_ns; 2],
            clock_steps_back: 0,
            handshake: HandshakeTracker::default(),
            fin_seen: [false; 2],
            reset: None,
            directions: [Direction::default(), Direction::default()],
            copy_filter: CopyFilter::default(),
            next_window_update: 0,
            bins: Bins::new(segment.at_ns, &budget.settings),
            accounted_bytes: 0,
        };
        connection.update_packet_windows(0, budget);
        connection
    }

    /// Asks for a slot for packet windows, which only the largest flows have, and triggers a window: at the beginning,
    /// and a sample now and then.
    #[cold]
    fn update_packet_windows(&mut self, packets: u64, budget: &mut MemoryBudget) {
        let [up, down] = &mut self.directions;
        (budget.packet_windows).claim_slot(
            self.number,
            packets,
            [&mut up.window_handle, &mut down.window_handle],
        );
        let trigger = match packets {
            0 => WindowTrigger::Beginning,
            _ => WindowTrigger::Sample,
        };
        budget
            .packet_windows
            .open_window(&mut up.window_handle, trigger);
        budget
            .packet_windows
            .open_window(&mut down.window_handle, trigger);
        self.next_window_update = packets + SAMPLE_EVERY;
    }

    /// Reports its memory, without its tables, to the budget.
    #[inline]
    pub(super) fn update_memory_use(&mut self, budget: &mut MemoryBudget) {
        let [up, down] = &self.directions;
        let distributions = up.distributions_bytes() + down.distributions_bytes();
        let now = size_of::<Self>() + self.bins.open_bins_bytes() + distributions;
        budget.resize_flow(self.accounted_bytes, now);
        self.accounted_bytes = now;
    }

    /// Returns whether `segment` begins another connection between the same ports. It is a SYN of an end that sent a
    /// different SYN before, or data without a SYN. Or it is the same SYN, but so late that it is not a retransmission.
    /// A SYN/ACK before the end of the handshake does not begin another one. A server without state (SYN cookies, RFC
    /// 4987 §3.6), or one that lost its state, may choose another number each time. One that still has an old
    /// connection answers for that first (RFC 9293 §3.5.1).
    #[inline]
    pub(super) fn is_reused_by(&self, segment: &Segment) -> bool {
        if segment.flags & (SYN | RST) != SYN {
            return false;
        }
        let send_state = &self.directions[self.end_of(segment)].send_state;
        send_state.data.packets > 0
            && (self.is_silent(segment.at_ns)
                || send_state.isn != Some(segment.seq)
                    && !self.is_new_syn_ack(segment)
                    && !self.is_late_syn(segment))
    }

    /// Returns whether a SYN comes after its own connection's data, in a capture with packets out of order. Its end
    /// sent no SYN before. Its number is the one before the first seen, or it is older than all else and its number is
    /// less.
    fn is_late_syn(&self, syn: &Segment) -> bool {
        let send_state = &self.directions[self.end_of(syn)].send_state;
        let behind = (send_state.next as u32).wrapping_sub(syn.seq);
        let is_older = syn.at_ns < self.first_ns && (1..=WINDOW_MAX as u32).contains(&behind);
        let begins = syn.seq.wrapping_add(1) == send_state.origin as u32;
        send_state.isn.is_none() && (begins || is_older)
    }

    /// Returns whether `segment` is a SYN/ACK while a SYN awaits one, or another SYN/ACK for the same SYN.
    fn is_new_syn_ack(&self, segment: &Segment) -> bool {
        let end = self.end_of(segment);
        let other = &self.directions[1 - end];
        let syn = other.send_state.isn;
        let answers = syn.is_some_and(|isn| segment.ack == isn.wrapping_add(1));
        is_syn_ack(segment) && (other.awaits_syn_ack() || self.handshake.awaits(1 - end) && answers)
    }

    /// Returns whether the number of the SYN/ACK `segment` is unrelated to those that its end sent before.
    fn restarts_sequence(&self, segment: &Segment) -> bool {
        let send_state = &self.directions[self.end_of(segment)].send_state;
        send_state.next != 0
            && send_state.isn != Some(segment.seq)
            && self.is_new_syn_ack(segment)
            && !self.is_late_syn(segment)
    }

    /// Returns whether the connection was silent for longer than packets live.
    pub(super) fn is_silent(&self, at_ns: u64) -> bool {
        at_ns.saturating_sub(self.last_ns) > REUSE_NS
    }

    /// Returns whether both ends are closed, or one reset the connection.
    pub(super) fn is_closed(&self) -> bool {
        self.fin_seen == [true; 2] || self.reset.is_some()
    }

    #[inline]
    fn end_of(&self, segment: &Segment) -> usize {
        usize::from(segment.from_low != self.client_is_low)
    }

    /// Processes a segment. Returns false if it is a copy of one before, which only counts as a copy.
    #[inline(always)]
    pub(super) fn process(
        &mut self,
        segment: &Segment,
        budget: &mut MemoryBudget,
        sink: &mut impl Sink,
    ) -> bool {
        let end = self.end_of(segment);
        if self.copy_filter.is_copy(segment, end, budget) {
            return false;
        }
        self.close_bins(segment.at_ns, budget, sink);
        self.last_ns = self.last_ns.max(segment.at_ns);
        let [last_ns, before_ns] = self.previous_ns;
        let mut time_ns = segment.at_ns;
        if is_set_back(time_ns, last_ns)
            || is_set_back(last_ns, before_ns)
            || segment.time_is_estimated
        {
            time_ns = self.process_odd_time(segment);
        }
        self.previous_ns = [time_ns, last_ns];
        if segment.flags & (SYN | FIN | RST) != 0 || self.handshake.awaits(end) {
            self.update_state(segment, end);
        }
        let [up, down] = &mut self.directions;
        let [up_bin, down_bin] = self.bins.current();
        let (own, own_bin, other, other_bin) = match end {
            0 => (up, up_bin, down, down_bin),
            _ => (down, down_bin, up, up_bin),
        };
        if let Some(record) = segment.emulator_record {
            count_emulator_record(record, own_bin);
        }
        let segments = own.process_sent(segment, &other.round_trips, budget, own_bin);
        if segment.flags & (ACK | RST) == ACK {
            other.process_ack(segment, budget, other_bin);
        }
        if own.ecn.concerns(segment) {
            own.ecn.count_sent(segment, segments, own_bin);
            other.process_ecn_report(segment, other_bin);
        }
        true
    }

    /// Forgets the packets that await an answer: the time until it would be wrong. Two packets show that the clock was set,
    /// and that not the time of one is wrong. Returns the time of `segment` if it is known, else [`TIME_UNKNOWN`], which
    /// lets the next packet come here, too.
    #[cold]
    fn process_odd_time(&mut self, segment: &Segment) -> u64 {
        let [last_ns, before_ns] = self.previous_ns;
        let is_second = last_ns != TIME_UNKNOWN && is_set_back(last_ns, before_ns);
        if is_second && before_ns != TIME_UNKNOWN {
            self.clock_steps_back += u32::from(is_set_back(segment.at_ns, before_ns));
        }
        if !is_second || segment.time_is_estimated {
            self.handshake.forget_times();
            self.directions.iter_mut().for_each(Direction::forget_times);
        }
        if segment.time_is_estimated {
            TIME_UNKNOWN
        } else {
            segment.at_ns
        }
    }

    /// Reports the bins that end before `now_ns`.
    #[inline(always)]
    pub(super) fn close_bins(
        &mut self,
        now_ns: u64,
        budget: &mut MemoryBudget,
        sink: &mut impl Sink,
    ) {
        if self.bins.is_over(now_ns) {
            self.close_open_bins(now_ns, budget, sink);
        }
    }

    #[inline(never)]
    fn close_open_bins(&mut self, now_ns: u64, budget: &mut MemoryBudget, sink: &mut impl Sink) {
        let packets = self.packets();
        (self.bins).close(now_ns, self.number, packets, budget, sink);
        if packets >= self.next_window_update {
            self.update_packet_windows(packets, budget);
        }
    }

    /// Returns client and server.
    pub(super) fn ends(&self) -> [Endpoint; 2] {
        self.key.ends(self.client_is_low)
    }

    fn packets(&self) -> u64 {
        let [up, down] = &self.directions;
        up.send_state.data.packets + down.send_state.data.packets
    }

    #[cold]
    fn update_state(&mut self, segment: &Segment, end: usize) {
        if segment.flags & RST != 0 {
            if self.fin_seen != [true; 2] && self.reset.is_none() {
                self.reset = Some([Termination::ResetByClient, Termination::ResetByServer][end]);
            }
            return;
        }
        if segment.flags & SYN != 0 {
            self.process_syn(segment, end);
        }
        if self.directions[1 - end].is_unrelated_ack(segment) {
            return; // It is of a connection before this one.
        }
        self.handshake.process(segment, end);
        if segment.flags & SYN != 0 {
            let ecn = self.handshake.ecn();
            (self.directions.iter_mut()).for_each(|direction| direction.ecn.set_negotiated(ecn));
            self.record_syn_options(segment, end);
        }
        if segment.flags & FIN != 0 {
            self.fin_seen[end] = true;
        }
    }

    /// Processes a SYN of `end`, which may have reset a connection before it.
    fn process_syn(&mut self, segment: &Segment, end: usize) {
        if self.restarts_sequence(segment) {
            self.directions[end].restart_sequence();
            self.fin_seen[end] = false;
        }
        let is_last = segment.at_ns >= self.last_ns;
        let reset = [Termination::ResetByClient, Termination::ResetByServer][end];
        if is_last && self.reset == Some(reset) {
            self.reset = None;
        }
    }

    /// Records the options in the SYN of `end`. An end sends no segments larger than the MSS of either end: its own MSS
    /// is what its network carries.
    fn record_syn_options(&mut self, segment: &Segment, end: usize) {
        self.directions[end].syn_options = syn_options_of(segment);
        let [up, down] = &mut self.directions;
        let mss = up
            .syn_options
            .mss
            .into_iter()
            .chain(down.syn_options.mss)
            .min();
        (up.send_state.mss, down.send_state.mss) = (mss, mss);
        self.scale_windows(end);
    }

    /// Sets the window scales, if both SYNs have the option (RFC 7323 §2.2). If the other SYN or its options are not in
    /// the capture, it is assumed to have the option.
    fn scale_windows(&mut self, end: usize) {
        let shift_of =
            |direction: &Direction| direction.syn_options.window_scale.map(|s| s.min(SHIFT_MAX));
        let refuses = |at: usize| {
            let Direction {
                syn_options,
                send_state,
                ..
            } = &self.directions[at];
            let seen = at == end || send_state.isn.is_some();
            seen && syn_options.window_scale.is_none() && !syn_options.options_truncated
        };
        let (own_shift, other_shift) = if refuses(0) || refuses(1) {
            (Some(0), Some(0))
        } else {
            (
                shift_of(&self.directions[end]),
                shift_of(&self.directions[1 - end]),
            )
        };
        // An end advertises windows for the data of the other end.
        self.directions[1 - end].ack_state.window_shift = own_shift;
        self.directions[end].ack_state.window_shift = other_shift;
    }

    /// Reports the flow when the connection or the capture ends.
    pub(super) fn finish(&mut self, budget: &mut MemoryBudget, sink: &mut impl Sink) {
        let packets = self.packets();
        let termination = self.termination();
        let [client, server] = self.ends();
        let origins = self
            .directions
            .each_ref()
            .map(|direction| direction.send_state.origin);
        let [upload_windows, download_windows] =
            budget.packet_windows.take_windows(self.number, origins);
        self.bins.finish(self.number, packets, budget, sink);
        budget.end_flow(self.accounted_bytes, self.table_bytes());
        let [upload_series, download_series] = self.bins.take_time_series();
        let inferred_ecn = inferred_ecn(&self.directions);
        let [upload, download] = &mut self.directions;
        let [client_over, server_over] = self.fin_seen.map(|fin| fin || self.reset.is_some());
        let mut flow = Flow {
            number: self.number,
            capture_point: self.capture_point,
            client,
            server,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            handshake: self.handshake.record(inferred_ecn),
            termination,
            clock_steps_back: self.clock_steps_back,
            upload: upload.finish(
                server_over,
                self.last_ns,
                upload_series,
                upload_windows,
                budget,
            ),
            download: download.finish(
                client_over,
                self.last_ns,
                download_series,
                download_windows,
                budget,
            ),
        };
        [flow.upload.copies, flow.download.copies] = self.copy_filter.finish();
        verdict::assess(&mut flow);
        sink.receive_flow(flow);
    }

    fn table_bytes(&self) -> usize {
        let directions = self.directions.iter().map(Direction::table_bytes);
        self.bins.table_bytes() + self.copy_filter.table_bytes() + directions.sum::<usize>()
    }

    fn termination(&self) -> Termination {
        match (self.reset, self.fin_seen) {
            (Some(reset), _) => reset,
            (None, [true, true]) => Termination::Finished,
            (None, [false, false]) => Termination::Open,
            (None, _) => Termination::HalfClosed,
        }
    }
}

fn is_set_back(at_ns: u64, before_ns: u64) -> bool {
    at_ns.saturating_add(CLOCK_STEP_NS) <= before_ns
}

/// Returns whether the segment is a SYN/ACK, which comes from the server.
fn is_syn_ack(segment: &Segment) -> bool {
    segment.flags & (SYN | ACK) == SYN | ACK
}

/// Returns whether the lesser end is the client, by the first segment in the capture: it sent the SYN, or the other end
/// has a lower port that clients do not have. Equal or high ports show nothing; then the first segment is the client's.
fn is_client_low(key: &FlowKey, first: &Segment) -> bool {
    let (low, high) = (key.low.port, key.high.port);
    match first.flags & SYN {
        0 if low != high && low.min(high) < EPHEMERAL_PORT_MIN => high < low,
        _ => first.from_low != is_syn_ack(first),
    }
}

/// Returns the ECN that the packets of both directions show: AccECN if one does, which is more than that any is used.
fn inferred_ecn(directions: &[Direction; 2]) -> EcnNegotiation {
    let [up, down] = (directions.each_ref()).map(|direction| direction.ecn.inferred());
    match up {
        EcnNegotiation::Accurate => up,
        _ if down == EcnNegotiation::Unknown => up,
        _ => down,
    }
}

fn syn_options_of(segment: &Segment) -> SynOptions {
    SynOptions {
        mss: (segment.mss != 0).then_some(segment.mss),
        window_scale: (segment.window_scale != NO_SCALE).then_some(segment.window_scale),
        sack: segment.sack_permitted,
        timestamps: segment.has_timestamps,
        options_truncated: segment.options_cut,
    }
}

fn count_emulator_record(record: EmulatorRecord, bin: &mut Bin) {
    bin.queue_max = bin.queue_max.max(record.queue_bytes);
    bin.drops += u32::from(matches!(record.verdict, Verdict::Lost | Verdict::Dropped));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Settings::flows_max_bytes` states this size, with two widths of bins.
    #[test]
    fn connection_has_documented_size() {
        let size = size_of::<Connection>() + 2 * 2 * (size_of::<Bin>() + 8);
        assert!(size <= 6_100, "{size}");
    }
}
