// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that maintains interception. It renews the leases while all threads that serve intercepted connections are
//! alive, and restores rules that other programs remove. At the end it removes everything.
//!
//! docs/decisions/fail-open-by-lease.md says why there is no watchdog process.

use crate::{
    heartbeat::{Heartbeats, STALLED_AFTER},
    rule_set::{Log, RuleSet, remove_leftovers},
    rules::LEASE,
};
use longhaul_command::exit::Refusal;
use longhaul_linux::netfilter::{
    changes::{ChangeMonitor, Event},
    nft::NftError,
};
use std::{
    io::{self, PipeReader, PipeWriter, Read, Write},
    sync::{
        Arc,
        atomic::Ordering::Relaxed,
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tracing::{error, info, warn};

/// Time between two renewals of a lease.
const PERIOD: Duration = Duration::from_millis(150);

/// Asserts that new connections bypass a relay with a stalled thread within 2 s.
const _: () = assert!(LEASE.as_millis() + STALLED_AFTER.as_millis() + PERIOD.as_millis() <= 2000);

/// Maximum tables and routes that one round restores. Another program may remove them again and again.
const RESTORED_MAX: usize = 100;

/// Time that threads have for their first heartbeat.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Interception by the rules of all listeners. Dropping it removes the rules.
pub struct Interception {
    /// Pipe to the thread. A byte ends interception of new connections; closing the pipe removes everything.
    commands: Option<PipeWriter>,
    /// Channel that the thread closes once the leases have ended.
    leases_ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Interception {
    /// Installs all rules, waits for the first heartbeats of the threads that serve, and intercepts from then on.
    /// `has_thread_ended` returns whether one of these threads has ended.
    pub fn start(
        heartbeats: &Arc<Heartbeats>,
        has_thread_ended: impl Fn() -> bool,
        rule_sets: Vec<RuleSet>,
    ) -> anyhow::Result<Self> {
        remove_leftovers()?;
        let monitor =
            ChangeMonitor::open().map_err(|error| refuse_with_requirements(error.into()))?;
        let rule_sets = RuleSets::install(rule_sets).map_err(refuse_with_requirements)?;
        rule_sets.0.iter().for_each(RuleSet::log_input_rules);
        let started_at = Instant::now();
        while !heartbeats.are_all_alive(Instant::now()) {
            anyhow::ensure!(
                started_at.elapsed() < START_TIMEOUT && !has_thread_ended(),
                "the relay's threads don't start"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        rule_sets.renew(heartbeats, false);
        let (commands_in, commands) = io::pipe()?;
        let (leases_ended_sender, leases_ended) = channel();
        let heartbeats = heartbeats.clone();
        let thread = std::thread::Builder::new().name("relay-intercept".into());
        let thread = thread.spawn(move || {
            rule_sets.run_until_closed(&heartbeats, &monitor, commands_in, leases_ended_sender);
        })?;
        Ok(Self {
            commands: Some(commands),
            leases_ended,
            thread: Some(thread),
        })
    }

    /// Ends interception of new connections: they bypass the relay, and open connections continue. Waits until the leases have
    /// ended, a second at most.
    pub fn end_leases(&self) {
        // If the thread is gone, the leases have ended or soon will.
        let _ = self
            .commands
            .as_ref()
            .map(|mut commands| commands.write(b"."));
        let _ = self.leases_ended.recv_timeout(LEASE);
    }
}

impl Drop for Interception {
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            // A panic was printed when it happened.
            let _ = thread.join();
        }
    }
}

/// Turns an error into a refusal that names all requirements. Missing rights and missing kernel features give the same
/// errors. The error of a missing program says itself what to do.
fn refuse_with_requirements(error: anyhow::Error) -> anyhow::Error {
    if error.is::<Refusal>() {
        return error;
    }
    match error.downcast_ref() {
        Some(NftError::Start(_)) => Refusal::unsupported(format!("--intercept: {error}")),
        _ => Refusal::unsupported(format!(
            "--intercept: {error:#} (it needs CAP_NET_ADMIN, nft, and nf_tables with tproxy, \
             socket and fib)"
        )),
    }
}

/// The rules of all listeners. Dropping them removes them from the kernel.
struct RuleSets(Vec<RuleSet>);

impl RuleSets {
    /// Installs all rule sets, or none.
    fn install(rule_sets: Vec<RuleSet>) -> anyhow::Result<Self> {
        let mut installed = Self(Vec::with_capacity(rule_sets.len()));
        for rule_set in rule_sets {
            rule_set.install()?;
            installed.0.push(rule_set);
        }
        Ok(installed)
    }

    /// Renews every lease. If a renewal fails, or if other processes changed rules or routes (`rules_changed`), restores
    /// what is missing. Each call also tries again the listeners that don't intercept. A failure at one listener does
    /// not affect the others.
    fn renew(&self, heartbeats: &Heartbeats, rules_changed: bool) {
        let mut log = Log::default();
        let active = || self.0.iter().filter(|rules| !rules.is_suspended());
        let mut intercepting = active().filter(|rules| rules.intercepts());
        let may_be_gone = rules_changed || intercepting.any(|rules| !rules.renew());
        // After something was restored, all are checked again: one command may have removed several, one after another.
        let mut is_complete = false;
        while !is_complete && log.restored.len() < RESTORED_MAX {
            let before = log.restored.len();
            active()
                .filter(|rules| may_be_gone || !rules.intercepts())
                .for_each(|rules| rules.restore_and_renew(&mut log));
            is_complete = log.restored.len() == before;
        }
        let intercepts = |rules: &RuleSet| rules.intercepts() && !rules.is_blocked();
        let intercepts = self.0.iter().all(intercepts);
        heartbeats.intercepts.store(intercepts, Relaxed);
        log.write();
    }

    /// Adds conntrack zones where connection tracking has begun. Without zones, it takes the two legs of a connection
    /// for one connection.
    fn add_zones(&self) {
        for rule_set in self.0.iter().filter(|rule_set| rule_set.lacks_zones()) {
            if let Err(error) = rule_set.add_zones() {
                warn!(
                    "connections are tracked here, and --keep-source has no zone of its own: {error:#}"
                );
            }
        }
    }

    fn end_leases(&self) {
        for rule_set in &self.0 {
            rule_set.end_lease();
        }
    }

    /// Renews the leases until a byte arrives on `commands` or the pipe is closed. Then ends the leases, and returns once
    /// the pipe is closed.
    fn run_until_closed(
        self,
        heartbeats: &Heartbeats,
        monitor: &ChangeMonitor,
        mut commands: PipeReader,
        leases_ended_sender: Sender<()>,
    ) {
        let (mut was_alive, mut may_be_gone) = (true, false);
        loop {
            match monitor.wait(&commands, PERIOD) {
                Ok(Event::Readable) => break,
                Ok(event) => may_be_gone |= event == Event::Changed,
                Err(error) => {
                    error!("not intercepting: {error}");
                    heartbeats.intercepts.store(false, Relaxed);
                    break;
                }
            }
            let is_alive = heartbeats.are_all_alive(Instant::now());
            log_stall(std::mem::replace(&mut was_alive, is_alive), is_alive);
            if is_alive {
                self.add_zones();
                self.0.iter().for_each(RuleSet::check_arrivals);
                self.renew(heartbeats, std::mem::take(&mut may_be_gone));
            }
        }
        self.end_leases();
        drop(leases_ended_sender);
        let _ = commands.read_to_end(&mut Vec::new());
    }
}

impl Drop for RuleSets {
    fn drop(&mut self) {
        self.0.iter().for_each(RuleSet::remove);
    }
}

fn log_stall(was_alive: bool, is_alive: bool) {
    match (was_alive, is_alive) {
        (true, false) => warn!("a thread stalls: new connections bypass the relay"),
        (false, true) => info!("intercepting again"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_only_the_package_if_nft_is_missing() {
        let missing = NftError::Start(io::ErrorKind::NotFound.into());
        let error = format!("{:#}", refuse_with_requirements(missing.into()));
        assert_eq!(error.matches("entity not found").count(), 1, "{error}");
        assert!(error.ends_with("apt-get install nftables"), "{error}");
        let refused = NftError::Refused("Could not process rule".to_owned());
        let error = format!("{:#}", refuse_with_requirements(refused.into()));
        assert!(error.contains("it needs CAP_NET_ADMIN, nft,"), "{error}");
    }
}
