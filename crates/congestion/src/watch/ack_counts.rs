// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of the ACKs that a connection's sender receives (`bpf/ack_counts.h`).
#![expect(unsafe_code, reason = "the counting is C")]

/// `ACK_SIZES`
pub const SIZES: usize = 12;
/// `sizeof(struct ack_counts)`
pub(crate) const BYTES: usize = 48 + 4 * SIZES;

/// `struct ack_counts`: received ACKs, and the bytes by which each advanced the acknowledgement number
/// (bytes acknowledged by an ACK).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct AckCounts {
    /// ACKs, the first one included, which advances the number by an unknown amount.
    pub acks: u64,
    /// Bytes acknowledged by all of them.
    pub bytes: u64,
    first_us: u64,
    last_us: u64,
    interval_us_min: u32,
    /// Most bytes acknowledged by one ACK.
    pub bytes_per_ack_max: u32,
    /// ACKs that did not advance the number: duplicates, window updates, and those with data.
    pub non_advancing: u32,
    una: u32,
    /// ACKs of 1, 2…3, 4…7 … packets; the last entry counts all larger ones.
    pub packets_histogram: [u32; SIZES],
}

const _: () = assert!(size_of::<AckCounts>() == BYTES);

impl AckCounts {
    /// Counts an ACK after which `una` is the first byte that is not acknowledged.
    pub fn count(&mut self, una: u32, mss: u32, now_us: u64) {
        // SAFETY: `AckCounts` is laid out as the C structure and lives through the call.
        unsafe { longhaul_ack_count(self, una, mss, now_us) };
    }

    /// Returns the shortest time between ACKs, µs; none before the second.
    #[must_use]
    pub fn interval_us_min(&self) -> Option<u32> {
        (self.acks > 1).then_some(self.interval_us_min)
    }

    /// Returns the mean time between ACKs, µs.
    #[must_use]
    pub fn interval_us_mean(&self) -> Option<f64> {
        let span = self.last_us.saturating_sub(self.first_us);
        (self.acks > 1).then(|| span as f64 / (self.acks - 1) as f64)
    }

    /// Returns the mean bytes acknowledged by the ACKs that advanced the number.
    #[must_use]
    pub fn bytes_per_ack_mean(&self) -> Option<f64> {
        let moved: u64 = self
            .packets_histogram
            .iter()
            .map(|&acks| u64::from(acks))
            .sum();
        (moved > 0).then(|| self.bytes as f64 / moved as f64)
    }

    /// Parses `struct ack_counts` from its words.
    #[cfg(feature = "bpf")]
    pub(crate) fn read(mut take: impl FnMut() -> u32) -> Self {
        let mut long = || {
            let halves = [take(), take()].map(u32::to_ne_bytes);
            u64::from_ne_bytes(halves.concat().try_into().expect("eight bytes"))
        };
        let (acks, bytes, first_us, last_us) = (long(), long(), long(), long());
        Self {
            acks,
            bytes,
            first_us,
            last_us,
            interval_us_min: take(),
            bytes_per_ack_max: take(),
            non_advancing: take(),
            una: take(),
            packets_histogram: std::array::from_fn(|_| take()),
        }
    }
}

unsafe extern "C" {
    fn longhaul_ack_count(counts: &mut AckCounts, una: u32, mss: u32, now_us: u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(acks: &[(u32, u64)]) -> AckCounts {
        let mut counts = AckCounts::default();
        acks.iter()
            .for_each(|&(una, at)| counts.count(una, 1000, at));
        counts
    }

    #[test]
    fn first_ack_has_no_difference() {
        let first = counted(&[(77_000, 5)]);
        assert_eq!(
            (first.acks, first.bytes, first.bytes_per_ack_max),
            (1, 0, 0)
        );
        assert_eq!(
            (first.interval_us_min(), first.bytes_per_ack_mean()),
            (None, None)
        );
    }

    #[test]
    fn counts_differences_intervals_and_duplicates() {
        let counts = counted(&[(u32::MAX - 999, 100), (1000, 130), (1000, 140), (9000, 200)]);
        assert_eq!(
            (counts.acks, counts.bytes, counts.bytes_per_ack_max),
            (4, 10_000, 8000)
        );
        assert_eq!(counts.non_advancing, 1);
        assert_eq!(counts.interval_us_min(), Some(10));
        assert!((counts.interval_us_mean().unwrap() - 100.0 / 3.0).abs() < 1e-9);
        assert_eq!(counts.bytes_per_ack_mean(), Some(5000.0));
        assert_eq!(counts.packets_histogram[..4], [0, 1, 0, 1]);
    }

    #[test]
    fn sizes_are_powers_of_two() {
        for (packets, size) in [
            (1, 0),
            (2, 1),
            (3, 1),
            (4, 2),
            (255, 7),
            (256, 8),
            (2047, 10),
            (2048, 11),
            (1_000_000, 11),
        ] {
            let counts = counted(&[(0, 0), (packets * 1000, 1)]);
            assert_eq!(counts.packets_histogram[size], 1, "{packets} packets");
        }
        // A partial segment counts as a packet.
        assert_eq!(counted(&[(0, 0), (1, 1)]).packets_histogram[0], 1);
        assert_eq!(counted(&[(0, 0), (1001, 1)]).packets_histogram[1], 1);
    }
}
