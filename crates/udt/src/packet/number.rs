// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers that wrap around.

/// A number modulo `MASK` + 1, a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Number<const MASK: u32>(u32);

/// The number of a data packet, modulo 2³¹ (draft-gg-udt-03 §4.1). Packets are counted, not bytes; a
/// packet that is sent again keeps its number.
pub type Seq = Number<0x7fff_ffff>;

/// The number of a message, modulo 2²⁹ (§4.1): of a stream it says nothing.
pub type MessageNumber = Number<0x1fff_ffff>;

impl<const MASK: u32> Number<MASK> {
    /// The low bits of `number`.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number & MASK)
    }

    /// 0 to `MASK`.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// `count` later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }
}

impl Seq {
    /// `count` packets earlier.
    #[must_use]
    pub const fn minus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_sub(count))
    }

    /// How many packets this one comes after `other`: −2³⁰ to 2³⁰ − 1, negative if it comes before it.
    /// Right as long as the two are less than 2³⁰ apart, as all are within a window.
    #[must_use]
    pub const fn since(self, other: Self) -> i32 {
        ((self.0.wrapping_sub(other.0) << 1) as i32) >> 1
    }

    /// Whether it comes before `other`.
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
    fn the_last_is_followed_by_the_first() {
        let last = Seq::new(u32::MAX);
        assert_eq!(last.plus(1), Seq::new(0));
        assert_eq!(Seq::new(0).since(last), 1);
        assert!(last.is_before(Seq::new(0)));
        assert_eq!(MessageNumber::new(u32::MAX).plus(1), MessageNumber::new(0));
    }

    proptest! {
        #[test]
        fn since_undoes_plus(number: u32, count in 0u32..1 << 30) {
            let (first, later) = (Seq::new(number), Seq::new(number).plus(count));
            prop_assert_eq!(later.since(first), count as i32);
            prop_assert_eq!(first.since(later), -(count as i32));
            prop_assert_eq!(later.minus(count), first);
        }
    }
}
