// SPDX-License-Identifier: MIT OR Apache-2.0
//! The byte order of a capture file, which is that of the machine that wrote it.

/// Which byte of a number comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The least significant.
    Little,
    /// The most significant.
    Big,
}

impl Order {
    /// The order in which the four bytes are this number.
    pub(crate) fn of(bytes: [u8; 4], number: u32) -> Option<Self> {
        [Self::Little, Self::Big]
            .into_iter()
            .find(|order| order.number(bytes) == number)
    }

    fn number(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// The 16 bits at `at`, which must lie inside.
    pub(crate) fn u16<const N: usize>(self, bytes: &[u8; N], at: usize) -> u16 {
        let bytes = [bytes[at], bytes[at + 1]];
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    /// The 32 bits at `at`, which must lie inside.
    pub(crate) fn u32<const N: usize>(self, bytes: &[u8; N], at: usize) -> u32 {
        self.number([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    }

    /// The 64 bits at `at`, which must lie inside.
    pub(crate) fn u64<const N: usize>(self, bytes: &[u8; N], at: usize) -> u64 {
        let (first, second) = (self.u32(bytes, at), self.u32(bytes, at + 4));
        match self {
            Self::Little => halves(second, first),
            Self::Big => halves(first, second),
        }
    }
}

/// Of the more and the less significant half.
pub(crate) fn halves(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}
