// SPDX-License-Identifier: MIT OR Apache-2.0
//! A link at work: makes the interfaces, starts a thread a direction and changes what is set.

use super::{
    config::{Config, Endpoint, Link, Way},
    counters::{Counters, Direction, SelfCheck, Snapshot, State},
    pump::{Lane, Order, Pump},
    store::Store,
    tap::{Point, Tap},
};
use anyhow::{Context, Result};
use longhaul_command::exit::Refusal;
use longhaul_linux::{clock, interface, netns::Netns, sysctl, tun::Tun, wait::Bell};
use longhaul_netem::{Coalescer, Delivery, Line, LinkConfig, Setting};
use std::{
    cell::RefCell,
    fs::File,
    io,
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::sync::mpsc::Sender;

/// How long a thread that carries packets may take to answer. On a machine with a free processor it takes microseconds.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Transmit queue of both interfaces, in packets. A full one drops, so it is long enough for the
/// burst of a large window: 10,000 super-packets are 640 MB at the very most.
const DEVICE_QUEUE: u32 = 10_000;

/// A link with its threads.
pub(super) struct Running {
    name: String,
    delivery: Delivery,
    ends: [(Netns, String); 2],
    wires: [Wire; 2],
    threads: Vec<Thread>,
    tap: Option<Tap>,
}

/// One direction as seen from outside its thread.
struct Wire {
    way: RefCell<Way>,
    latest: RefCell<Option<Snapshot>>,
    thread: usize,
}

/// A thread as seen from outside.
struct Thread {
    orders: mpsc::Sender<Order>,
    bell: Bell,
    handle: JoinHandle<io::Result<()>>,
}

impl Running {
    pub(super) fn start(
        link: &Link,
        ends: (Netns, Netns),
        config: &Config,
        tap: Option<File>,
        snapshots: &Sender<Snapshot>,
    ) -> Result<Self> {
        let left = device(&ends.0, &link.left, link)?;
        let right = device(&ends.1, &link.right, link)?;
        let tap = link.tap.as_ref().zip(tap);
        let tap = tap.map(|(plan, file)| Tap::begin(plan, file)).transpose()?;
        let (tap, points) = tap.unzip();
        let [forth, back] = points.map_or([None, None], |points| points.map(Some));
        let lanes = [
            lane(link, Direction::Forward, &left, &right, forth)?,
            lane(link, Direction::Backward, &right, &left, back)?,
        ];
        let wires = [
            (&link.forward, 0),
            (&link.backward, config.threads.min(2) - 1),
        ];
        let [forward, backward] = wires.map(|(way, thread)| Wire::new(way, thread));
        let groups = match config.threads {
            1 => vec![Vec::from(lanes)],
            _ => lanes.map(|lane| vec![lane]).into(),
        };
        let threads = groups
            .into_iter()
            .map(|lanes| Thread::start(&link.name, lanes, config, snapshots.clone()));
        Ok(Self {
            name: link.name.clone(),
            delivery: link.delivery,
            wires: [forward, backward],
            threads: threads.collect::<Result<_>>()?,
            tap,
            ends: [
                (ends.0, link.left.interface.clone()),
                (ends.1, link.right.interface.clone()),
            ],
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What a direction counted last.
    pub(super) fn note(&self, snapshot: &Snapshot) {
        let wire = self.wire(snapshot.direction);
        wire.latest.replace(Some(snapshot.clone()));
    }

    fn wire(&self, direction: Direction) -> &Wire {
        &self.wires[direction as usize]
    }

    /// Changes a setting in one direction or both, in both or in none. It holds for every packet that arrives afterwards.
    pub(super) fn set(&self, setting: &Setting, direction: Option<Direction>) -> Result<()> {
        let directions = match direction {
            Some(one) => vec![one],
            None => vec![Direction::Forward, Direction::Backward],
        };
        for direction in &directions {
            self.wire(*direction).changed(setting).check()?;
        }
        directions
            .iter()
            .try_for_each(|direction| self.set_one(setting, *direction))
    }

    fn set_one(&self, setting: &Setting, direction: Direction) -> Result<()> {
        let wire = self.wire(direction);
        let thread = &self.threads[wire.thread];
        let changed = wire.changed(setting);
        let (done, answer) = mpsc::channel();
        let order = Order::Set(direction, setting.clone(), changed.memory_bytes()?, done);
        thread.orders.send(order).context("the link has ended")?;
        wire.way.replace(changed);
        thread.bell.ring()?;
        let late = "the link is too busy: the change will hold, but does not hold yet";
        answer.recv_timeout(ANSWER_MAX).context(late)
    }

    /// Each direction as it is now.
    pub(super) fn states(&self) -> Vec<State> {
        [Direction::Forward, Direction::Backward]
            .map(|direction| self.state(direction))
            .into()
    }

    fn state(&self, direction: Direction) -> State {
        let wire = self.wire(direction);
        let settings = match self.shape_now(direction) {
            Some(shape) => shape.settings(),
            None => wire.way.borrow().shape.settings(),
        };
        let settings = settings.into_iter();
        State {
            link: self.name.clone(),
            direction,
            settings: settings
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
            counters: wire.latest.borrow().clone(),
        }
    }

    /// What the thread has set, its schedule's changes included; `None` if it has no time to say so.
    fn shape_now(&self, direction: Direction) -> Option<LinkConfig> {
        let thread = &self.threads[self.wire(direction).thread];
        let (answer, shape) = mpsc::channel();
        thread.orders.send(Order::Show(direction, answer)).ok()?;
        thread.bell.ring().ok()?;
        shape.recv_timeout(ANSWER_MAX).ok()
    }

    pub(super) fn stop(&self) {
        for thread in &self.threads {
            // A thread that has ended already hears neither.
            drop(thread.orders.send(Order::Stop));
            drop(thread.bell.ring());
        }
    }

    /// Waits for all threads: how they ended, and what is left to be told.
    pub(super) fn join(self) -> (Result<()>, Vec<SelfCheck>, Option<Tap>) {
        let ended = self.threads.into_iter().map(Thread::join);
        let ended = ended.fold(Ok(()), Result::and);
        let mut checks = Vec::new();
        for (wire, (netns, interface)) in self.wires.into_iter().zip(self.ends) {
            let overflow = interface::transmit_drops(&netns, &interface).unwrap_or(0);
            let latest = wire.latest.into_inner();
            checks.extend(latest.map(|last| SelfCheck::new(&last, self.delivery, overflow)));
        }
        (ended, checks, self.tap)
    }
}

fn lane(
    link: &Link,
    direction: Direction,
    ingress: &Tun,
    egress: &Tun,
    tap: Option<Point>,
) -> Result<Lane> {
    let way = match direction {
        Direction::Forward => &link.forward,
        Direction::Backward => &link.backward,
    };
    let start = clock::now();
    // Each direction draws from numbers of its own.
    let seed = link.seed.wrapping_mul(2).wrapping_add(direction as u64);
    let line = Line::new(way.shape.clone(), way.schedule.clone(), seed, start);
    Ok(Lane {
        direction,
        ingress: ingress.try_clone()?,
        egress: egress.try_clone()?,
        line: match tap {
            Some(_) => line.observed(),
            None => line,
        },
        regroup: Coalescer::new(link.delivery),
        store: Store::new(way.memory_bytes()?),
        counters: Counters::new(&link.name, direction, start),
        tap,
        damaged: Vec::new(),
    })
}

impl Thread {
    fn start(
        link: &str,
        lanes: Vec<Lane>,
        config: &Config,
        snapshots: Sender<Snapshot>,
    ) -> Result<Self> {
        let (orders, inbox) = mpsc::channel();
        let bell = Bell::new()?;
        let pump = Pump {
            lanes,
            orders: inbox,
            bell: bell.clone(),
            snapshots,
            interval: config.interval,
            realtime: config.realtime,
        };
        let handle = thread::Builder::new()
            .name(link.to_owned())
            .spawn(|| pump.run())?;
        Ok(Self {
            orders,
            bell,
            handle,
        })
    }

    fn join(self) -> Result<()> {
        let ended = self.handle.join();
        ended.map_err(|_| anyhow::anyhow!("a link thread panicked"))??;
        Ok(())
    }
}

impl Wire {
    fn new(way: &Way, thread: usize) -> Self {
        Self {
            way: RefCell::new(way.clone()),
            latest: RefCell::default(),
            thread,
        }
    }

    fn changed(&self, setting: &Setting) -> Way {
        let mut way = self.way.borrow().clone();
        way.shape.apply(setting.clone());
        way
    }
}

/// Makes one end's interface.
fn device(netns: &Netns, end: &Endpoint, link: &Link) -> Result<Tun> {
    let name = &end.interface;
    let tun = netns
        .run(|| Tun::create(name, link.offload))
        .map_err(|error| refusal(name, &error))?;
    silence_ipv6(netns, name, end.addresses.iter().all(|(a, _)| a.is_ipv4()))
        .with_context(|| format!("cannot configure IPv6 on {name}"))?;
    interface::configure(netns, name, link.mtu, DEVICE_QUEUE, &end.addresses)?;
    Ok(tun)
}

/// No packets of its own on a link whose packets may be counted: no router solicitations, no
/// link-local address, and no IPv6 at all without an IPv6 address.
fn silence_ipv6(netns: &Netns, interface: &str, v4_only: bool) -> io::Result<()> {
    let set = |key: &str, value: &str| {
        match sysctl::write(netns, &format!("net/ipv6/conf/{interface}/{key}"), value) {
            // A kernel without IPv6 is as quiet as can be.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    };
    set("addr_gen_mode", "1")?;
    set("router_solicitations", "0")?;
    set("disable_ipv6", if v4_only { "1" } else { "0" })
}

fn refusal(name: &str, error: &io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Refusal::unsupported(format!(
            "cannot make interface {name}: {error}; it needs CAP_NET_ADMIN and /dev/net/tun: run as root, or in a user \
             namespace (unshare -Urn) with /dev/net/tun open to you (sudo chmod 0666 /dev/net/tun)"
        )),
        io::ErrorKind::NotFound => Refusal::unsupported(format!(
            "cannot make interface {name}: no /dev/net/tun; load the tun module (modprobe tun)"
        )),
        // The latter of one that is no TUN device, as lo.
        io::ErrorKind::ResourceBusy | io::ErrorKind::InvalidInput => Refusal::usage(format!(
            "interface {name} exists already in that namespace; choose another name"
        )),
        _ => anyhow::anyhow!("cannot make interface {name}: {error}"),
    }
}
