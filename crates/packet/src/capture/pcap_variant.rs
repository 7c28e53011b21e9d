// SPDX-License-Identifier: MIT OR Apache-2.0
//! Variants of pcap files: magic numbers, lengths of record headers, and the order of the two lengths in them.

use super::endianness::Endianness;

/// Magic number, nanoseconds in a unit of the fraction, and possible lengths of a record header. Patched versions of
/// libpcap from 1999 wrote longer headers, some with the old magic number. So did Nokia's version.
type Variant = (u32, u32, &'static [usize]);
const VARIANTS: [Variant; 3] = [
    (0xa1b2_c3d4, 1000, &[16, 24, 20]),
    (0xa1b2_3c4d, 1, &[16]),
    (0xa1b2_cd34, 1000, &[24, 28]),
];

/// Returns the byte order and the variant of a file with this magic number.
pub(super) fn variant(magic: [u8; 4]) -> Option<(Endianness, &'static Variant)> {
    VARIANTS.iter().find_map(|variant| {
        let endianness = Endianness::detect(magic, variant.0)?;
        Some((endianness, variant))
    })
}

/// Order of the captured length and the length on the wire in record headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LengthOrder {
    /// The captured length is first.
    CapturedFirst,
    /// The length on the wire is first.
    WireFirst,
    /// Either is first. The captured length is the lesser one.
    Either,
}

impl LengthOrder {
    /// Returns the order in files of this version, as libpcap reads them (`sf-pcap.c`). The order changed with version
    /// 2.3, and not in all programs at once. DG/UX wrote 543.0.
    pub(super) const fn of_version(major: u16, minor: u16) -> Self {
        match (major, minor) {
            (2, ..3) | (543, _) => Self::WireFirst,
            (2, 3) => Self::Either,
            _ => Self::CapturedFirst,
        }
    }

    /// Returns the captured length and the length on the wire.
    #[inline(always)]
    pub(super) fn apply(self, first: u32, second: u32) -> (u32, u32) {
        let swapped = match self {
            Self::CapturedFirst => false,
            Self::WireFirst => true,
            Self::Either => first > second,
        };
        if !swapped {
            (first, second)
        } else {
            (second, first)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_lengths_depends_on_version() {
        let lengths = |major, minor| {
            let order = LengthOrder::of_version(major, minor);
            [order.apply(60, 1514), order.apply(1514, 60)]
        };
        let as_written = [(60, 1514), (1514, 60)];
        let swapped = [(1514, 60), (60, 1514)];
        assert_eq!(lengths(2, 4), as_written);
        assert_eq!(lengths(1, 2), as_written);
        assert_eq!(lengths(2, 2), swapped);
        assert_eq!(lengths(543, 0), swapped);
        assert_eq!(lengths(2, 3), [(60, 1514), (60, 1514)]);
    }
}
