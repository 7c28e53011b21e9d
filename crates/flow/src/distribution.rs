// SPDX-License-Identifier: MIT OR Apache-2.0
//! Histogram of samples with 32 buckets an octave: each bucket is at most 3.2 % wide, and every value below 64 has its
//! own.

use super::record::Distribution;

const BITS_AN_OCTAVE: u32 = 5;
const AN_OCTAVE: usize = 1 << BITS_AN_OCTAVE;
/// Buckets that are looked at together.
const PART: usize = 8;
/// Octaves, enough for every `u64`.
const OCTAVES: usize = 60;

/// Histogram. An octave takes 128 bytes once it has a sample; 64 octaves take at most 8.2 kB.
#[derive(Debug, Clone)]
pub(super) struct Histogram {
    count: u64,
    min: u64,
    max: u64,
    sum: u128,
    /// Index of each octave in `chunks`, from 1; 0 if it has no sample yet.
    chunk_of: [u8; OCTAVES],
    chunks: Vec<[u32; AN_OCTAVE]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            count: 0,
            min: u64::MAX,
            max: 0,
            sum: 0,
            chunk_of: [0; OCTAVES],
            chunks: Vec::new(),
        }
    }
}

impl Histogram {
    /// Counts a sample.
    #[inline]
    pub(super) fn record(&mut self, value: u64) {
        self.record_times(value, 1);
    }

    /// Counts `times` equal samples.
    #[inline]
    pub(super) fn record_times(&mut self, value: u64, times: u32) {
        self.count += u64::from(times);
        self.sum += u128::from(value) * u128::from(times);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        let bucket = bucket_of(value);
        let counts = self.octave(bucket >> BITS_AN_OCTAVE);
        let count = &mut counts[bucket % AN_OCTAVE];
        *count = count.saturating_add(times);
    }

    #[inline]
    fn octave(&mut self, octave: usize) -> &mut [u32; AN_OCTAVE] {
        if self.chunk_of[octave] == 0 {
            self.add_octave(octave);
        }
        &mut self.chunks[usize::from(self.chunk_of[octave]) - 1]
    }

    #[cold]
    fn add_octave(&mut self, octave: usize) {
        self.chunks.push([0; AN_OCTAVE]);
        self.chunk_of[octave] = self.chunks.len() as u8;
    }

    /// Returns the memory of the octaves, bytes.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<[u32; AN_OCTAVE]>()
    }

    /// Returns count, extremes, mean, quantiles and buckets.
    pub(super) fn summary(&self) -> Distribution {
        if self.count == 0 {
            return Distribution::default();
        }
        let buckets = self.buckets();
        let [p50, p90, p99] = self.quantiles(&buckets, [50, 90, 99]);
        Distribution {
            count: self.count,
            min: self.min,
            mean: self.sum as f64 / self.count as f64,
            p50,
            p90,
            p99,
            max: self.max,
            buckets,
        }
    }

    /// Returns the buckets that have samples, in order: their lower edges and their counts.
    fn buckets(&self) -> Vec<(u64, u64)> {
        let mut buckets = Vec::with_capacity(self.used_buckets());
        for (octave, &chunk) in self.chunk_of.iter().enumerate().filter(|(_, at)| **at > 0) {
            let counts = &self.chunks[usize::from(chunk) - 1];
            // Most flows are short, and use a few buckets of an octave.
            for (part, counts) in counts.chunks_exact(PART).enumerate() {
                if counts.iter().fold(0, |any, count| any | count) > 0 {
                    add_buckets(&mut buckets, octave * AN_OCTAVE + part * PART, counts);
                }
            }
        }
        buckets
    }

    fn used_buckets(&self) -> usize {
        let counts = self.chunks.iter().flatten();
        counts.map(|count| usize::from(*count > 0)).sum()
    }

    /// Returns the upper ends of the `buckets` at `percents` of all samples; `percents` are in order.
    fn quantiles<const N: usize>(&self, buckets: &[(u64, u64)], percents: [u64; N]) -> [u64; N] {
        let total: u64 = buckets.iter().map(|(_, count)| count).sum();
        let (mut rest, mut passed, mut edge) = (buckets.iter(), 0, 0);
        percents.map(|percent| {
            let rank = total / 100 * percent + (total % 100 * percent).div_ceil(100);
            while passed < rank
                && let Some(&(next, count)) = rest.next()
            {
                (edge, passed) = (next, passed + count);
            }
            upper_edge(bucket_of(edge)).clamp(self.min, self.max)
        })
    }
}

/// Adds the buckets from `first` on that have samples.
fn add_buckets(buckets: &mut Vec<(u64, u64)>, first: usize, counts: &[u32]) {
    let used = (first..).zip(counts).filter(|(_, count)| **count > 0);
    buckets.extend(used.map(|(bucket, count)| (lower_edge(bucket), u64::from(*count))));
}

/// Returns the bucket of a value. Values below 64 are their own bucket; above, the five bits after the first one select
/// it.
#[inline]
fn bucket_of(value: u64) -> usize {
    let shift = 63 - (value | AN_OCTAVE as u64).leading_zeros() - BITS_AN_OCTAVE;
    ((shift as usize) << BITS_AN_OCTAVE) + (value >> shift) as usize
}

fn lower_edge(bucket: usize) -> u64 {
    match bucket / AN_OCTAVE {
        0 => bucket as u64,
        octave => ((AN_OCTAVE + bucket % AN_OCTAVE) as u64) << (octave - 1),
    }
}

/// Returns the greatest value of the bucket.
fn upper_edge(bucket: usize) -> u64 {
    if bucket + 1 == OCTAVES * AN_OCTAVE {
        u64::MAX
    } else {
        lower_edge(bucket + 1) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Distribution {
        let mut histogram = Histogram::default();
        values.into_iter().for_each(|v| histogram.record(v));
        histogram.summary()
    }

    #[test]
    fn counts_small_values_exactly() {
        let d = of(0..64);
        assert_eq!(d.buckets, (0..64).map(|v| (v, 1)).collect::<Vec<_>>());
        assert_eq!((d.min, d.p50, d.p90, d.max), (0, 31, 57, 63));
        assert!((d.mean - 31.5).abs() < 1e-12);
    }

    #[test]
    fn single_sample_is_every_quantile() {
        let d = of([1_000_003]);
        assert_eq!((d.p50, d.p99, d.max), (1_000_003, 1_000_003, 1_000_003));
    }

    #[test]
    fn summary_without_samples_is_default() {
        assert_eq!(of([]), Distribution::default());
    }

    #[test]
    fn counts_greatest_number() {
        let d = of([u64::MAX, u64::MAX - 1, 0]);
        assert_eq!(d.buckets.len(), 2);
        assert_eq!(d.p99, u64::MAX);
    }

    proptest! {
        #[test]
        fn bucket_contains_its_value(value: u64) {
            let bucket = bucket_of(value);
            prop_assert!(lower_edge(bucket) <= value && value <= upper_edge(bucket));
            prop_assert!(upper_edge(bucket) - lower_edge(bucket) <= lower_edge(bucket) / 32);
        }

        #[test]
        fn quantile_error_is_at_most_three_percent(mut values in prop::collection::vec(0u64..1 << 40, 1..200)) {
            let d = of(values.iter().copied());
            values.sort_unstable();
            let exact = values[(values.len() * 9).div_ceil(10) - 1];
            prop_assert!(d.p90 >= exact && d.p90 - exact <= exact / 32);
        }
    }
}
