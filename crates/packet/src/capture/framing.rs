// SPDX-License-Identifier: MIT OR Apache-2.0
//! What both formats answer when they are asked where records begin and end.

use super::Fault;

/// Longest record that is believed, in bytes, its header included: 16 MiB. A longer one is damage.
pub const RECORD_MAX: usize = 16 << 20;

/// What stands at the beginning of the bytes, where no run of whole, sound records does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// A record of this length after all.
    Record(usize),
    /// A block that changes how those after it are to be read, of this length.
    Header(usize),
    /// Damage of this length, with something sound after it or the end of the file.
    Damage(usize, Fault),
    /// Damage, nobody knows yet how long.
    Lost(Fault),
    /// It takes so many bytes to say.
    More(usize),
}

/// Whether records begin at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guess {
    Yes,
    No,
    /// It takes the bytes up to this offset to say.
    Unsure(usize),
}

/// Where records begin again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Search {
    /// Here.
    At(usize),
    /// Not before `at`, about which the bytes up to `need` will tell.
    Unsure { at: usize, need: usize },
    /// Nowhere in these bytes.
    Nowhere,
}

/// The first of the places about which the guess is not no.
pub(crate) fn search(
    places: impl IntoIterator<Item = usize>,
    guess: impl Fn(usize) -> Guess,
) -> Search {
    for at in places {
        match guess(at) {
            Guess::Yes => return Search::At(at),
            Guess::Unsure(need) => return Search::Unsure { at, need },
            Guess::No => {}
        }
    }
    Search::Nowhere
}
