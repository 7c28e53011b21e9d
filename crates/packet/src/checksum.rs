// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).

/// Adds the 32-bit words of `bytes` to `initial`, without folding. An incomplete last word is padded with zeros.
#[must_use]
pub fn sum(bytes: &[u8], initial: u64) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let total = words.iter().fold(initial, |sum, word| {
        sum + u64::from(u32::from_be_bytes(*word))
    });
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    total + u64::from(u32::from_be_bytes(last))
}

/// Folds a sum to 16 bits, without complementing it: the value in the checksum field of a NEEDS_CSUM packet.
#[must_use]
pub const fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Returns the checksum of `bytes`: the complement of their folded sum.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u16 {
    !fold(sum(bytes, 0))
}

/// Updates a folded sum after one 16-bit word that it covers changed from `old` to `new` (RFC 1624 §3, for the sum
/// instead of its complement).
#[must_use]
pub const fn replace_word(folded: u16, old: u16, new: u16) -> u16 {
    fold(folded as u64 + !old as u64 + new as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 1071 §3.
    #[test]
    fn sums_the_rfc_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes, 0)), 0xddf2);
    }

    #[test]
    fn pads_an_incomplete_last_word_with_zeros() {
        assert_eq!(sum(&[1, 2, 3, 4, 5], 0), sum(&[1, 2, 3, 4, 5, 0, 0, 0], 0));
    }

    #[test]
    fn replacing_a_word_equals_a_new_sum() {
        let before = fold(sum(&[0x12, 0x34, 0x56, 0x78], 0));
        let after = fold(sum(&[0x12, 0x34, 0x9a, 0xbc], 0));
        assert_eq!(replace_word(before, 0x5678, 0x9abc), after);
    }
}
