// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides whether SYNs that were diverted arrive at the listener. The INPUT rules of a host may drop them, as they do by
//! the default policy of many firewalls. Connections then bypass the relay, except for trials.

use std::time::{Duration, Instant};

/// SYNs without an arrival after which the listener counts as blocked although others have arrived before: rules may
/// also drop single clients, whose connections bypass the relay one by one.
const LOST_MIN: u64 = 3;

/// Time between two trials. A trial delays the first client by the second after which TCP retransmits its SYN.
const TRIAL_INTERVAL: Duration = Duration::from_secs(60);

/// Time between two trials where rules of the host changed.
const TRIAL_INTERVAL_MIN: Duration = Duration::from_secs(5);

/// Counts of SYNs since the table was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Diverted to the listener.
    pub(crate) diverted: u64,
    /// Accepted by all INPUT rules after that.
    pub(crate) arrived: u64,
}

/// A change of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Diverted SYNs do not arrive.
    Blocked,
    /// A SYN arrived again.
    Open,
}

/// State of one listener.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Counts when a SYN arrived for the last time, or when the trial began.
    reference: Counts,
    /// Diverted SYNs at the last look: those of now may still be on their way.
    previous: u64,
    /// Whether rules or routes were restored since the last look: without them, SYNs are lost on their way.
    was_restored: bool,
    has_arrived: bool,
    blocked: Option<Blocked>,
}

/// State while SYNs do not arrive.
#[derive(Debug)]
struct Blocked {
    /// Time of the last lost SYN.
    since: Instant,
    /// The rule set's generation after interception ended.
    generation: Option<u32>,
    /// Whether the next SYN is diverted, to see whether it arrives.
    is_trial: bool,
}

impl Arrivals {
    /// Whether diverted SYNs do not arrive.
    pub(crate) fn are_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Whether connections are to bypass the listener.
    pub(crate) fn are_suspended(&self) -> bool {
        self.blocked
            .as_ref()
            .is_some_and(|blocked| !blocked.is_trial)
    }

    /// Excuses the SYNs that were lost until the next look: rules or routes that lead to the listener were missing.
    pub(crate) fn excuse_losses(&mut self) {
        self.was_restored = true;
    }

    /// Looks at the counts now. `generation` is that of the host's rules; iptables-legacy does not change it.
    pub(crate) fn look(
        &mut self,
        counts: Counts,
        generation: Option<u32>,
        now: Instant,
    ) -> Option<Change> {
        let was_restored = std::mem::take(&mut self.was_restored);
        if was_restored || counts.diverted < self.previous {
            self.refer_to(counts);
        }
        let previous = std::mem::replace(&mut self.previous, counts.diverted);
        if counts.arrived > self.reference.arrived {
            return self.arrive(counts);
        }
        let lost = previous.saturating_sub(self.reference.diverted);
        if !self.are_suspended() && lost >= self.lost_min() {
            return self.block(now);
        }
        self.begin_trial_if_due(counts, generation, now);
        None
    }

    fn lost_min(&self) -> u64 {
        if self.has_arrived { LOST_MIN } else { 1 }
    }

    fn refer_to(&mut self, counts: Counts) {
        (self.reference, self.previous) = (counts, counts.diverted);
    }

    fn arrive(&mut self, counts: Counts) -> Option<Change> {
        self.refer_to(counts);
        self.has_arrived = true;
        self.blocked.take().map(|_| Change::Open)
    }

    fn block(&mut self, now: Instant) -> Option<Change> {
        self.has_arrived = false;
        let blocked = Blocked {
            since: now,
            generation: None,
            is_trial: false,
        };
        let before = self.blocked.replace(blocked);
        before.is_none().then_some(Change::Blocked)
    }

    fn begin_trial_if_due(&mut self, counts: Counts, generation: Option<u32>, now: Instant) {
        let Some(blocked) = self.blocked.as_mut().filter(|blocked| !blocked.is_trial) else {
            return;
        };
        let before = *blocked
            .generation
            .get_or_insert(generation.unwrap_or_default());
        let interval = if generation.is_some_and(|generation| generation != before) {
            TRIAL_INTERVAL_MIN
        } else {
            TRIAL_INTERVAL
        };
        if now - blocked.since >= interval {
            blocked.is_trial = true;
            self.refer_to(counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Setup {
        arrivals: Arrivals,
        counts: Counts,
        now: Instant,
        generation: u32,
    }

    impl Setup {
        fn new() -> Self {
            Self {
                arrivals: Arrivals::default(),
                counts: Counts::default(),
                now: Instant::now(),
                generation: 1,
            }
        }

        /// Diverts SYNs of which some arrive, and looks twice. Returns the change.
        fn divert(&mut self, diverted: u64, arrived: u64) -> Option<Change> {
            self.counts.diverted += diverted;
            self.counts.arrived += arrived;
            self.wait(0).or(self.wait(0))
        }

        fn wait(&mut self, seconds: u64) -> Option<Change> {
            self.now += Duration::from_secs(seconds);
            self.arrivals
                .look(self.counts, Some(self.generation), self.now)
        }
    }

    #[test]
    fn losses_without_routes_do_not_suspend_interception() {
        let mut setup = Setup::new();
        setup.counts.diverted = 1;
        assert_eq!(setup.wait(0), None);
        setup.arrivals.excuse_losses();
        assert_eq!(setup.wait(0), None);
        assert_eq!(setup.wait(0), None);
        assert_eq!(setup.divert(1, 0), Some(Change::Blocked));
    }

    #[test]
    fn first_lost_syn_suspends_interception() {
        let mut setup = Setup::new();
        assert_eq!(setup.divert(1, 0), Some(Change::Blocked));
        assert!(setup.arrivals.are_suspended());
    }

    #[test]
    fn syn_on_its_way_is_not_lost() {
        let mut setup = Setup::new();
        setup.counts.diverted = 1;
        assert_eq!(setup.wait(0), None);
        setup.counts.arrived = 1;
        assert_eq!(setup.wait(0), None);
        assert!(!setup.arrivals.are_blocked());
    }

    #[test]
    fn single_lost_syns_among_others_do_not_suspend() {
        let mut setup = Setup::new();
        for _ in 0..100 {
            assert_eq!(setup.divert(1, 1), None);
            assert_eq!(setup.divert(2, 0), None);
        }
        assert_eq!(setup.divert(1, 0), Some(Change::Blocked));
    }

    #[test]
    fn trial_ends_suspension_only_if_its_syn_arrives() {
        let mut setup = Setup::new();
        setup.divert(1, 0);
        setup.wait(59);
        assert!(setup.arrivals.are_suspended());
        setup.wait(1);
        assert!(!setup.arrivals.are_suspended() && setup.arrivals.are_blocked());
        assert_eq!(setup.divert(1, 0), None, "no second line");
        assert!(setup.arrivals.are_suspended());
        setup.wait(0);
        setup.wait(60);
        assert_eq!(setup.divert(1, 1), Some(Change::Open));
        assert!(!setup.arrivals.are_blocked());
    }

    #[test]
    fn changed_rules_are_tried_soon() {
        let mut setup = Setup::new();
        setup.divert(1, 0);
        setup.wait(1);
        setup.generation += 1;
        setup.wait(1);
        assert!(setup.arrivals.are_suspended());
        setup.wait(5);
        assert!(!setup.arrivals.are_suspended());
    }

    #[test]
    fn restored_table_begins_anew() {
        let mut setup = Setup::new();
        setup.divert(5, 5);
        setup.counts = Counts::default();
        assert_eq!(setup.divert(1, 1), None);
        assert_eq!(setup.divert(3, 0), Some(Change::Blocked));
    }
}
