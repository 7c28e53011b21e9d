// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parameters of a single socket, instead of those with which its congestion control was loaded.
//!
//! They are in the socket's storage, in the map of the congestion control's connections, before the
//! connection begins (or the congestion control is chosen, if that is later). They can be set by a BPF
//! program that puts [`value`] into that map
//! ([`Loaded::connections`](crate::loader::Loaded::connections)), or [`attach`], which gives the
//! programs of a cgroup a socket option for it.

#[cfg(feature = "bpf")]
mod attach;

#[cfg(feature = "bpf")]
pub use attach::attach;
#[cfg(feature = "bpf")]
pub(crate) use attach::{CONNECTIONS, share_connections};

use crate::math::{Algorithm, Digest};

/// `level` of setsockopt(2).
pub const LEVEL: i32 = 0x6c68;

/// Most parameters of a congestion control (`struct lh_connection`, connections.h).
pub const MAX: usize = 7;

/// Returns `optname` of setsockopt(2) for the parameter at this position; the option's value is an `unsigned int`. The number is a
/// digest of the congestion control's name.
#[must_use]
pub fn option(algorithm: Algorithm, position: usize) -> i32 {
    let mut digest = Digest::default();
    digest.add(algorithm.name().as_bytes());
    // 23 bits, so that it stays positive with the position after it.
    let name = (digest.0 & 0x7f_ffff) as i32;
    name << 8 | position as i32
}

/// Returns the value of a socket's storage (`struct lh_connection`, connections.h). Each setting is a
/// parameter's position and value.
///
/// # Panics
/// If a position is not below [`MAX`].
#[must_use]
pub fn value(settings: &[(usize, u32)]) -> [u8; 4 * (MAX + 1)] {
    let mut words = [0_u32; MAX + 1];
    for &(position, value) in settings {
        words[0] |= 1 << position;
        words[position + 1] = value;
    }
    let mut bytes = [0; 4 * (MAX + 1)];
    let all = words.iter().flat_map(|word| word.to_ne_bytes());
    bytes.iter_mut().zip(all).for_each(|(to, from)| *to = from);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::{algorithms, words};

    #[test]
    fn value_has_a_bit_for_each_setting() {
        let bytes = value(&[(0, 7), (2, 0x0102)]);
        let words: Vec<u32> = words(&bytes).collect();
        assert_eq!(words, [0b101, 7, 0, 0x0102, 0, 0, 0, 0]);
    }

    #[test]
    fn options_are_positive_and_unique() {
        let mut all: Vec<_> = algorithms().map(|algorithm| option(algorithm, 0)).collect();
        let count = all.len();
        assert!(all.iter().all(|option| *option > 0 && option & 0xff == 0));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
