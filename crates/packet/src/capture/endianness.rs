// SPDX-License-Identifier: MIT OR Apache-2.0
//! Byte order of a capture file, which is that of the machine that wrote it.

/// Byte order of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endianness {
    /// The least significant byte comes first.
    Little,
    /// The most significant byte comes first.
    Big,
}

impl Endianness {
    /// Returns the order in which the four bytes are `number`; `None` if neither order gives it.
    pub(crate) fn detect(bytes: [u8; 4], number: u32) -> Option<Self> {
        [Self::Little, Self::Big]
            .into_iter()
            .find(|endianness| endianness.number(bytes) == number)
    }

    fn number(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// Reads the 16 bits at `at`, which must lie inside `bytes`.
    pub(crate) fn u16<const N: usize>(self, bytes: &[u8; N], at: usize) -> u16 {
        let bytes = [bytes[at], bytes[at + 1]];
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    /// Reads the 32 bits at `at`, which must lie inside `bytes`.
    pub(crate) fn u32<const N: usize>(self, bytes: &[u8; N], at: usize) -> u32 {
        self.number([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    }

    /// Reads the 64 bits at `at`, which must lie inside `bytes`.
    pub(crate) fn u64<const N: usize>(self, bytes: &[u8; N], at: usize) -> u64 {
        let (first, second) = (self.u32(bytes, at), self.u32(bytes, at + 4));
        match self {
            Self::Little => join_halves(second, first),
            Self::Big => join_halves(first, second),
        }
    }
}

/// Joins the more and the less significant half of a number.
pub(crate) fn join_halves(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}
