// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that keeps interception up: it renews the lease as long as the relay is well, puts back what others
//! remove, and takes everything down at the end. docs/decisions/fail-open-by-lease.md says why there is no watchdog
//! process.

use crate::{
    config::intercept::Intercept,
    intercept::rules::{self, HOLD},
    relay::{Alarm, Pulse, STALLED_AFTER},
};
use longhaul_command::{exit::Refusal, note};
use longhaul_linux::{
    claim::{Claim, claimants},
    interface::{divert_marked, undo_diversion},
    netfilter::{
        Family,
        changes::{Event, Watch},
        lease::Lease,
        marks::{Marks, TABLE_PREFIX},
        nft,
        table::Table,
        target::append_queue_rule,
    },
    sock_diag::SockDiag,
};
use std::{
    cell::Cell,
    io::{self, PipeReader, PipeWriter, Read, Write},
    net::SocketAddr,
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

/// The rules of one listener.
pub(crate) struct Gate {
    listener: SocketAddr,
    intercept: Intercept,
    /// Where SYNs are held, if they are.
    queue: Option<u16>,
    lease: Lease,
    /// Our table as it was installed. Another process that has our port puts its own in its place.
    table: Cell<Option<Table>>,
    _claim: Claim,
}

impl Gate {
    /// `listener` is the address with the port that the kernel gave.
    pub(crate) fn new(
        listener: SocketAddr,
        intercept: Intercept,
        queue: Option<u16>,
    ) -> io::Result<Self> {
        let family = Family::of(listener.ip());
        Ok(Self {
            listener,
            intercept,
            queue,
            lease: Lease::open(family, &rules::table(listener.port()))?,
            table: Cell::new(None),
            _claim: Claim::new(&claimed(family, listener.port()))?,
        })
    }

    fn family(&self) -> Family {
        Family::of(self.listener.ip())
    }

    fn mark(&self) -> u32 {
        Marks::of(self.listener.port()).diverted()
    }

    /// Puts everything in place, or nothing. Nothing is intercepted before the lease is renewed.
    fn install(&self) -> anyhow::Result<()> {
        self.restore(&mut Vec::new()).inspect_err(|_| {
            // The first error is the one to tell.
            let _ = nft::delete_table(self.family(), &rules::table(self.listener.port()));
            let _ = undo_diversion(self.family(), self.mark(), self.mark());
        })
    }

    /// Puts in place what is missing, and adds its name to `missing`.
    fn restore(&self, missing: &mut Vec<String>) -> anyhow::Result<()> {
        let stands = |table: Table| table.rules >= self.table.get().map_or(usize::MAX, |t| t.rules);
        if !self.present_table()?.is_some_and(stands) {
            self.load_rules()?;
            self.table.set(self.present_table()?);
            missing.push(format!("the nft rules of {}", self.listener));
        }
        // The mark's routing table has the mark's number.
        if divert_marked(self.family(), self.mark(), self.mark())? {
            missing.push(format!("the policy rule or route of {}", self.listener));
        }
        Ok(())
    }

    /// The rule that queues is nf_tables' own expression, or x_tables' target where the kernel lacks the former.
    fn load_rules(&self) -> anyhow::Result<()> {
        let script = |queue| rules::script(self.listener, &self.intercept, queue);
        match (nft::load(&script(self.queue)), self.queue) {
            (Err(_), Some(queue)) => {
                nft::load(&script(None))?;
                let table = rules::table(self.listener.port());
                append_queue_rule(self.family(), &table, HOLD, queue).map_err(|error| {
                    Refusal::unsupported(format!(
                        "--verify-connect: this kernel has neither nft_queue nor xt_NFQUEUE ({error})"
                    ))
                })
            }
            (outcome, _) => Ok(outcome?),
        }
    }

    fn present_table(&self) -> io::Result<Option<Table>> {
        Table::find(self.family(), &rules::table(self.listener.port()))
    }

    /// The rules of another process that has our port now stay: our connections are among those that they let in.
    fn remove(&self) {
        let present = self.present_table().unwrap_or_default();
        let handle = |table: Option<Table>| table.map(|table| table.handle);
        if present.is_none() || handle(present) == handle(self.table.get()) {
            remove(self.family(), self.listener.port());
        }
    }
}

/// Takes down a listener's table and its routing; what fails is said.
fn remove(family: Family, port: u16) {
    let mark = Marks::of(port).diverted();
    let rules = nft::delete_table(family, &rules::table(port)).map_err(|error| error.to_string());
    let routing = undo_diversion(family, mark, mark).map_err(|error| error.to_string());
    for problem in [rules, routing].into_iter().filter_map(Result::err) {
        note!("longhaul relay: {problem}");
    }
}

/// Takes down what relays left behind that were killed: tables of theirs on whose port nobody
/// listens any more, and that no draining relay needs.
fn remove_leftovers() -> io::Result<()> {
    let mut sockets = SockDiag::here()?;
    for family in [Family::Ip, Family::Ip6] {
        let port = |name: &String| name.strip_prefix(TABLE_PREFIX)?.parse::<u16>().ok();
        let tables = nft::tables(family).unwrap_or_default();
        for port in tables.iter().filter_map(port) {
            if !sockets.listens_on(port)? && claimants(&claimed(family, port))?.is_empty() {
                remove(family, port);
            }
        }
    }
    Ok(())
}

/// What a process has a claim on that needs the table of a listener on `port`. A relay that drains listens no more, and
/// its connections still need the rules.
fn claimed(family: Family, port: u16) -> String {
    format!("intercept-{}-{port}", family.name())
}

/// Interception at work. Dropping it takes everything down.
pub(crate) struct Keeper {
    /// A byte: let new connections pass. The end: take everything down.
    orders: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Installs all rules, waits for the relay's threads, and intercepts from then on.
    pub(crate) fn start(
        pulse: &Arc<Pulse>,
        alarm: &Alarm,
        gates: Vec<Gate>,
    ) -> anyhow::Result<Self> {
        remove_leftovers()?;
        let watch = Watch::open()?;
        let gates = Gates::installed(gates).map_err(explain)?;
        let began = Instant::now();
        while !pulse.is_steady(Instant::now()) {
            anyhow::ensure!(
                began.elapsed() < START_TIME && !alarm.is_raised(),
                "the relay's threads don't start"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        gates.renew(pulse, false);
        let (inbox, orders) = io::pipe()?;
        let pulse = pulse.clone();
        let thread = std::thread::Builder::new().name("relay-keeper".into());
        let thread = thread.spawn(move || gates.keep(&pulse, &watch, inbox))?;
        Ok(Self {
            orders: Some(orders),
            thread: Some(thread),
        })
    }

    /// Lets new connections go straight to their destinations; open ones go on.
    pub(crate) fn let_pass(&self) {
        // If the thread is gone, the lease is or soon will be.
        let _ = self.orders.as_ref().map(|mut orders| orders.write(b"."));
    }
}

impl Drop for Keeper {
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
struct Gates(Vec<Gate>);

impl Gates {
    /// What stands when one fails goes down again.
    fn installed(gates: Vec<Gate>) -> anyhow::Result<Self> {
        let mut standing = Self(Vec::with_capacity(gates.len()));
        for gate in gates {
            gate.install()?;
            standing.0.push(gate);
        }
        Ok(standing)
    }

    /// Renews every lease. What somebody removed is put back; without it, new connections pass by. What is `suspect` is
    /// looked at, other things only if a lease can't be renewed.
    fn renew(&self, pulse: &Pulse, suspect: bool) {
        let renew = || self.0.iter().try_for_each(|gate| gate.lease.renew(LEASE));
        // Where it failed already, once a round is enough.
        let attempts = pulse.intercepts.load(Relaxed).then_some(ATTEMPTS);
        if !suspect && attempts.is_some() && renew().is_ok() {
            return;
        }
        let mut missing = Vec::new();
        let mut restore = || {
            let mut gates = self.0.iter();
            gates.try_for_each(|gate| gate.restore(&mut missing))?;
            anyhow::Ok(renew()?)
        };
        let again = 1..attempts.unwrap_or(1);
        let outcome = again.fold(restore(), |outcome, _| outcome.or_else(|_| restore()));
        let intercepted = pulse.intercepts.swap(outcome.is_ok(), Relaxed);
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

    fn end_leases(&self) {
        for gate in &self.0 {
            // A lease that can't be ended runs out by itself.
            let _ = gate.lease.end();
        }
    }

    fn keep(self, pulse: &Pulse, watch: &Watch, mut orders: PipeReader) {
        let (mut steady, mut suspect) = (true, false);
        loop {
            match watch.wait(&orders, PERIOD) {
                Ok(Event::Readable) => break,
                Ok(event) => suspect |= event == Event::Changed,
                Err(error) => {
                    note!("longhaul relay: not intercepting: {error}");
                    pulse.intercepts.store(false, Relaxed);
                    break;
                }
            }
            let now_steady = pulse.is_steady(Instant::now());
            report(std::mem::replace(&mut steady, now_steady), now_steady);
            if now_steady {
                self.renew(pulse, std::mem::take(&mut suspect));
            }
        }
        self.end_leases();
        // Until nobody is left to order anything.
        let _ = orders.read_to_end(&mut Vec::new());
    }
}

impl Drop for Gates {
    fn drop(&mut self) {
        self.0.iter().for_each(Gate::remove);
    }
}

fn report(was_steady: bool, is_steady: bool) {
    match (was_steady, is_steady) {
        (true, false) => note!("longhaul relay: a thread stalls: new connections pass by"),
        (false, true) => note!("longhaul relay: intercepting again"),
        _ => {}
    }
}
