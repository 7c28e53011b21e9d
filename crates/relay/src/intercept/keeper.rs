// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that keeps interception up: it renews the lease as long as the relay is well, and
//! takes everything down at the end. docs/decisions/fail-open-by-lease.md says why there is no
//! watchdog process.

use crate::{
    config::intercept::Intercept,
    intercept::rules::{self, HOLD},
    relay::{Alarm, Pulse, STALLED_AFTER},
};
use longhaul_command::{exit::Refusal, note};
use longhaul_linux::{
    interface::{divert_marked, undo_diversion},
    netfilter::{
        Family,
        lease::Lease,
        marks::{Marks, TABLE_PREFIX},
        nft::{self, NftError},
        target::append_queue_rule,
    },
    sock_diag::SockDiag,
    socket,
};
use std::{
    cell::Cell,
    io,
    net::SocketAddr,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixAddress, UnixDatagram},
    },
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
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

/// The rules of one listener.
pub(crate) struct Gate {
    listener: SocketAddr,
    intercept: Intercept,
    /// Where SYNs are held, if they are.
    queue: Option<u16>,
    lease: Lease,
    /// The kernel's number of our table. Another process that has our port puts its own table in our table's place.
    table: Cell<Option<u64>>,
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
            _claim: Claim::new(family, listener.port())?,
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
        self.try_install().inspect_err(|_| {
            // The first error is the one to tell.
            let _ = nft::delete_table(self.family(), &rules::table(self.listener.port()));
            let _ = undo_diversion(self.family(), self.mark(), self.mark());
        })
    }

    fn try_install(&self) -> anyhow::Result<()> {
        nft::load(&rules::script(self.listener, &self.intercept))?;
        self.table.set(self.present_table()?);
        if let Some(queue) = self.queue {
            self.install_queue_rule(queue)?;
        }
        // The mark's routing table has the mark's number.
        divert_marked(self.family(), self.mark(), self.mark())?;
        Ok(())
    }

    /// As nf_tables' own expression, or as x_tables' target where the kernel lacks the former.
    fn install_queue_rule(&self, queue: u16) -> anyhow::Result<()> {
        let (family, table) = (self.family(), rules::table(self.listener.port()));
        let name = family.name();
        let rule = format!("add rule {name} {table} {HOLD} queue num {queue} bypass\n");
        if nft::load(&rule).is_ok() {
            return Ok(());
        }
        append_queue_rule(family, &table, HOLD, queue).map_err(|error| {
            Refusal::unsupported(format!(
                "--verify-connect: this kernel has neither nft_queue nor xt_NFQUEUE ({error})"
            ))
        })
    }

    fn present_table(&self) -> Result<Option<u64>, NftError> {
        nft::handle(self.family(), &rules::table(self.listener.port()))
    }

    /// The rules of another process that has our port now stay: our connections are among those that they let in.
    fn remove(&self) {
        let present = self.present_table().unwrap_or_default();
        if present.is_none() || present == self.table.get() {
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
            if !sockets.listens_on(port)? && !is_claimed(family, port)? {
                remove(family, port);
            }
        }
    }
    Ok(())
}

/// The sign that a process needs a table's rules: an abstract UNIX socket of the network namespace, which the kernel
/// removes with the process. A relay that drains listens no more, and its connections still need the rules. It costs a
/// descriptor.
struct Claim(#[expect(dead_code, reason = "only its life counts")] UnixDatagram);

impl Claim {
    /// On the table of a listener on `port`. Several processes may have one.
    fn new(family: Family, port: u16) -> io::Result<Self> {
        let name = format!("{}{}", prefix(family, port), std::process::id());
        let address = UnixAddress::from_abstract_name(name)?;
        UnixDatagram::bind_addr(&address).map(Self)
    }
}

/// Whether some process has a claim on the table of a listener on `port`.
fn is_claimed(family: Family, port: u16) -> io::Result<bool> {
    let claims = socket::abstract_names(&prefix(family, port))?;
    Ok(!claims.is_empty())
}

fn prefix(family: Family, port: u16) -> String {
    format!("longhaul-intercept-{}-{port}-", family.name())
}

/// Interception at work. Dropping it takes everything down.
pub(crate) struct Keeper {
    orders: SyncSender<Order>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// New connections pass by; open ones go on.
    LetPass,
    /// Take everything down.
    End,
}

impl Keeper {
    /// Installs all rules, waits for the relay's threads, and intercepts from then on.
    pub(crate) fn start(
        pulse: &Arc<Pulse>,
        alarm: &Alarm,
        gates: Vec<Gate>,
    ) -> anyhow::Result<Self> {
        remove_leftovers()?;
        let gates = Gates::installed(gates).map_err(explain)?;
        let began = Instant::now();
        while !pulse.is_steady(Instant::now()) {
            anyhow::ensure!(
                began.elapsed() < START_TIME && !alarm.is_raised(),
                "the relay's threads don't start"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        gates.renew();
        let (orders, inbox) = sync_channel(4);
        let pulse = pulse.clone();
        let thread = std::thread::Builder::new().name("relay-keeper".into());
        let thread = thread.spawn(move || gates.keep(&pulse, &inbox))?;
        Ok(Self {
            orders,
            thread: Some(thread),
        })
    }

    /// Lets new connections go straight to their destinations; open ones go on.
    pub(crate) fn let_pass(&self) {
        // If the thread is gone, the lease is or soon will be.
        let _ = self.orders.send(Order::LetPass);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::End);
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

    /// Renews every lease; a table that somebody has flushed is made again.
    fn renew(&self) {
        for gate in &self.0 {
            if let Err(error) = gate.lease.renew(LEASE) {
                note!("longhaul relay: the rules are gone ({error}): installing them again");
                let again = gate.install().and_then(|()| Ok(gate.lease.renew(LEASE)?));
                if let Err(error) = again {
                    note!("longhaul relay: not intercepting: {error:#}");
                }
            }
        }
    }

    fn end_leases(&self) {
        for gate in &self.0 {
            // A lease that can't be ended runs out by itself.
            let _ = gate.lease.end();
        }
    }

    fn keep(self, pulse: &Pulse, inbox: &Receiver<Order>) {
        let mut steady = true;
        loop {
            match inbox.recv_timeout(PERIOD) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Order::LetPass) => break,
                Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
            let now_steady = pulse.is_steady(Instant::now());
            report(std::mem::replace(&mut steady, now_steady), now_steady);
            if now_steady {
                self.renew();
            }
        }
        self.end_leases();
        // Until the end is ordered, or there is nobody left to order it.
        while matches!(inbox.recv(), Ok(Order::LetPass)) {}
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_ends_with_its_owner() {
        // A port of our own: other tests run beside this one.
        let port = 1 + (std::process::id() % 60_000) as u16;
        let claimed = |family| is_claimed(family, port).unwrap();
        let claim = Claim::new(Family::Ip, port).unwrap();
        assert!(claimed(Family::Ip));
        assert!(!claimed(Family::Ip6));
        drop(claim);
        assert!(!claimed(Family::Ip));
    }
}
