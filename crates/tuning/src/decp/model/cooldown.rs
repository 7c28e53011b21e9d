// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time for which the controller leaves connections alone after it has made their rates equal.

use super::sample::Sample;
use longhaul_units::Time;

/// Minimum duration of the cooldown in round trips. It is halved after a division without losses.
const ROUNDS_MIN: u64 = 10;
/// Maximum duration of the cooldown in round trips. It is doubled after a division with losses.
const ROUNDS_MAX: u64 = 160;

/// Pause between two divisions. It grows where divisions cost losses.
#[derive(Debug)]
pub(super) struct Cooldown {
    rounds: u64,
    since: Option<Time>,
}

impl Cooldown {
    pub(super) fn new() -> Self {
        Self {
            rounds: ROUNDS_MIN,
            since: None,
        }
    }

    pub(super) fn is_over(&self, at: Sample) -> bool {
        self.since
            .is_none_or(|since| at.has_elapsed(since, self.rounds))
    }

    pub(super) fn begin(&mut self, now: Time, has_lost: bool) {
        let rounds = if has_lost {
            self.rounds * 2
        } else {
            self.rounds / 2
        };
        self.rounds = rounds.clamp(ROUNDS_MIN, ROUNDS_MAX);
        self.since = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_after_losses_and_halves_without() {
        let mut cooldown = Cooldown::new();
        let lasts = |cooldown: &Cooldown, rounds: u64| {
            let at = |now| Sample {
                now: Time::from_millis(now),
                rtt: Time::from_millis(100),
                rounds: 1.0,
                losses: 0,
            };
            !cooldown.is_over(at(rounds * 100 - 1)) && cooldown.is_over(at(rounds * 100))
        };
        for (has_lost, rounds) in [
            (true, 20),
            (true, 40),
            (false, 20),
            (false, 10),
            (false, 10),
        ] {
            cooldown.begin(Time::ZERO, has_lost);
            assert!(lasts(&cooldown, rounds), "{rounds}");
        }
        (0..9).for_each(|_| cooldown.begin(Time::ZERO, true));
        assert!(lasts(&cooldown, ROUNDS_MAX));
    }
}
