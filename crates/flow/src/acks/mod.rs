// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ACK stream for the data of one direction.

pub(super) mod ack_clocking;
pub(super) mod echoed_acks;
pub mod path_delay;
mod scoreboard;

use crate::distribution::Histogram;
use crate::memory_budget::MemoryBudget;
use crate::record::Acks;
use crate::segment::{SACK_BLOCKS_MAX, Segment, WINDOW_MAX, unwrap_near};
use crate::time_series::bin::Bin;
use echoed_acks::{EchoedAck, EchoedAcks};
use path_delay::PathDelay;
use scoreboard::Scoreboard;

/// Sequence numbers of SYN and FIN, which are not bytes when they are acknowledged; 0 is none.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SynFinNumbers {
    /// SYN.
    pub(super) syn: u64,
    /// FIN.
    pub(super) fin: u64,
}

impl SynFinNumbers {
    /// Returns how many of them are in `from..to`.
    #[inline]
    pub(super) fn count_in(self, from: u64, to: u64) -> u64 {
        if self.syn.max(self.fin) < from {
            return 0; // As for nearly all of a flow.
        }
        let has = |number: u64| u64::from(from <= number && number < to);
        has(self.syn) + has(self.fin)
    }
}

/// State from the ACKs so far.
#[derive(Debug, Default)]
pub(super) struct AckState {
    /// Cumulative ACK number; 0 before the first ACK.
    pub(super) acked: u64,
    /// Window scale, if the handshake was seen (RFC 7323 §2.2).
    pub(super) window_shift: Option<u8>,
    /// Duplicate ACKs since the last advancing ACK. Those with a D-SACK for a packet that arrived twice do not count:
    /// they show no gap (RFC 6675 §2; Linux: `FLAG_DSACKING_ACK`).
    pub(super) duplicates: u32,
    pub(super) scoreboard: Scoreboard,
    /// Window field of the last ACK, unscaled.
    window: Option<u16>,
    /// End of the advertised window as a sequence number; 0 if it is unknown.
    window_end: u64,
    path_delay: PathDelay,
    pub(super) echoed: EchoedAcks,
    acks: Acks,
    ack_diff: Histogram,
    packets_per_ack: Histogram,
    /// Last AckDiff and its packets, and how many equal ones the distributions do not have yet: most ACKs repeat the
    /// AckDiff of the one before.
    last_diff: u64,
    last_packets: u64,
    repeat_count: u32,
}

/// Returns whether a segment is an ACK without payload, SYN, FIN or RST.
#[inline]
pub(super) fn is_pure(segment: &Segment) -> bool {
    use longhaul_packet::tcp::{FIN, RST, SYN};
    segment.payload == 0 && segment.flags & (SYN | FIN | RST) == 0
}

impl AckState {
    /// Returns whether the last advertised window was zero.
    pub(super) fn is_window_zero(&self) -> bool {
        self.window == Some(0)
    }

    /// Returns whether one more segment after `next` would exceed the window.
    #[inline]
    pub(super) fn is_window_full(&self, next: u64, segment: u32) -> bool {
        self.window_end != 0 && next + u64::from(segment) > self.window_end
    }

    /// Returns the largest window that the receiver may have advertised so far, if its scale is known. The windows of
    /// SYNs are not scaled.
    pub(super) fn window_max(&self) -> Option<u64> {
        self.window_shift?;
        Some(self.acks.window_max_bytes.max(u64::from(u16::MAX)))
    }

    /// Forgets what was acknowledged, after a break of the sequence numbers.
    #[cold]
    pub(super) fn reset(&mut self) {
        (self.acked, self.duplicates, self.window_end) = (0, 0, 0);
        self.scoreboard.clear();
        self.echoed.clear();
    }

    /// Returns the end of the window, if its scale is known and a window was seen.
    pub(super) fn window_end(&self) -> Option<u64> {
        (self.window_end != 0).then_some(self.window_end)
    }

    /// Returns whether the receiver has reported all of `start..end` as received.
    pub(super) fn has_received(&self, start: u64, end: u64) -> bool {
        end <= self.acked || self.scoreboard.covers(start.max(self.acked), end)
    }

    /// Returns whether `segment`, which carries data of the other direction, repeats the ACK fields of the segment
    /// before.
    #[inline]
    pub(super) fn is_unchanged(&self, segment: &Segment) -> bool {
        segment.ack == self.acked as u32
            && segment.sack_blocks == 0
            && segment.window != 0
            && self.window == Some(segment.window)
    }

    /// Counts a pure ACK.
    #[inline]
    pub(super) fn count_pure(&mut self, segment: &Segment, bin: &mut Bin) {
        self.acks.pure += 1;
        bin.acks += 1;
        if segment.window == 0 {
            self.acks.last_zero_window_ns = Some(segment.at_ns);
        }
        let least = bin.ack_path_delay_ns;
        if segment.has_timestamps
            && let Some(delay_ns) = self.path_delay.least_delay_ns(segment, least.is_some())
        {
            bin.ack_path_delay_ns = Some(least.unwrap_or(delay_ns).min(delay_ns));
        }
    }

    /// Advances the ACK number to `ack` and returns how many packets that acknowledges. `segment_max` is the largest
    /// segment of the data.
    #[inline]
    pub(super) fn advance(
        &mut self,
        (ack, at_ns): (u64, u64),
        syn_fin: SynFinNumbers,
        segment_max: u32,
        bin: &mut Bin,
    ) -> u64 {
        let diff = (ack - self.acked).saturating_sub(syn_fin.count_in(self.acked, ack));
        self.acked = ack;
        self.duplicates = 0;
        self.scoreboard.remove_acked(ack);
        match diff {
            0 => 0,
            _ => {
                self.acks.last_advancing_ns = Some(at_ns);
                self.count_diff(diff, segment_max, bin)
            }
        }
    }

    #[inline]
    fn count_diff(&mut self, diff: u64, segment_max: u32, bin: &mut Bin) -> u64 {
        let packets = packets_in(diff, segment_max);
        if diff != self.last_diff || packets != self.last_packets || self.repeat_count == u32::MAX {
            self.flush_repeats();
            (self.last_diff, self.last_packets) = (diff, packets);
        }
        self.repeat_count += 1;
        self.acks.advancing += 1;
        self.acks.acked_bytes += diff;
        bin.advancing_acks += 1;
        bin.acked_bytes += diff;
        bin.ack_diff_max = bin
            .ack_diff_max
            .max(u32::try_from(diff).unwrap_or(u32::MAX));
        packets
    }

    fn flush_repeats(&mut self) {
        let times = std::mem::take(&mut self.repeat_count);
        if times > 0 {
            self.ack_diff.record_times(self.last_diff, times);
            (self.packets_per_ack).record_times(self.last_packets, times);
        }
    }

    /// Counts a pure ACK that repeats the number `ack`; `next` is the next new number of the data. Returns whether it
    /// is a duplicate: data is outstanding and the window is unchanged (RFC 5681 §2).
    pub(super) fn count_duplicate(
        &mut self,
        segment: &Segment,
        [ack, next]: [u64; 2],
        outstanding: bool,
        bin: &mut Bin,
    ) -> bool {
        let updates = self.window.is_some_and(|window| window != segment.window);
        if updates {
            self.acks.window_updates += 1;
        } else if outstanding {
            self.duplicates += u32::from(!has_dsack(segment, ack, next));
            self.acks.duplicates += 1;
            bin.duplicate_acks += 1;
        }
        !updates && outstanding
    }

    /// Counts an ACK with a lesser number than one before.
    pub(super) fn count_out_of_order(&mut self) {
        self.acks.out_of_order += 1;
    }

    /// Takes in the window that a segment advertises (no SYN, whose window is not scaled). `is_new` is false for data
    /// of the other direction that repeats an old ACK: it would fill bins with nothing new.
    #[inline]
    pub(super) fn update_window(
        &mut self,
        segment: &Segment,
        ack: u64,
        is_new: bool,
        bin: &mut Bin,
    ) {
        let bytes = u64::from(segment.window) << self.window_shift.unwrap_or(0);
        let before = self.window.replace(segment.window);
        if is_new || before != Some(segment.window) {
            let window = bytes as u32; // It holds the largest window.
            bin.window_min = Some(bin.window_min.map_or(window, |least| least.min(window)));
            bin.window_last = window;
        }
        if before.is_none() {
            self.acks.window_min_bytes = bytes;
        }
        self.acks.zero_windows += u64::from(bytes == 0);
        self.acks.window_min_bytes = self.acks.window_min_bytes.min(bytes);
        self.acks.window_max_bytes = self.acks.window_max_bytes.max(bytes);
        if self.window_shift.is_some() {
            self.window_end = self.window_end.max(ack + bytes);
        }
    }

    /// Records the state after an ACK, for the packets that echo it.
    #[inline]
    pub(super) fn record_for_echo(&mut self, segment: &Segment, budget: &mut MemoryBudget) {
        if segment.has_timestamps {
            let ack = EchoedAck {
                tsval: segment.tsval,
                at_ns: segment.at_ns,
                ack: self.acked,
                window_end: self.window_end,
            };
            self.echoed.record(ack, budget);
        }
    }

    /// Takes in the SACK blocks of an ACK with the number `ack`; `next` is the next new number of the data. Returns the
    /// highest SACKed number, which may be beyond `next` if the capture point missed data.
    pub(super) fn record_sack(
        &mut self,
        segment: &Segment,
        ack: u64,
        next: u64,
        budget: &mut MemoryBudget,
        bin: &mut Bin,
    ) -> u64 {
        let blocks = blocks_of(segment, next);
        let blocks = &blocks[..block_count(segment)];
        let first_is_dsack = is_dsack(blocks, ack);
        self.acks.with_sack += 1;
        self.acks.sack_blocks += blocks.len() as u64;
        self.acks.dsacks += u64::from(first_is_dsack);
        bin.sacks += 1;
        let mut end = 0;
        for &(left, right) in &blocks[usize::from(first_is_dsack)..] {
            let left = left.max(self.acked);
            if left < right && right < next.saturating_add(WINDOW_MAX) {
                self.scoreboard.insert(left, right, budget);
                end = end.max(right);
            }
        }
        end
    }

    /// Returns the memory of the distributions, bytes.
    #[inline]
    pub(super) fn distributions_bytes(&self) -> usize {
        self.ack_diff.bytes() + self.packets_per_ack.bytes()
    }

    /// Returns the counts, and the distributions of AckDiff and of packets per ACK.
    pub(super) fn finish(&mut self) -> (Acks, &Histogram, &Histogram) {
        self.flush_repeats();
        let acks = Acks {
            window_scale: self.window_shift,
            ..self.acks
        };
        (acks, &self.ack_diff, &self.packets_per_ack)
    }
}

/// Returns the SACK blocks unwrapped near `next`; the first [`block_count`] are valid.
pub(super) fn blocks_of(segment: &Segment, next: u64) -> [(u64, u64); SACK_BLOCKS_MAX] {
    segment.sack.map(|(left, right)| {
        let left = unwrap_near(next, left);
        (left, unwrap_near(left, right))
    })
}

pub(super) fn block_count(segment: &Segment) -> usize {
    usize::from(segment.sack_blocks).min(SACK_BLOCKS_MAX)
}

fn has_dsack(segment: &Segment, ack: u64, next: u64) -> bool {
    let blocks = blocks_of(segment, next);
    is_dsack(&blocks[..block_count(segment)], ack)
}

/// Returns whether the first block is a D-SACK: it is below the ACK number, or inside the second block (RFC 2883 §4).
fn is_dsack(blocks: &[(u64, u64)], ack: u64) -> bool {
    match blocks {
        [first, ..] if first.1 <= ack => true,
        [first, second, ..] => second.0 <= first.0 && first.1 <= second.1,
        _ => false,
    }
}

/// Converts an AckDiff to segments, rounded up.
#[inline]
fn packets_in(diff: u64, segment_max: u32) -> u64 {
    match u32::try_from(diff) {
        Ok(diff) => u64::from(diff.div_ceil(segment_max)),
        Err(_) => diff.div_ceil(u64::from(segment_max)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_dsack_from_sack() {
        assert!(is_dsack(&[(10, 20)], 20));
        assert!(!is_dsack(&[(30, 40)], 20));
        assert!(is_dsack(&[(30, 40), (30, 60)], 20));
        assert!(!is_dsack(&[(50, 60), (30, 40)], 20));
    }

    #[test]
    fn rounds_packets_up() {
        assert_eq!(
            [1, 1448, 1449, 2896].map(|diff| packets_in(diff, 1448)),
            [1, 1, 2, 2]
        );
        assert_eq!(packets_in(1 << 40, 1 << 10), 1 << 30);
    }
}
