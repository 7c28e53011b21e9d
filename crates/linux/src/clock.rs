// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two clocks: `CLOCK_MONOTONIC`, in nanoseconds since boot, and `CLOCK_REALTIME`, which can be set and
//! by which the kernel timestamps packets.

use longhaul_units::Time;
use rustix::time::{ClockId, clock_gettime};

/// Returns the time since boot (`CLOCK_MONOTONIC`).
#[must_use]
pub fn now() -> Time {
    read(ClockId::Monotonic)
}

/// Returns the time since the epoch (`CLOCK_REALTIME`).
#[must_use]
pub fn wall() -> Time {
    read(ClockId::Realtime)
}

fn read(clock: ClockId) -> Time {
    let now = clock_gettime(clock);
    Time::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
