// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose clock stamps packets: the network card's, where it stamps them all and tells the time of the
//! system; else the system's.
//!
//! A card stamps what it receives; what is sent bears the system's time. So a card whose clock runs by
//! itself, or shows TAI as ptp4l leaves it, would put the two directions apart.

use crate::{clock, network::ethtool};
use longhaul_units::Time;
use rustix::time::{DynamicClockId, clock_gettime_dynamic};
use std::{fs::File, io, os::fd::AsFd};

/// Where times come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The kernel, as the packet passes the packet socket: above the driver.
    Software,
    /// The network card, as the packet comes in; the kernel for what goes out.
    Hardware,
}

/// What a network card's clock is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HardwareClock {
    /// There is none that stamps every packet received.
    Absent,
    /// It is so far from the system's.
    Offset(Time),
    /// It is the system's, to 20 µs.
    Synchronized,
}

/// What phc2sys holds with ease; a fraction of any round trip that matters here.
const OFFSET_MAX: Time = Time::from_micros(20);

impl HardwareClock {
    /// The clock of an interface of this thread's network namespace.
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

/// How far a PTP clock is from the system's, give or take half the time that reading it took.
fn offset(ptp: &File) -> io::Result<Time> {
    let before = clock::wall().as_nanos();
    let theirs = clock_gettime_dynamic(DynamicClockId::Dynamic(ptp.as_fd()))?;
    let after = clock::wall().as_nanos();
    let theirs = theirs.tv_sec as u64 * 1_000_000_000 + theirs.tv_nsec as u64;
    Ok(Time::from_nanos(theirs.abs_diff(before.midpoint(after))))
}
