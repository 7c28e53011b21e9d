// SPDX-License-Identifier: MIT OR Apache-2.0
//! Record boundaries of a capture file: the types with which pcap and pcapng report them, and the search for them after
//! damage.

use super::DamageKind;
use std::ops::Range;

/// Maximum length of a record, header included: 16 MiB. A greater length counts as damage.
pub const RECORD_MAX: usize = 16 << 20;

/// Classification of the bytes at the reader's offset, unless a run of whole, valid records begins there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Classification {
    /// A valid record of this length.
    Record(usize),
    /// A valid record of this length, whose time is far from those of its neighbours, and the time that replaces it, in
    /// nanoseconds since 1970.
    FarOff(usize, u64),
    /// A block of this length that changes how later blocks are read.
    Header(usize),
    /// Damage of this length, followed by a valid record or the end of the file.
    Damage(usize, DamageKind),
    /// Damage of a length that is not known yet: the reader must find the next record.
    OutOfSync(DamageKind),
    /// Undecided: this number of bytes is needed to decide.
    More(usize),
}

/// Whether a run of records begins at an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncCheck {
    Yes,
    No,
    /// The bytes up to this offset are needed to decide.
    Undecided(usize),
}

/// Result of a search for the next record after damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resync {
    /// Records begin at this offset.
    At(usize),
    /// Records do not begin before `at`. The bytes up to `need` are needed to decide about `at`.
    Undecided { at: usize, need: usize },
    /// The bytes have no record boundary.
    NotFound,
}

/// Returns the first of `offsets` for which `check` does not answer [`SyncCheck::No`]. No record has four zeros at offset
/// `nonzero`, so that zeros are skipped at once: a preallocated or compressed file can have gigabytes of them.
pub(crate) fn resync(
    bytes: &[u8],
    offsets: Range<usize>,
    nonzero: usize,
    check: impl Fn(usize) -> SyncCheck,
) -> Resync {
    let mut at = offsets.start;
    while at < offsets.end {
        match check(at) {
            SyncCheck::Yes => return Resync::At(at),
            SyncCheck::Undecided(need) => return Resync::Undecided { at, need },
            SyncCheck::No if bytes.get(at + nonzero) == Some(&0) => {
                at = skip_zeros(bytes, at + 1, nonzero);
            }
            SyncCheck::No => at += 1,
        }
    }
    Resync::NotFound
}

/// Returns the first offset from `at` on whose four bytes at `nonzero` are not all zero, or are not all there.
fn skip_zeros(bytes: &[u8], at: usize, nonzero: usize) -> usize {
    let rest = bytes.get(at + nonzero..).unwrap_or_default();
    let zeros = rest
        .iter()
        .position(|byte| *byte != 0)
        .unwrap_or(rest.len());
    at + zeros.saturating_sub(3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Searches for a record whose four bytes at offset 8 are a 1 in little-endian order. Returns the result and the number
    /// of offsets that were checked.
    fn search(bytes: &[u8]) -> (Resync, u32) {
        let checks = Cell::new(0);
        let check = |at: usize| {
            checks.set(checks.get() + 1);
            match bytes.get(at + 8..at + 12) {
                None => SyncCheck::Undecided(at + 12),
                Some([1, 0, 0, 0]) => SyncCheck::Yes,
                Some(_) => SyncCheck::No,
            }
        };
        let found = resync(bytes, 0..bytes.len(), 8, check);
        (found, checks.get())
    }

    #[test]
    fn zeros_are_skipped_at_once() {
        let mut bytes = vec![0; 1 << 20];
        let cut = Resync::Undecided {
            at: (1 << 20) - 11,
            need: (1 << 20) + 1,
        };
        assert_eq!(search(&bytes), (cut, 2));
        bytes[500_008] = 1;
        let (found, checks) = search(&bytes);
        assert_eq!(found, Resync::At(500_000));
        assert!(checks < 10, "{checks}");
    }

    #[test]
    fn skipped_zeros_hide_no_record() {
        for zeros in 0..20 {
            for before in [&[][..], &[7], &[1, 0, 0], &[0, 0, 7, 0]] {
                let bytes = [before, &vec![0; zeros + 8], &[1, 0, 0, 0]].concat();
                let expected = bytes
                    .windows(4)
                    .skip(8)
                    .position(|word| word == [1, 0, 0, 0]);
                let (found, _) = search(&bytes);
                assert_eq!(found, Resync::At(expected.unwrap()), "{bytes:?}");
            }
        }
    }
}
