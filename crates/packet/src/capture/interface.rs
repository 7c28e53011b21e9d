// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interfaces of a capture: their names, link types, timestamps and packet counts.

use super::LinkType;
use std::sync::Arc;

/// An interface of a capture file. A pcap file has a single one, without a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Name, cut to [`NAME_MAX`] bytes. `left` and `right` in captures of `longhaul link`.
    pub name: Option<Arc<str>>,
    /// Link-layer header type of the interface's frames.
    pub link_type: LinkType,
    /// Most bytes that were captured of a frame; 0 is no limit.
    pub snaplen: u32,
    /// Unit and offset of the interface's timestamps.
    pub(crate) clock: Clock,
}

/// Most bytes that are stored of an interface's name.
pub const NAME_MAX: usize = 256;

/// Most interfaces of a file; packets of further ones count as damage. Memory: some 200 kB without the names.
pub const INTERFACES_MAX: usize = 4096;

/// Packet counts of an interface (pcapng's interface statistics block, §4.6); `None` for a count that the file lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Number of the interface in the file, as in [`Frame::interface`](super::Frame::interface).
    pub interface: u32,
    /// Time of the counts, in nanoseconds since 1970, UTC.
    pub timestamp_ns: u64,
    /// Packets that the interface received (`isb_ifrecv`).
    pub received: Option<u64>,
    /// Packets that the interface dropped because its buffers were full (`isb_ifdrop`).
    pub if_dropped: Option<u64>,
    /// Packets that the operating system dropped (`isb_osdrop`).
    pub os_dropped: Option<u64>,
}

/// Conversion of an interface's timestamps to nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clock {
    unit: Unit,
    offset_ns: i64,
}

/// Unit of timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Nanoseconds in a unit.
    Nanoseconds(u64),
    /// Units in a nanosecond.
    PerNanosecond(u64),
    /// A unit of 2⁻ⁿ seconds.
    Binary(u8),
}

/// Nanoseconds in a second.
const SECOND_NS: i64 = 1_000_000_000;

impl Clock {
    /// Microseconds, the default of pcapng.
    pub(crate) const MICROSECONDS: Self = Self {
        unit: Unit::Nanoseconds(1000),
        offset_ns: 0,
    };

    /// Sets the unit from `if_tsresol`: 10⁻ⁿ s, or 2⁻ⁿ s if the highest bit is set.
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

    /// Sets the offset from `if_tsoffset`, in seconds to be added to every timestamp.
    pub(crate) fn with_offset(self, seconds: i64) -> Self {
        let offset_ns = seconds.saturating_mul(SECOND_NS);
        Self { offset_ns, ..self }
    }

    /// Converts a timestamp to nanoseconds since 1970. A time out of range saturates.
    #[inline]
    pub(crate) fn nanoseconds(self, timestamp: u64) -> u64 {
        let ns = match self.unit {
            Unit::Nanoseconds(each) => timestamp.saturating_mul(each),
            Unit::PerNanosecond(count) => timestamp / count,
            Unit::Binary(exponent) => binary_to_ns(timestamp, exponent),
        };
        ns.saturating_add_signed(self.offset_ns)
    }
}

/// Converts units of 2⁻ⁿ seconds to nanoseconds. The product is below 2⁶⁴ · 10⁹, which fits into 128 bits.
fn binary_to_ns(timestamp: u64, exponent: u8) -> u64 {
    let ns = (u128::from(timestamp) * u128::from(SECOND_NS.unsigned_abs())) >> exponent;
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(resolution: u8, timestamp: u64) -> u64 {
        Clock::MICROSECONDS
            .with_resolution(resolution)
            .nanoseconds(timestamp)
    }

    #[test]
    fn reads_resolutions_as_powers_of_ten_or_two() {
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
    fn saturates_times_out_of_range() {
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
