// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time stamps of files.

use rustix::fs::{Stat, Timespec};
use serde::{Deserialize, Serialize};

/// Point in time, to the nanosecond.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Time {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds after that, below 1,000,000,000.
    pub nanos: u32,
}

/// Resolution of time stamps in file systems and protocols, in nanoseconds.
const RESOLUTIONS: [u32; 6] = [
    1,             // ext4, XFS, Btrfs
    100,           // SMB, NTFS
    1_000,         // some file servers
    1_000_000,     // some file servers
    10_000_000,    // exFAT
    1_000_000_000, // ext3, HFS+, SFTP
];

impl Time {
    /// Whether a file system that was given this time may have stored it as `stored`, truncated to its resolution.
    /// If the resolution is a second, two changes within one second look the same, as for every program that compares
    /// times.
    #[must_use]
    pub fn matches_stored(&self, stored: &Self) -> bool {
        let truncated = |resolution: u32| self.nanos - self.nanos % resolution;
        self.seconds == stored.seconds
            && RESOLUTIONS
                .iter()
                .any(|resolution| truncated(*resolution) == stored.nanos)
    }
}

/// Modification time of the data.
pub(crate) fn modified(stat: &Stat) -> Time {
    time(stat.st_mtime, stat.st_mtime_nsec)
}

/// Converts a kernel time. The types of the fields depend on the processor.
pub(crate) fn time<S: Into<i64>, N: TryInto<u32>>(seconds: S, nanos: N) -> Time {
    Time {
        seconds: seconds.into(),
        nanos: nanos.try_into().unwrap_or(0),
    }
}

/// Converts to a kernel time. Nanoseconds are limited, because larger values have other meanings to
/// the kernel.
pub(super) fn timespec(time: Time) -> Timespec {
    Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanos.min(999_999_999).into(),
    }
}
