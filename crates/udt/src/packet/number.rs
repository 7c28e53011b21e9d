// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequence and message numbers, which wrap around.

/// Number modulo `MASK` + 1, a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Number<const MASK: u32>(u32);

/// Sequence number of a data packet, modulo 2³¹ (draft-gg-udt-03 §4.1). It counts packets, not bytes. A retransmitted
/// packet keeps its number.
pub type Seq = Number<0x7fff_ffff>;

/// Message number, modulo 2²⁹ (§4.1). It has no meaning in a stream.
pub type MessageNumber = Number<0x1fff_ffff>;

impl<const MASK: u32> Number<MASK> {
    /// Creates a number from the low bits of `number`.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number & MASK)
    }

    /// Returns the number, 0 to `MASK`.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number `count` steps later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }
}

impl Seq {
    /// Returns the sequence number `count` packets earlier.
    #[must_use]
    pub const fn minus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_sub(count))
    }

    /// Returns the signed distance from `other` in packets, −2³⁰ to 2³⁰ − 1; negative if this number comes before it.
    /// The result is right while the two are less than 2³⁰ apart, as all numbers within a window are.
    #[must_use]
    pub const fn since(self, other: Self) -> i32 {
        ((self.0.wrapping_sub(other.0) << 1) as i32) >> 1
    }

    /// Whether this number comes before `other`.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        self.since(other) < 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wraps_from_the_last_number_to_zero() {
        let last = Seq::new(u32::MAX);
        assert_eq!(last.plus(1), Seq::new(0));
        assert_eq!(Seq::new(0).since(last), 1);
        assert!(last.is_before(Seq::new(0)));
        assert_eq!(MessageNumber::new(u32::MAX).plus(1), MessageNumber::new(0));
    }

    proptest! {
        #[test]
        fn since_inverts_plus(number: u32, count in 0u32..1 << 30) {
            let (first, later) = (Seq::new(number), Seq::new(number).plus(count));
            prop_assert_eq!(later.since(first), count as i32);
            prop_assert_eq!(first.since(later), -(count as i32));
            prop_assert_eq!(later.minus(count), first);
        }
    }
}
