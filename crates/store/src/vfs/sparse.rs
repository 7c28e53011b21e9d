// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds ranges of zeros that are long enough for holes in a sparse file.

use std::ops::Range;

/// Bytes that holes are multiples of: the block size of most file systems.
const HOLE_ALIGNMENT: usize = 4096;

/// Range of a buffer that is all data or all zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Run {
    Data(Range<usize>),
    Zeros(Range<usize>),
}

impl Run {
    fn of(grain: &[u8], at: usize) -> Self {
        let range = at..at + grain.len();
        if *grain == [0; HOLE_ALIGNMENT][..grain.len()] {
            Self::Zeros(range)
        } else {
            Self::Data(range)
        }
    }

    /// Appends the next run to this one if both are of the same kind.
    fn merge(&mut self, next: &Self) -> bool {
        match (self, next) {
            (Self::Data(own), Self::Data(next)) | (Self::Zeros(own), Self::Zeros(next)) => {
                own.end = next.end;
                true
            }
            _ => false,
        }
    }
}

/// Runs of data and of zeros, in order, each as long as possible. The buffer must begin at a
/// multiple of [`HOLE_ALIGNMENT`] in its file.
pub(crate) fn runs(bytes: &[u8]) -> impl Iterator<Item = Run> {
    let mut grains = bytes.chunks(HOLE_ALIGNMENT).enumerate();
    let mut grains = std::iter::from_fn(move || {
        let (index, grain) = grains.next()?;
        Some(Run::of(grain, index * HOLE_ALIGNMENT))
    })
    .peekable();
    std::iter::from_fn(move || {
        let mut run = grains.next()?;
        while grains.next_if(|next| run.merge(next)).is_some() {}
        Some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_zeros_from_data_at_multiples_of_the_grain() {
        let mut bytes = vec![0; 5 * HOLE_ALIGNMENT + 10];
        assert_eq!(
            runs(&bytes).collect::<Vec<_>>(),
            [Run::Zeros(0..bytes.len())]
        );
        bytes[HOLE_ALIGNMENT] = 1;
        bytes[3 * HOLE_ALIGNMENT - 1] = 1;
        let expected = [
            Run::Zeros(0..HOLE_ALIGNMENT),
            Run::Data(HOLE_ALIGNMENT..3 * HOLE_ALIGNMENT),
            Run::Zeros(3 * HOLE_ALIGNMENT..bytes.len()),
        ];
        assert_eq!(runs(&bytes).collect::<Vec<_>>(), expected);
        assert_eq!(runs(&[1]).collect::<Vec<_>>(), [Run::Data(0..1)]);
        assert_eq!(runs(&[]).next(), None);
    }
}
