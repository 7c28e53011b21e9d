// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of the relay. Any thread adds, one thread reads.

use crate::{faults::warnings::PasswordOutcome, records::times::Times};
use longhaul_admin::relay_record::{Counts, ListenerCounts, PasswordCounts};
use longhaul_admission::rate_limits::Direction;
use longhaul_protocol::failure::Failure;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Relayed bytes in each direction.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    up: AtomicU64,
    down: AtomicU64,
}

impl Traffic {
    pub(crate) fn add(&self, direction: Direction, bytes: usize) {
        let counter = match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        };
        counter.fetch_add(bytes as u64, Relaxed);
    }

    /// Returns the bytes up and down.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.up.load(Relaxed), self.down.load(Relaxed))
    }
}

/// Pauses of reading in one connection, because the other side takes no bytes. Nothing is read
/// until it does, so that the sender's window fills (back-pressure).
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    up: AtomicU64,
    down: AtomicU64,
    held_bytes: AtomicU64,
}

impl Pauses {
    /// Begins a pause of this direction, with `bytes` read and not yet written. The pause ends when
    /// the guard is dropped.
    pub(crate) fn begin(&self, direction: Direction, bytes: usize) -> Pause<'_> {
        let transitions = self.transitions(direction);
        transitions.fetch_add(1, Relaxed);
        Pause {
            transitions,
            _held: GaugeGuard::new(&self.held_bytes, bytes as u64),
        }
    }

    /// Returns the bytes that were read and not written at the beginning of the present pauses.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Relaxed)
    }

    /// Returns the number of pauses so far, and whether one is active.
    pub(crate) fn read(&self, direction: Direction) -> (u64, bool) {
        let transitions = self.transitions(direction).load(Relaxed);
        (transitions.div_ceil(2), transitions % 2 == 1)
    }

    /// Returns the counter of beginnings and ends, which alternate.
    fn transitions(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }
}

/// An active pause.
#[derive(Debug)]
pub(crate) struct Pause<'a> {
    transitions: &'a AtomicU64,
    _held: GaugeGuard<'a>,
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.transitions.fetch_add(1, Relaxed);
    }
}

/// Passwords that did not let a client in at once.
#[derive(Debug, Default)]
struct Passwords {
    wrong: AtomicU64,
    delayed: AtomicU64,
    unchecked: AtomicU64,
}

impl Passwords {
    fn read(&self) -> PasswordCounts {
        PasswordCounts {
            wrong: self.wrong.load(Relaxed),
            delayed: self.delayed.load(Relaxed),
            unchecked: self.unchecked.load(Relaxed),
        }
    }
}

/// Counters of one listener.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    accepted: AtomicU64,
    active: AtomicU64,
    bypassed: AtomicU64,
    failed: [AtomicU64; Failure::ALL.len()],
    passwords: Passwords,
    pub(crate) traffic: Traffic,
    pub(crate) times: Times,
    /// Bytes taken from one leg and not yet given to the other, without kernel socket buffers.
    buffered: AtomicU64,
}

impl Counters {
    /// Counts an active connection until the guard is dropped.
    pub(crate) fn count_connection(&self) -> GaugeGuard<'_> {
        self.accepted.fetch_add(1, Relaxed);
        GaugeGuard::new(&self.active, 1)
    }

    /// Counts bytes as buffered until the guard is dropped.
    pub(crate) fn count_buffered(&self, bytes: usize) -> GaugeGuard<'_> {
        GaugeGuard::new(&self.buffered, bytes as u64)
    }

    pub(crate) fn count_failure(&self, failure: Failure) {
        self.failed[failure as usize].fetch_add(1, Relaxed);
    }

    /// Counts a password that is checked after a delay.
    pub(crate) fn count_password_delay(&self) {
        self.passwords.delayed.fetch_add(1, Relaxed);
    }

    /// Counts a password that does not let its client in.
    pub(crate) fn count_password(&self, outcome: PasswordOutcome) {
        let counter = match outcome {
            PasswordOutcome::Wrong => &self.passwords.wrong,
            PasswordOutcome::NotChecked => &self.passwords.unchecked,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// Counts a connection that was made directly to its destination, since the relay had no free
    /// resources.
    pub(crate) fn count_bypass(&self) {
        self.bypassed.fetch_add(1, Relaxed);
    }

    pub(crate) fn read(&self) -> Counts {
        let (bytes_up, bytes_down) = self.traffic.read();
        let failed = Failure::ALL.into_iter().zip(&self.failed);
        Counts {
            accepted: self.accepted.load(Relaxed),
            active: self.active.load(Relaxed),
            bypassed: self.bypassed.load(Relaxed),
            failed: failed
                .map(|(failure, count)| (failure.to_string(), count.load(Relaxed)))
                .filter(|(_, count)| *count > 0)
                .collect(),
            bytes_up,
            bytes_down,
            bytes_buffered: self.buffered.load(Relaxed),
            passwords: self.passwords.read(),
        }
    }
}

/// Returns the sum over all listeners, closed ones included.
pub(crate) fn total(past: &Counts, listeners: &[ListenerCounts]) -> Counts {
    let mut total = past.clone();
    for listener in listeners {
        total.add(&listener.counts);
    }
    total
}

/// Adds to a gauge, and subtracts the same amount on drop.
#[derive(Debug)]
pub(crate) struct GaugeGuard<'a> {
    gauge: &'a AtomicU64,
    amount: u64,
}

impl<'a> GaugeGuard<'a> {
    fn new(gauge: &'a AtomicU64, amount: u64) -> Self {
        gauge.fetch_add(amount, Relaxed);
        Self { gauge, amount }
    }
}

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.gauge.fetch_sub(self.amount, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_ends_when_guard_is_dropped() {
        let pauses = Pauses::default();
        assert_eq!(pauses.read(Direction::Up), (0, false));
        let pause = pauses.begin(Direction::Up, 7);
        assert_eq!(
            (pauses.read(Direction::Up), pauses.held_bytes()),
            ((1, true), 7)
        );
        drop(pause);
        assert_eq!(
            (pauses.read(Direction::Up), pauses.held_bytes()),
            ((1, false), 0)
        );
        drop(pauses.begin(Direction::Up, 0));
        assert_eq!(pauses.read(Direction::Up), (2, false));
        assert_eq!(pauses.read(Direction::Down), (0, false));
    }
}
