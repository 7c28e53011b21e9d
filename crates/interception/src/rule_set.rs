// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules of one listener in the kernel: an nft table, the routing of the packets that it diverts, and a lease. The
//! table diverts nothing once the lease has expired.

use crate::{
    arrivals::{Arrivals, Change, Counts},
    rules::{self, QUEUE_CHAIN},
    target::InterceptConfig,
};
use longhaul_command::exit::Refusal;
use longhaul_linux::{
    claim::{Claim, claimants},
    diversion::Diversion,
    netfilter::{
        Family, conntrack, counter, input,
        lease::Lease,
        marks::{self, Marks, TABLE_PREFIX},
        nft,
        table::{self, Table},
        target::append_queue_rule,
    },
    sock_diag::SockDiag,
};
use std::{
    cell::{Cell, RefCell},
    io,
    net::SocketAddr,
    time::Instant,
};
use tracing::{error, info, warn};

/// Attempts to restore rules and routes that are missing. Another program may remove them again between two attempts.
const RESTORE_ATTEMPTS: usize = 10;

/// Log lines of a round of renewals.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Tables and routes that other programs removed, and that were restored.
    pub(crate) restored: Vec<String>,
    /// Listeners that no longer intercept, and why.
    pub(crate) errors: Vec<String>,
}

impl Log {
    /// Writes the lines to the log.
    pub(crate) fn write(mut self) {
        if !self.restored.is_empty() {
            self.restored.sort();
            self.restored.dedup();
            let names = self.restored.join(", ");
            warn!("removed by another program, restored: {names}");
        }
        for error in self.errors {
            error!("not intercepting: {error}");
        }
    }
}

/// The rules of one listener.
pub struct RuleSet {
    listener: SocketAddr,
    intercept: InterceptConfig,
    /// The NFQUEUE that holds SYNs, with `--verify-connect`.
    queue: Option<u16>,
    lease: Lease,
    /// The table as it was installed. A process that takes the port over replaces it by its own.
    table: Cell<Option<Table>>,
    /// Number of rules that were loaded, or the maximum before that: a table that another process left is none of its own.
    /// The table that is read after loading may already lack some.
    rules: Cell<usize>,
    /// Whether the table has conntrack zones, because connections are tracked on this host.
    is_tracked: Cell<bool>,
    /// Whether the rules intercepted connections at the last renewal.
    is_intercepting: Cell<bool>,
    /// Whether diverted SYNs arrive.
    arrivals: RefCell<Arrivals>,
    /// Tells other relays that this process needs the table, also while it drains.
    _claim: Claim,
}

impl RuleSet {
    /// `listener` is the address with the port that the kernel gave.
    pub fn new(
        listener: SocketAddr,
        intercept: InterceptConfig,
        queue: Option<u16>,
    ) -> io::Result<Self> {
        let family = Family::of(listener.ip());
        Ok(Self {
            listener,
            intercept,
            queue,
            lease: Lease::open(
                family,
                &rules::table(listener.port()),
                Marks::of(listener.port()).lease(),
            )?,
            table: Cell::new(None),
            rules: Cell::new(usize::MAX),
            is_tracked: Cell::new(false),
            is_intercepting: Cell::new(true),
            arrivals: RefCell::default(),
            _claim: Claim::new(&claim_name(family, listener.port()))?,
        })
    }

    /// Renews the lease. Returns whether that was possible.
    pub(crate) fn renew(&self) -> bool {
        self.lease.renew().is_ok()
    }

    /// Restores what other programs removed, and renews the lease. If that fails, ends the lease: new connections bypass
    /// the relay. Adds what was restored to `log`, and an error only if the rules intercepted before.
    pub(crate) fn restore_and_renew(&self, log: &mut Log) {
        let was_intercepting = self.is_intercepting.get();
        let mut restore = || anyhow::Ok((self.restore(&mut log.restored)?, self.lease.renew()?));
        // If the last renewal failed, one attempt a round is enough.
        let retries = 1..if was_intercepting {
            RESTORE_ATTEMPTS
        } else {
            1
        };
        let outcome = retries.fold(restore(), |outcome, _| outcome.or_else(|_| restore()));
        self.is_intercepting.set(outcome.is_ok());
        if let Err(error) = outcome {
            self.end_lease();
            if was_intercepting {
                log.errors.push(format!("{}: {error:#}", self.listener));
            }
        }
    }

    /// Whether the rules intercept connections, as far as this process knows.
    pub(crate) fn intercepts(&self) -> bool {
        self.is_intercepting.get()
    }

    /// Whether connections that the rules divert do not arrive.
    pub(crate) fn is_blocked(&self) -> bool {
        self.arrivals.borrow().are_blocked()
    }

    /// Whether connections are to bypass the relay, because those that were diverted did not arrive.
    pub(crate) fn is_suspended(&self) -> bool {
        self.arrivals.borrow().are_suspended()
    }

    /// Looks whether diverted connections arrive. If not, ends the lease.
    pub(crate) fn check_arrivals(&self) {
        // Without its counters, the table is about to be restored.
        let Ok(counts) = self.counts() else { return };
        let generation = self.is_blocked().then(table::generation);
        let generation = generation.and_then(Result::ok);
        let was_suspended = self.is_suspended();
        let mut arrivals = self.arrivals.borrow_mut();
        let change = arrivals.look(counts, generation, Instant::now());
        if arrivals.are_suspended() && !was_suspended {
            self.end_lease();
        }
        if let Some(change) = change {
            self.log_arrivals(change);
        }
    }

    fn counts(&self) -> io::Result<Counts> {
        let table = rules::table(self.listener.port());
        let packets = |counter| counter::packets(self.family(), &table, counter);
        // In this order: a SYN that comes in between does not seem to be lost.
        Ok(Counts {
            diverted: packets(marks::DIVERTED_SYNS)?,
            arrived: packets(marks::ARRIVED_SYNS)?,
        })
    }

    /// Says which rules of this host may drop what is intercepted. Whether they do shows with the first connection.
    pub(crate) fn log_input_rules(&self) {
        let (listener, family) = (self.listener, self.family());
        match input::dropping_chains(family, listener.port()) {
            Ok(chains) if chains.is_empty() => {}
            Ok(chains) => info!(
                "{listener}: INPUT rules of this host ({}) drop what no rule accepts: connections bypass the relay \
                 unless a rule accepts them: {}",
                chains.join(", "),
                Marks::of(listener.port()).input_advice(family)
            ),
            Err(error) => warn!("{listener}: can't read the INPUT rules of this host: {error}"),
        }
    }

    fn log_arrivals(&self, change: Change) {
        let listener = self.listener;
        let advice = Marks::of(listener.port()).input_advice(self.family());
        match change {
            Change::Blocked => error!(
                "not intercepting: {listener}: INPUT rules of this host drop the connections to intercept, which \
                 bypass the relay until these rules accept them: {advice}"
            ),
            Change::Open => info!("intercepting again: {listener}"),
        }
    }

    /// Ends interception of new connections. A lease that can't be ended runs out by itself.
    pub(crate) fn end_lease(&self) {
        let _ = self.lease.release();
    }

    fn family(&self) -> Family {
        Family::of(self.listener.ip())
    }

    fn diversion(&self) -> Diversion {
        Diversion::new(self.family(), Marks::of(self.listener.port()))
    }

    /// Installs the table and the routing, or neither. Nothing is intercepted before the lease is renewed.
    pub(crate) fn install(&self) -> anyhow::Result<()> {
        let is_tracked = self.intercept.keeps_source && conntrack::is_on(self.family());
        self.is_tracked.set(is_tracked);
        self.restore(&mut Vec::new()).inspect_err(|_| {
            // The caller receives the first error; errors of the removal add nothing.
            let _ = nft::delete_table(self.family(), &rules::table(self.listener.port()));
            let _ = self.diversion().remove();
        })
    }

    /// Whether connection tracking has begun on this host since the table was created. The table then lacks the zones.
    pub(crate) fn lacks_zones(&self) -> bool {
        self.intercept.keeps_source && !self.is_tracked.get() && conntrack::has_entries()
    }

    /// Creates the table again, with zones.
    pub(crate) fn add_zones(&self) -> anyhow::Result<()> {
        self.is_tracked.set(true);
        self.load_rules()
            .inspect_err(|_| self.is_tracked.set(false))?;
        self.table.set(self.present_table()?);
        Ok(())
    }

    /// Installs the parts that are missing, and adds their names to `missing`.
    pub(crate) fn restore(&self, missing: &mut Vec<String>) -> anyhow::Result<()> {
        let before = missing.len();
        let is_complete = |table: Table| table.rules >= self.rules.get();
        if !self.present_table()?.is_some_and(is_complete) {
            self.load_rules()?;
            self.table.set(self.present_table()?);
            missing.push(format!("the nft rules of {}", self.listener));
        }
        if self.diversion().install(self.intercept.local)? {
            missing.push(format!("the policy rule or route of {}", self.listener));
        }
        if missing.len() > before {
            self.arrivals.borrow_mut().excuse_losses();
        }
        Ok(())
    }

    fn load_rules(&self) -> anyhow::Result<()> {
        let mut rules = self.load_table()?;
        // A kernel without nft_dup refuses this chain. Upstream legs then time out instead of receiving the ICMP error.
        if self.intercept.keeps_source && nft::load(&rules::copied_errors(self.listener)).is_ok() {
            rules += 1;
        }
        self.rules.set(rules);
        Ok(())
    }

    /// Loads the table, and returns the number of its rules. The rule that queues SYNs is nf_tables' own expression, or
    /// x_tables' target if the kernel lacks that expression.
    fn load_table(&self) -> anyhow::Result<usize> {
        let script =
            |queue| rules::script(self.listener, &self.intercept, queue, self.is_tracked.get());
        let full = script(self.queue);
        match (nft::load(&full), self.queue) {
            (Err(_), Some(queue)) => {
                nft::load(&script(None))?;
                let table = rules::table(self.listener.port());
                append_queue_rule(self.family(), &table, QUEUE_CHAIN, queue).map_err(|error| {
                    Refusal::unsupported(format!(
                        "--verify-connect: this kernel has neither nft_queue nor xt_NFQUEUE ({error})"
                    ))
                })?;
            }
            (outcome, _) => outcome?,
        }
        Ok(rules::count(&full))
    }

    fn present_table(&self) -> io::Result<Option<Table>> {
        Table::find(self.family(), &rules::table(self.listener.port()))
    }

    /// Removes the table and the routing. If another process has taken the port over, its table stays: it also serves
    /// this process's open connections.
    pub(crate) fn remove(&self) {
        let present = self.present_table().unwrap_or_default();
        let handle = |table: Option<Table>| table.map(|table| table.handle);
        if present.is_none() || handle(present) == handle(self.table.get()) {
            remove(self.family(), self.listener.port());
        }
    }
}

/// Removes a listener's table and its routing. Logs a warning for each part that cannot be removed.
fn remove(family: Family, port: u16) {
    let rules = nft::delete_table(family, &rules::table(port)).map_err(|error| error.to_string());
    let routing = Diversion::new(family, Marks::of(port))
        .remove()
        .map_err(|error| error.to_string());
    for error in [rules, routing].into_iter().filter_map(Result::err) {
        warn!("{error}");
    }
}

/// Removes the tables and routing that killed relays left behind: those whose port no socket listens on any more, and
/// that no draining relay needs.
pub(crate) fn remove_leftovers() -> io::Result<()> {
    let mut sockets = SockDiag::here()?;
    for family in [Family::Ip, Family::Ip6] {
        let port = |name: &String| name.strip_prefix(TABLE_PREFIX)?.parse::<u16>().ok();
        let tables = nft::tables(family).unwrap_or_default();
        for port in tables.iter().filter_map(port) {
            if !sockets.listens_on(port)? && claimants(&claim_name(family, port))?.is_empty() {
                remove(family, port);
            }
        }
    }
    Ok(())
}

/// The name of the claim on the table of a listener on `port`. A relay that drains holds the claim though it does not
/// listen, because its open connections need the rules.
fn claim_name(family: Family, port: u16) -> String {
    format!("intercept-{}-{port}", family.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_linux::netns::Netns;
    use longhaul_testprograms::skip;

    /// A table that is read after it was loaded may have lost rules to another program. If these were taken for all, the
    /// relay would never restore the rest.
    #[test]
    fn kernel_has_as_many_rules_as_were_loaded() {
        if !skip::require(rustix::process::geteuid().is_root(), "root (CAP_NET_ADMIN)") {
            return;
        }
        let name = format!("rule-set-{}", std::process::id());
        let netns = Netns::create(&name).unwrap();
        let outcome = netns.run(|| {
            for n in 0..16 {
                let is_set = |bit: u32| n & 1 << bit != 0;
                assert_loaded(is_set(0), is_set(1), is_set(2), is_set(3));
            }
            Ok(())
        });
        Netns::delete(&name).unwrap();
        outcome.unwrap();
    }

    fn assert_loaded(keeps_source: bool, local: bool, verify: bool, is_tracked: bool) {
        for (listener, target) in [
            ("127.0.0.1:3129", "10.0.0.0/8,192.0.2.0/24:80,8000-8999"),
            ("[::1]:3129", "::/0"),
        ] {
            let intercept = InterceptConfig {
                targets: vec![target.parse().unwrap()],
                bypass: vec![target.parse().unwrap()],
                keeps_source,
                local,
                verify,
            };
            let queue = verify.then_some(1);
            let rules = RuleSet::new(listener.parse().unwrap(), intercept.clone(), queue).unwrap();
            rules.is_tracked.set(is_tracked);
            rules.load_rules().unwrap();
            let found = rules.present_table().unwrap().unwrap();
            assert_eq!(found.rules, rules.rules.get(), "{listener} {intercept:?}");
            assert!(found.rules >= 10);
        }
    }
}
