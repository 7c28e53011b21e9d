// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of a file.

use rustix::fs::{Stat, Timespec};
use serde::{Deserialize, Serialize};

/// A moment, to the nanosecond.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Time {
    /// Seconds since 1970, before it if negative.
    pub seconds: i64,
    /// Nanoseconds after that, below a thousand million.
    pub nanos: u32,
}

/// Nanoseconds in the units in which file systems keep times: ext4, XFS, Btrfs; SMB and NTFS; some servers; exFAT; ext3,
/// HFS+, SFTP.
const UNITS: [u32; 6] = [1, 100, 1_000, 1_000_000, 10_000_000, 1_000_000_000];

impl Time {
    /// Whether a file system that was given this time may have kept it as `kept`, cut to its unit. Where that is a second, what
    /// changed within one passes for the same, as it does there for everyone who looks at times.
    #[must_use]
    pub fn is_kept_as(&self, kept: &Self) -> bool {
        let cut = |unit: u32| self.nanos - self.nanos % unit;
        self.seconds == kept.seconds && UNITS.iter().any(|unit| cut(*unit) == kept.nanos)
    }
}

/// When the data of what was looked at last changed.
pub(crate) fn modified(stat: &Stat) -> Time {
    time(stat.st_mtime, stat.st_mtime_nsec)
}

/// The types of these fields depend on the processor.
pub(crate) fn time<S: Into<i64>, N: TryInto<u32>>(seconds: S, nanos: N) -> Time {
    Time {
        seconds: seconds.into(),
        nanos: nanos.try_into().unwrap_or(0),
    }
}

/// Larger values of nanoseconds have other meanings to the system.
pub(super) fn timespec(time: Time) -> Timespec {
    Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanos.min(999_999_999).into(),
    }
}
