// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arrival times of the packets of one direction.
//!
//! A packet waits in the interface until the forwarding thread reads it: for microseconds on an idle machine, for
//! milliseconds beside other load, and for as long as the process is stopped. The kernel's log of the interface has
//! the time at which the packet was sent. The line gets that time, so the wait does not change the path while the delay
//! is longer, and what is late in the end counts as late.

use longhaul_linux::{clock, packet_ring::TransmitLog};
use longhaul_units::Time;

/// Age of log entries that are surely of packets that the interface dropped, once nothing is left to read. The kernel
/// logs a packet some microseconds before it can be read.
const STALE: Time = Time::from_millis(1);

/// Arrival times of one direction. Packets are read in the order of their arrival.
#[derive(Debug)]
pub(super) struct ArrivalClock {
    /// The kernel's log; without it, a packet arrives when it is read.
    log: Option<TransmitLog>,
    /// Every packet that arrived before this time has been read.
    complete_until: Time,
    /// Whether the log lacks packets that can be read, because it was full. It is in step again when nothing is left to
    /// read.
    out_of_step: bool,
}

impl ArrivalClock {
    pub(super) fn new(log: Option<TransmitLog>, start: Time) -> Self {
        Self {
            log,
            complete_until: start,
            out_of_step: false,
        }
    }

    /// Every packet that arrived before this time has been read.
    pub(super) fn complete_until(&self) -> Time {
        self.complete_until
    }

    /// Returns the arrival time of a packet that was read just now, at `now`.
    pub(super) fn arrival(&mut self, packet: &[u8], now: Time) -> Time {
        let sent = self.take_from_log(packet).unwrap_or(now);
        self.complete_until = sent.min(now).max(self.complete_until);
        self.complete_until
    }

    /// Takes note that at `now` nothing was left to read.
    pub(super) fn drained(&mut self, now: Time) {
        self.complete_until = self.complete_until.max(now);
        self.out_of_step = false;
        let Some(log) = &mut self.log else { return };
        if let Some(oldest) = log.get(0)
            && since_boot(oldest.wall) + STALE < now
        {
            let limit = clock::wall() - STALE;
            while log.get(0).is_some_and(|sent| sent.wall < limit) {
                log.remove(1);
            }
        }
    }

    /// Removes a packet from the log, and the earlier ones, which the interface dropped. Returns its time.
    fn take_from_log(&mut self, packet: &[u8]) -> Option<Time> {
        let log = self.log.as_mut().filter(|_| !self.out_of_step)?;
        let mut earlier = 0;
        while let Some(sent) = log.get(earlier) {
            if sent.len == packet.len() && packet.starts_with(sent.head) {
                let at = since_boot(sent.wall);
                log.remove(earlier + 1);
                return Some(at);
            }
            earlier += 1;
        }
        self.out_of_step = true;
        None
    }
}

/// Converts a time of the wall clock, which can be set, to the time since boot.
fn since_boot(wall: Time) -> Time {
    clock::now() - clock::wall().since(wall)
}
