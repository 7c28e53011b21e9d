// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where packets were captured, how its times are to be read, and what was not captured.

use super::LinkType;
use std::sync::Arc;

/// One interface of a capture file. A pcap file has one, without a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name, at most [`NAME_MAX`] bytes of it; `left` and `right` in captures of `longhaul link`.
    pub name: Option<Arc<str>>,
    /// What its frames begin with.
    pub link_type: LinkType,
    /// Most bytes that were kept of a frame; 0 is no limit.
    pub snaplen: u32,
    /// How its time stamps are to be read.
    pub(crate) clock: Clock,
}

/// Most bytes that are kept of an interface's name.
pub const NAME_MAX: usize = 256;

/// Most interfaces of a file, whose packets are read: some 200 kB without the names.
pub const INTERFACES_MAX: usize = 4096;

/// What one interface counted, if it says so (pcapng's interface statistics block, §4.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Which of the file's interfaces, as in [`Frame::interface`](super::Frame::interface).
    pub interface: u32,
    /// When it counted, nanoseconds since 1970.
    pub at_ns: u64,
    /// Packets that the interface received (`isb_ifrecv`).
    pub received: Option<u64>,
    /// Packets that the interface dropped, for want of room (`isb_ifdrop`).
    pub if_dropped: Option<u64>,
    /// Packets that the operating system dropped (`isb_osdrop`).
    pub os_dropped: Option<u64>,
}

/// From a time stamp to nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clock {
    unit: Unit,
    offset_ns: i64,
}

/// What one count of a time stamp is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// So many nanoseconds.
    Nanoseconds(u64),
    /// A nanosecond has so many of it.
    PerNanosecond(u64),
    /// 2⁻ⁿ seconds.
    Binary(u8),
}

/// In nanoseconds.
const SECOND: i64 = 1_000_000_000;

impl Clock {
    /// Microseconds, which is what pcapng has unless it says otherwise.
    pub(crate) const MICROSECONDS: Self = Self {
        unit: Unit::Nanoseconds(1000),
        offset_ns: 0,
    };

    /// With the unit of `if_tsresol`: 10⁻ⁿ s, or 2⁻ⁿ s if the highest bit is set.
    pub(crate) fn with_resolution(self, resolution: u8) -> Self {
        let exponent = resolution & 0x7f;
        let power = |n: u8| 10_u64.checked_pow(u32::from(n)).unwrap_or(u64::MAX);
        let unit = match resolution {
            0x80.. => Unit::Binary(exponent),
            ..=9 => Unit::Nanoseconds(power(9 - exponent)),
            _ => Unit::PerNanosecond(power(exponent - 9)),
        };
        Self { unit, ..self }
    }

    /// With the seconds of `if_tsoffset`, which are to be added.
    pub(crate) fn with_offset(self, seconds: i64) -> Self {
        let offset_ns = seconds.saturating_mul(SECOND);
        Self { offset_ns, ..self }
    }

    /// What does not fit becomes the greatest or the least that does.
    #[inline]
    pub(crate) fn nanoseconds(self, stamp: u64) -> u64 {
        let ns = match self.unit {
            Unit::Nanoseconds(each) => stamp.saturating_mul(each),
            Unit::PerNanosecond(count) => stamp / count,
            Unit::Binary(exponent) => binary(stamp, exponent),
        };
        ns.saturating_add_signed(self.offset_ns)
    }
}

/// 2⁻ⁿ seconds as nanoseconds: below 2⁶⁴ · 10⁹, which has room in 128 bits.
fn binary(stamp: u64, exponent: u8) -> u64 {
    let ns = (u128::from(stamp) * u128::from(SECOND.unsigned_abs())) >> exponent;
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(resolution: u8, stamp: u64) -> u64 {
        Clock::MICROSECONDS
            .with_resolution(resolution)
            .nanoseconds(stamp)
    }

    #[test]
    fn resolutions_are_powers_of_ten_or_two() {
        assert_eq!(Clock::MICROSECONDS.nanoseconds(5), 5000);
        assert_eq!(ns(6, 5), 5000);
        assert_eq!(ns(9, 5), 5);
        assert_eq!(ns(0, 5), 5_000_000_000);
        assert_eq!(ns(12, 5999), 5);
        assert_eq!(ns(0x80 | 10, 1536), 1_500_000_000);
        assert_eq!(ns(0x80 | 32, (7 << 32) + (1 << 31)), 7_500_000_000);
        assert_eq!(ns(0x80, 3), 3_000_000_000);
    }

    #[test]
    fn what_does_not_fit_is_bounded() {
        assert_eq!(ns(0, u64::MAX), u64::MAX);
        assert_eq!(ns(0x80, u64::MAX), u64::MAX);
        assert_eq!(ns(0xff, u64::MAX), 0);
        assert_eq!(ns(0x7f, u64::MAX - 1), 0);
        let late = Clock::MICROSECONDS.with_offset(i64::MAX);
        assert_eq!(late.nanoseconds(0), i64::MAX as u64);
        let early = Clock::MICROSECONDS.with_offset(-5);
        assert_eq!(early.nanoseconds(7_000_000), 2_000_000_000);
        assert_eq!(early.nanoseconds(1), 0);
    }
}
