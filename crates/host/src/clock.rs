// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one clock: `CLOCK_MONOTONIC` as nanoseconds since boot.

use rustix::time::{ClockId, clock_gettime};
use units::Time;

/// Now, since boot.
#[must_use]
pub fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
