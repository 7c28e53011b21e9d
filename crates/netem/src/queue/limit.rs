// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limit of a queue, as the user sets it and as numbers.

use crate::grammar::{parse_text, parse_whole};
use longhaul_units::Bytes;
use std::{fmt, str::FromStr};

/// Limit of a queue, as the user sets it. The segment that is being transmitted does not count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QueueLimit {
    /// Limit in bytes.
    Bytes(Bytes),
    /// Limit in segments.
    Packets(u32),
    /// Limit in bandwidth–delay products of this link alone: rate × 2 × delay at the time when the
    /// limit is set. A later change of rate or delay leaves the limit as it is.
    Bdp(f64),
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => f.write_str(&bytes.exact()),
            Self::Packets(packets) => write!(f, "{packets}p"),
            Self::Bdp(factor) => write!(f, "{factor}bdp"),
        }
    }
}

impl FromStr for QueueLimit {
    type Err = String;

    fn from_str(value: &str) -> Result<Self, String> {
        if let Some(factor) = value.strip_suffix("bdp") {
            let factor = factor.trim().parse().unwrap_or(f64::NAN);
            return match factor {
                f if f > 0.0 && f <= 1_000.0 => Ok(Self::Bdp(f)),
                _ => Err("the number before bdp must be above 0 and at most 1000".to_owned()),
            };
        }
        if let Some(packets) = value.strip_suffix('p') {
            return parse_whole(packets, 1, 100_000_000).map(Self::Packets);
        }
        if value.parse::<f64>().is_ok_and(|number| number == 0.0) {
            return Err("a queue of 0 holds nothing: say 1p for one packet".to_owned());
        }
        if value.parse::<f64>().is_ok_and(|number| number > 0.0) {
            return Err(format!(
                "{value:?} has no unit: say {value}p for packets, {value}KB for bytes or 1bdp"
            ));
        }
        match parse_text(value)? {
            bytes if bytes > Bytes::new(0) => Ok(Self::Bytes(bytes)),
            _ => Err("a queue of 0 bytes holds nothing: say 1p for one packet".to_owned()),
        }
    }
}

/// Limit of a queue as numbers of bytes and of segments, which both apply. The segment that is being transmitted does
/// not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueCapacity {
    /// Most bytes that may wait.
    pub bytes: u64,
    /// Most segments that may wait.
    pub packets: usize,
}

impl QueueCapacity {
    /// Whether a segment of `len` bytes may join a queue of `packets` segments with `bytes` bytes in all.
    #[must_use]
    pub fn admits(&self, bytes: u64, packets: usize, len: u32) -> bool {
        bytes + u64::from(len) <= self.bytes && packets < self.packets
    }
}
