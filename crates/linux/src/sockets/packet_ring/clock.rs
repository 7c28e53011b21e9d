// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choice of the clock that timestamps packets: the network card's, if it timestamps every packet and is
//! synchronized with the system clock; else the system clock.
//!
//! A card timestamps received packets; sent ones have the system's time. So a card whose clock is not
//! synchronized, or has TAI as set by ptp4l, would give the two directions different times.

use crate::{clock, network::ethtool};
use longhaul_units::Time;
use rustix::time::{DynamicClockId, clock_gettime_dynamic};
use std::{fs::File, io, os::fd::AsFd};

/// Source of packet timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The kernel, when the packet passes the packet socket above the driver.
    Software,
    /// The network card for received packets; the kernel for sent ones.
    Hardware,
}

/// State of a network card's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HardwareClock {
    /// No clock that timestamps every received packet.
    Absent,
    /// The clock has this offset from the system clock.
    Offset(Time),
    /// The clock agrees with the system clock within 20 µs.
    Synchronized,
}

/// Largest offset of a synchronized clock: easily reached by phc2sys, and a small part of a round trip.
const OFFSET_MAX: Time = Time::from_micros(20);

impl HardwareClock {
    /// Examines the clock of an interface of this thread's network namespace.
    pub fn of(interface: &str) -> io::Result<Self> {
        let Some(number) = ethtool::receive_clock(interface)? else {
            return Ok(Self::Absent);
        };
        let offset = offset(&File::open(format!("/dev/ptp{number}"))?)?;
        Ok(if offset <= OFFSET_MAX {
            Self::Synchronized
        } else {
            Self::Offset(offset)
        })
    }
}

/// Returns the offset of a PTP clock from the system clock, within half the time that reading it took.
fn offset(ptp: &File) -> io::Result<Time> {
    let before = clock::wall().as_nanos();
    let ptp_time = clock_gettime_dynamic(DynamicClockId::Dynamic(ptp.as_fd()))?;
    let after = clock::wall().as_nanos();
    let ptp_time = ptp_time.tv_sec as u64 * 1_000_000_000 + ptp_time.tv_nsec as u64;
    Ok(Time::from_nanos(ptp_time.abs_diff(before.midpoint(after))))
}
