// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one clock, `CLOCK_MONOTONIC` as nanoseconds since boot, and the clock of the wall, which can
//! be set and by which the kernel stamps packets.

use longhaul_units::Time;
use rustix::time::{ClockId, clock_gettime};

/// Now, since boot.
#[must_use]
pub fn now() -> Time {
    read(ClockId::Monotonic)
}

/// Now, since the epoch (`CLOCK_REALTIME`).
#[must_use]
pub fn wall() -> Time {
    read(ClockId::Realtime)
}

fn read(clock: ClockId) -> Time {
    let now = clock_gettime(clock);
    Time::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
