// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that keeps interception up: it renews the lease as long as the relay is well, puts back what others
//! remove, and takes everything down at the end. docs/decisions/fail-open-by-lease.md says why there is no watchdog
//! process.

use crate::{
    heartbeat::{Heartbeats, STALLED_AFTER},
    rule_set::{RuleSet, remove_leftovers},
};
use longhaul_command::{exit::Refusal, note};
use longhaul_linux::netfilter::changes::{Event, Watch};
use std::{
    io::{self, PipeReader, PipeWriter, Read, Write},
    sync::{Arc, atomic::Ordering::Relaxed},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How often the lease is renewed.
const PERIOD: Duration = Duration::from_millis(150);

/// How long it lasts: six renewals, and less than the second after which TCP sends a SYN again. A relay that is killed or stopped lets connections pass after
/// this long, one of whose threads hangs after this long and [`STALLED_AFTER`]: both under 2 s.
const LEASE: Duration = Duration::from_millis(900);
const _: () = assert!(LEASE.as_millis() + STALLED_AFTER.as_millis() + PERIOD.as_millis() <= 2000);

/// How long threads may take for their first sign of life.
const START_TIME: Duration = Duration::from_secs(10);

/// How often what is missing is put back before that is a failure: somebody may remove it again meanwhile.
const ATTEMPTS: usize = 10;

/// Interception at work. Dropping it takes everything down.
pub struct Interception {
    /// A byte: let new connections pass. The end: take everything down.
    orders: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Interception {
    /// Installs all rules, waits for the threads that serve, and intercepts from then on. `is_over`: one of them has
    /// ended.
    pub fn start(
        heartbeats: &Arc<Heartbeats>,
        is_over: impl Fn() -> bool,
        rule_sets: Vec<RuleSet>,
    ) -> anyhow::Result<Self> {
        remove_leftovers()?;
        let watch = Watch::open().map_err(|error| explain(error.into()))?;
        let rule_sets = RuleSets::installed(rule_sets).map_err(explain)?;
        let began = Instant::now();
        while !heartbeats.is_steady(Instant::now()) {
            anyhow::ensure!(
                began.elapsed() < START_TIME && !is_over(),
                "the relay's threads don't start"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        rule_sets.renew(heartbeats, false);
        let (inbox, orders) = io::pipe()?;
        let heartbeats = heartbeats.clone();
        let thread = std::thread::Builder::new().name("relay-keeper".into());
        let thread = thread.spawn(move || rule_sets.keep(&heartbeats, &watch, inbox))?;
        Ok(Self {
            orders: Some(orders),
            thread: Some(thread),
        })
    }

    /// Lets new connections go straight to their destinations; open ones go on.
    pub fn let_pass(&self) {
        // If the thread is gone, the lease is or soon will be.
        let _ = self.orders.as_ref().map(|mut orders| orders.write(b"."));
    }
}

impl Drop for Interception {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // A panic was printed when it happened.
            let _ = thread.join();
        }
    }
}

/// Missing rights and missing kernel features look alike from outside.
fn explain(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Refusal>() {
        Some(_) => error,
        None => Refusal::unsupported(format!(
            "--intercept: {error:#} (it needs CAP_NET_ADMIN, nft, and nf_tables with tproxy, \
             socket and fib)"
        )),
    }
}

/// All of them; they go down with their owner, however that ends.
struct RuleSets(Vec<RuleSet>);

impl RuleSets {
    /// What stands when one fails goes down again.
    fn installed(rule_sets: Vec<RuleSet>) -> anyhow::Result<Self> {
        let mut standing = Self(Vec::with_capacity(rule_sets.len()));
        for rule_set in rule_sets {
            rule_set.install()?;
            standing.0.push(rule_set);
        }
        Ok(standing)
    }

    /// Renews every lease. What somebody removed is put back; without it, new connections pass by. What is `suspect` is
    /// looked at, other things only if a lease can't be renewed.
    fn renew(&self, heartbeats: &Heartbeats, suspect: bool) {
        let renew = || self.0.iter().try_for_each(|rule_set| rule_set.renew(LEASE));
        // Where it failed already, once a round is enough.
        let attempts = heartbeats.intercepts.load(Relaxed).then_some(ATTEMPTS);
        if !suspect && attempts.is_some() && renew().is_ok() {
            return;
        }
        let mut missing = Vec::new();
        let mut restore = || {
            let mut rule_sets = self.0.iter();
            rule_sets.try_for_each(|rule_set| rule_set.restore(&mut missing))?;
            anyhow::Ok(renew()?)
        };
        let again = 1..attempts.unwrap_or(1);
        let outcome = again.fold(restore(), |outcome, _| outcome.or_else(|_| restore()));
        let intercepted = heartbeats.intercepts.swap(outcome.is_ok(), Relaxed);
        if !missing.is_empty() {
            missing.sort();
            missing.dedup();
            note!("longhaul relay: gone and put back: {}", missing.join(", "));
        }
        if let Err(error) = outcome {
            self.end_leases();
            if intercepted {
                note!("longhaul relay: not intercepting: {error:#}");
            }
        }
    }

    /// Where connections are tracked from now on, the rules must know. Without zones, two legs are one to it.
    fn add_zones(&self) {
        for rule_set in self.0.iter().filter(|rule_set| rule_set.lacks_zones()) {
            if let Err(error) = rule_set.add_zones() {
                note!(
                    "longhaul relay: connections are tracked here, and --keep-source has no zone of its own: {error:#}"
                );
            }
        }
    }

    fn end_leases(&self) {
        for rule_set in &self.0 {
            rule_set.end_lease();
        }
    }

    fn keep(self, heartbeats: &Heartbeats, watch: &Watch, mut orders: PipeReader) {
        let (mut steady, mut suspect) = (true, false);
        loop {
            match watch.wait(&orders, PERIOD) {
                Ok(Event::Readable) => break,
                Ok(event) => suspect |= event == Event::Changed,
                Err(error) => {
                    note!("longhaul relay: not intercepting: {error}");
                    heartbeats.intercepts.store(false, Relaxed);
                    break;
                }
            }
            let now_steady = heartbeats.is_steady(Instant::now());
            report(std::mem::replace(&mut steady, now_steady), now_steady);
            if now_steady {
                self.add_zones();
                self.renew(heartbeats, std::mem::take(&mut suspect));
            }
        }
        self.end_leases();
        // Until nobody is left to order anything.
        let _ = orders.read_to_end(&mut Vec::new());
    }
}

impl Drop for RuleSets {
    fn drop(&mut self) {
        self.0.iter().for_each(RuleSet::remove);
    }
}

fn report(was_steady: bool, is_steady: bool) {
    match (was_steady, is_steady) {
        (true, false) => note!("longhaul relay: a thread stalls: new connections pass by"),
        (false, true) => note!("longhaul relay: intercepting again"),
        _ => {}
    }
}
