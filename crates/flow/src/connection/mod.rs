// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection at one vantage, from its first segment to its last.

mod bins;
mod direction;
mod handshake;
mod sequence_space;

use crate::memory_budget::MemoryBudget;
use crate::packet_windows::SAMPLE_EVERY;
use crate::record::{Flow, SynOptions, Termination, WindowTrigger};
use crate::segment::{
    CapturePoint, CapturedSegment, Endpoint, FlowKey, SCALE_CUT, Segment, WINDOW_MAX,
};
use crate::time_series::bin::Bin;
use crate::{Sink, verdict};
use bins::Bins;
use direction::Direction;
use handshake::HandshakeTracker;
use longhaul_packet::capture::{EmulatorRecord, Verdict};
use longhaul_packet::tcp::{ACK, FIN, RST, SYN};

/// Twice the maximum segment lifetime as systems have it (Linux: `TCP_TIMEWAIT_LEN`, 60 s; RFC 9293 says
/// four minutes): after such a silence the same numbers may be of a new connection.
const REUSE_NS: u64 = 120_000_000_000;
/// Largest shift of a window (RFC 7323 §2.3).
const SHIFT_MAX: u8 = 14;

/// A connection. In arrays of two, 0 is the client or the upload, 1 the server or the download.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) vantage: CapturePoint,
    pub(super) key: FlowKey,
    /// The number of its first packet.
    pub(super) number: u64,
    client_is_low: bool,
    first_ns: u64,
    last_ns: u64,
    handshake: HandshakeTracker,
    fin_seen: [bool; 2],
    reset: Option<Termination>,
    directions: [Direction; 2],
    /// Packets after which it is asked again whether this is one of the largest flows.
    next_window_update: u64,
    bins: Bins,
    /// What the bounds know that it takes.
    accounted_bytes: usize,
}

impl Connection {
    /// A connection whose first segment is `item`'s, which is yet to be taken in.
    pub(super) fn new(item: &CapturedSegment, budget: &mut MemoryBudget) -> Self {
        let segment = &item.segment;
        let mut connection = Self {
            vantage: item.capture_point,
            key: item.key,
            number: item.number,
            client_is_low: segment.from_low != is_syn_ack(segment),
            first_ns: segment.at_ns,
            last_ns: segment.at_ns,
            handshake: HandshakeTracker::default(),
            fin_seen: [false; 2],
            reset: None,
            directions: [Direction::default(), Direction::default()],
            next_window_update: 0,
            bins: Bins::new(segment.at_ns, &budget.settings),
            accounted_bytes: 0,
        };
        connection.update_packet_windows(0, budget);
        connection
    }

    /// Single segments are kept of the largest flows: of their beginning, and now and then.
    #[cold]
    fn update_packet_windows(&mut self, packets: u64, budget: &mut MemoryBudget) {
        let [up, down] = &mut self.directions;
        (budget.excerpts).claim_slot(
            self.number,
            packets,
            [&mut up.window_handle, &mut down.window_handle],
        );
        let occasion = match packets {
            0 => WindowTrigger::Beginning,
            _ => WindowTrigger::Sample,
        };
        budget.excerpts.begin(&mut up.window_handle, occasion);
        budget.excerpts.begin(&mut down.window_handle, occasion);
        self.next_window_update = packets + SAMPLE_EVERY;
    }

    /// Tells the bounds what it takes now, beside its tables.
    #[inline]
    pub(super) fn account(&mut self, budget: &mut MemoryBudget) {
        let [up, down] = &self.directions;
        let distributions = up.distributions_bytes() + down.distributions_bytes();
        let now = size_of::<Self>() + self.bins.open_bins_bytes() + distributions;
        budget.account(self.accounted_bytes, now);
        self.accounted_bytes = now;
    }

    /// Whether `segment` begins another connection between the same ports: a SYN of an end that sent a
    /// different one before, or none though it sent something, or the same so long ago that it is no
    /// retransmission. A SYN/ACK before the handshake is over does not: a server that keeps no
    /// state (SYN cookies, RFC 4987 §3.6), or lost it, may choose another number each time, and one that still knows
    /// an old connection says so first (RFC 9293 §3.5.1).
    #[inline]
    pub(super) fn is_reused_by(&self, segment: &Segment) -> bool {
        if segment.flags & (SYN | RST) != SYN {
            return false;
        }
        let sending = &self.directions[self.end_of(segment)].send_state;
        sending.data.packets > 0
            && (self.is_silent(segment.at_ns)
                || sending.isn != Some(segment.seq)
                    && !self.is_new_syn_ack(segment)
                    && !self.is_late_syn(segment))
    }

    /// Whether a SYN comes behind what it began, in a capture whose packets are out of order: its end sent none before,
    /// and its number is the one before the first that was seen, or it is older than all else and its number is less.
    fn is_late_syn(&self, syn: &Segment) -> bool {
        let sending = &self.directions[self.end_of(syn)].send_state;
        let behind = (sending.next as u32).wrapping_sub(syn.seq);
        let is_older = syn.at_ns < self.first_ns && (1..=WINDOW_MAX as u32).contains(&behind);
        let begins = syn.seq.wrapping_add(1) == sending.origin as u32;
        sending.isn.is_none() && (begins || is_older)
    }

    /// Whether `segment` is a SYN/ACK while a SYN awaits one, or another for the same SYN.
    fn is_new_syn_ack(&self, segment: &Segment) -> bool {
        let end = self.end_of(segment);
        let other = &self.directions[1 - end];
        let syn = other.send_state.isn;
        let answers = syn.is_some_and(|isn| segment.ack == isn.wrapping_add(1));
        is_syn_ack(segment) && (other.awaits_syn_ack() || self.handshake.awaits(1 - end) && answers)
    }

    /// Whether the numbers of the SYN/ACK `segment` have nothing to do with those that its end sent before.
    fn restarts_sequence(&self, segment: &Segment) -> bool {
        let sending = &self.directions[self.end_of(segment)].send_state;
        sending.next != 0
            && sending.isn != Some(segment.seq)
            && self.is_new_syn_ack(segment)
            && !self.is_late_syn(segment)
    }

    /// Whether nothing was seen of it for longer than packets live.
    pub(super) fn is_silent(&self, at_ns: u64) -> bool {
        at_ns.saturating_sub(self.last_ns) > REUSE_NS
    }

    /// Whether both ends are done, or one broke off.
    pub(super) fn is_closed(&self) -> bool {
        self.fin_seen == [true; 2] || self.reset.is_some()
    }

    #[inline]
    fn end_of(&self, segment: &Segment) -> usize {
        usize::from(segment.from_low != self.client_is_low)
    }

    /// Takes a segment in.
    #[inline]
    pub(super) fn process(
        &mut self,
        segment: &Segment,
        budget: &mut MemoryBudget,
        sink: &mut impl Sink,
    ) {
        self.close_bins(segment.at_ns, budget, sink);
        self.last_ns = self.last_ns.max(segment.at_ns);
        let end = self.end_of(segment);
        if segment.flags & (SYN | FIN | RST) != 0 || self.handshake.awaits(end) {
            self.update_state(segment, end);
        }
        let [up, down] = &mut self.directions;
        let [up_bin, down_bin] = self.bins.current();
        let (own, own_bin, other, other_bin) = match end {
            0 => (up, up_bin, down, down_bin),
            _ => (down, down_bin, up, up_bin),
        };
        if let Some(truth) = segment.truth {
            count_truth(truth, own_bin);
        }
        own.process_sent(segment, other.round_trips.smoothed(), budget, own_bin);
        if segment.flags & (ACK | RST) == ACK {
            other.process_ack(segment, budget, other_bin);
        }
    }

    /// Reports the bins that are over at `now_ns`.
    #[inline]
    pub(super) fn close_bins(
        &mut self,
        now_ns: u64,
        budget: &mut MemoryBudget,
        sink: &mut impl Sink,
    ) {
        if self.bins.is_over(now_ns) {
            let packets = self.packets();
            (self.bins).close(now_ns, self.number, packets, budget, sink);
            if packets >= self.next_window_update {
                self.update_packet_windows(packets, budget);
            }
        }
    }

    /// Client and server.
    pub(super) fn ends(&self) -> [Endpoint; 2] {
        match self.client_is_low {
            true => [self.key.low, self.key.high],
            false => [self.key.high, self.key.low],
        }
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
            self.record_syn_options(segment, end);
        }
        if segment.flags & FIN != 0 {
            self.fin_seen[end] = true;
        }
    }

    /// A SYN of `end`, which may have reset a connection before it.
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

    /// The SYN of `end` says what it can do. An end sends no segments that the other does not take, and none that are
    /// larger than what it takes itself: that is what its network carries.
    fn record_syn_options(&mut self, segment: &Segment, end: usize) {
        self.directions[end].offer = syn_options_of(segment);
        let [up, down] = &mut self.directions;
        let mss = up.offer.mss.into_iter().chain(down.offer.mss).min();
        (up.send_state.mss, down.send_state.mss) = (mss, mss);
        self.scale_windows(end);
    }

    /// Windows are scaled if both SYNs say so (RFC 7323 §2.2). If the other's SYN is not in the capture, or
    /// its options are not, it is taken to agree.
    fn scale_windows(&mut self, end: usize) {
        let shift_of =
            |direction: &Direction| direction.offer.window_scale.map(|s| s.min(SHIFT_MAX));
        let refuses = |at: usize| {
            let Direction {
                offer,
                send_state: sending,
                ..
            } = &self.directions[at];
            let seen = at == end || sending.isn.is_some();
            seen && offer.window_scale.is_none() && !offer.options_cut
        };
        let (mine, theirs) = match refuses(0) || refuses(1) {
            true => (Some(0), Some(0)),
            false => (
                shift_of(&self.directions[end]),
                shift_of(&self.directions[1 - end]),
            ),
        };
        // The windows of an end are for the other's data.
        self.directions[1 - end].ack_state.window_shift = mine;
        self.directions[end].ack_state.window_shift = theirs;
    }

    /// The connection is over, or the capture is.
    pub(super) fn finish(mut self, budget: &mut MemoryBudget, sink: &mut impl Sink) {
        let packets = self.packets();
        let closing = self.termination();
        let [client, server] = self.ends();
        let origins = self.directions.each_ref().map(|way| way.send_state.origin);
        let [upload_windows, download_windows] = budget.excerpts.release(self.number, origins);
        self.bins.finish(self.number, packets, budget, sink);
        budget.end_flow(self.accounted_bytes, self.table_bytes());
        let [upload_series, download_series] = self.bins.into_time_series();
        let [upload, download] = self.directions;
        let [client_over, server_over] = self.fin_seen.map(|fin| fin || self.reset.is_some());
        let mut flow = Flow {
            number: self.number,
            capture_point: self.vantage,
            client,
            server,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            handshake: self.handshake.record(),
            termination: closing,
            upload: upload.finish(server_over, upload_series, upload_windows, budget),
            download: download.finish(client_over, download_series, download_windows, budget),
        };
        verdict::assess(&mut flow);
        sink.flow(flow);
    }

    fn table_bytes(&self) -> usize {
        let directions = self.directions.iter().map(Direction::table_bytes);
        self.bins.table_bytes() + directions.sum::<usize>()
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

/// A SYN/ACK comes from the server.
fn is_syn_ack(segment: &Segment) -> bool {
    segment.flags & (SYN | ACK) == SYN | ACK
}

fn syn_options_of(segment: &Segment) -> SynOptions {
    SynOptions {
        mss: (segment.mss != 0).then_some(segment.mss),
        window_scale: (segment.window_scale < SCALE_CUT).then_some(segment.window_scale),
        sack: segment.sack_permitted,
        timestamps: segment.has_timestamps,
        options_cut: segment.window_scale == SCALE_CUT,
    }
}

fn count_truth(truth: EmulatorRecord, bin: &mut Bin) {
    bin.queue_max = bin.queue_max.max(truth.queue_bytes);
    bin.drops += u32::from(matches!(truth.fate, Verdict::Lost | Verdict::Dropped));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `Settings::flows_max` says, with two widths of bins.
    #[test]
    fn takes_five_kilobytes() {
        let size = size_of::<Connection>() + 2 * 2 * (size_of::<Bin>() + 8);
        assert!(size <= 5 << 10, "{size}");
    }
}
