// SPDX-License-Identifier: MIT OR Apache-2.0
//! Record boundaries of a capture file: the types with which pcap and pcapng report them, and the search for them after
//! damage.

use super::DamageKind;

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

/// Returns the first of `offsets` for which `check` does not answer [`SyncCheck::No`].
pub(crate) fn resync(
    offsets: impl IntoIterator<Item = usize>,
    check: impl Fn(usize) -> SyncCheck,
) -> Resync {
    for at in offsets {
        match check(at) {
            SyncCheck::Yes => return Resync::At(at),
            SyncCheck::Undecided(need) => return Resync::Undecided { at, need },
            SyncCheck::No => {}
        }
    }
    Resync::NotFound
}
