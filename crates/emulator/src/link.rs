// SPDX-License-Identifier: MIT OR Apache-2.0
//! A link at work: makes the interfaces, starts a thread a direction and changes what is set.

use super::{
    config::{Config, DirectionConfig, Endpoint, Link},
    counters::{Counters, Direction, DirectionState, Snapshot, TimingReport},
    forwarding::{Forwarder, ForwardingLoop, LoopCommand},
    packet_ring::PacketRing,
    tap::{Tap, TapPoint},
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
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);
/// Transmit queue of both interfaces, in packets. A full one drops, so it is long enough for the
/// burst of a large window: 10,000 super-packets are 640 MB at the very most.
const TRANSMIT_QUEUE_PACKETS: u32 = 10_000;

/// A link with its threads.
pub(super) struct RunningLink {
    name: String,
    delivery: Delivery,
    interfaces: [(Netns, String); 2],
    directions: [DirectionHandle; 2],
    threads: Vec<ForwardingThread>,
    tap: Option<Tap>,
}

/// One direction as seen from outside its thread.
struct DirectionHandle {
    config: RefCell<DirectionConfig>,
    latest_snapshot: RefCell<Option<Snapshot>>,
    thread: usize,
}

/// A thread as seen from outside.
struct ForwardingThread {
    commands: mpsc::Sender<LoopCommand>,
    bell: Bell,
    handle: JoinHandle<io::Result<()>>,
}

impl RunningLink {
    pub(super) fn start(
        link: &Link,
        ends: (Netns, Netns),
        config: &Config,
        tap: Option<File>,
        snapshots: &Sender<Snapshot>,
    ) -> Result<Self> {
        let left = create_interface(&ends.0, &link.left, link)?;
        let right = create_interface(&ends.1, &link.right, link)?;
        let tap = link.tap.as_ref().zip(tap);
        let tap = tap.map(|(plan, file)| Tap::start(plan, file)).transpose()?;
        let (tap, points) = tap.unzip();
        let [forth, back] = points.map_or([None, None], |points| points.map(Some));
        let lanes = [
            forwarder(link, Direction::Forward, &left, &right, forth)?,
            forwarder(link, Direction::Backward, &right, &left, back)?,
        ];
        let wires = [
            (&link.forward, 0),
            (&link.backward, config.threads.min(2) - 1),
        ];
        let [forward, backward] = wires.map(|(way, thread)| DirectionHandle::new(way, thread));
        let groups = match config.threads {
            1 => vec![Vec::from(lanes)],
            _ => lanes.map(|lane| vec![lane]).into(),
        };
        let threads = groups
            .into_iter()
            .map(|lanes| ForwardingThread::start(&link.name, lanes, config, snapshots.clone()));
        Ok(Self {
            name: link.name.clone(),
            delivery: link.delivery,
            directions: [forward, backward],
            threads: threads.collect::<Result<_>>()?,
            tap,
            interfaces: [
                (ends.0, link.left.interface.clone()),
                (ends.1, link.right.interface.clone()),
            ],
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What a direction counted last.
    pub(super) fn record_snapshot(&self, snapshot: &Snapshot) {
        let wire = self.handle(snapshot.direction);
        wire.latest_snapshot.replace(Some(snapshot.clone()));
    }

    fn handle(&self, direction: Direction) -> &DirectionHandle {
        &self.directions[direction as usize]
    }

    /// Changes a setting in one direction or both, in both or in none. It holds for every packet that arrives afterwards.
    pub(super) fn set(&self, setting: &Setting, direction: Option<Direction>) -> Result<()> {
        let directions = match direction {
            Some(one) => vec![one],
            None => vec![Direction::Forward, Direction::Backward],
        };
        for direction in &directions {
            self.handle(*direction).with_setting(setting).check()?;
        }
        directions
            .iter()
            .try_for_each(|direction| self.set_direction(setting, *direction))
    }

    fn set_direction(&self, setting: &Setting, direction: Direction) -> Result<()> {
        let wire = self.handle(direction);
        let thread = &self.threads[wire.thread];
        let changed = wire.with_setting(setting);
        let (done, answer) = mpsc::channel();
        let order = LoopCommand::Set(direction, setting.clone(), changed.memory_bytes()?, done);
        thread.commands.send(order).context("the link has ended")?;
        wire.config.replace(changed);
        thread.bell.ring()?;
        let message = "the link is too busy: the change will hold, but does not hold yet";
        answer.recv_timeout(COMMAND_TIMEOUT).context(message)
    }

    /// Each direction as it is now.
    pub(super) fn states(&self) -> Vec<DirectionState> {
        [Direction::Forward, Direction::Backward]
            .map(|direction| self.state(direction))
            .into()
    }

    fn state(&self, direction: Direction) -> DirectionState {
        let wire = self.handle(direction);
        let settings = match self.current_config(direction) {
            Some(shape) => shape.settings(),
            None => wire.config.borrow().initial.settings(),
        };
        let settings = settings.into_iter();
        DirectionState {
            link: self.name.clone(),
            direction,
            settings: settings
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
            counters: wire.latest_snapshot.borrow().clone(),
        }
    }

    /// What the thread has set, its schedule's changes included; `None` if it has no time to say so.
    fn current_config(&self, direction: Direction) -> Option<LinkConfig> {
        let thread = &self.threads[self.handle(direction).thread];
        let (answer, shape) = mpsc::channel();
        thread
            .commands
            .send(LoopCommand::Show(direction, answer))
            .ok()?;
        thread.bell.ring().ok()?;
        shape.recv_timeout(COMMAND_TIMEOUT).ok()
    }

    pub(super) fn stop(&self) {
        for thread in &self.threads {
            // A thread that has ended already hears neither.
            drop(thread.commands.send(LoopCommand::Stop));
            drop(thread.bell.ring());
        }
    }

    /// Waits for all threads: how they ended, and what is left to be told.
    pub(super) fn join(self) -> (Result<()>, Vec<TimingReport>, Option<Tap>) {
        let ended = self.threads.into_iter().map(ForwardingThread::join);
        let ended = ended.fold(Ok(()), Result::and);
        let mut checks = Vec::new();
        for (wire, (netns, interface)) in self.directions.into_iter().zip(self.interfaces) {
            let overflow = interface::transmit_drops(&netns, &interface).unwrap_or(0);
            let latest = wire.latest_snapshot.into_inner();
            checks.extend(latest.map(|last| TimingReport::new(&last, self.delivery, overflow)));
        }
        (ended, checks, self.tap)
    }
}

fn forwarder(
    link: &Link,
    direction: Direction,
    ingress: &Tun,
    egress: &Tun,
    tap: Option<TapPoint>,
) -> Result<Forwarder> {
    let way = match direction {
        Direction::Forward => &link.forward,
        Direction::Backward => &link.backward,
    };
    let start = clock::now();
    // Each direction draws from numbers of its own.
    let seed = link.seed.wrapping_mul(2).wrapping_add(direction as u64);
    let line = Line::new(way.initial.clone(), way.schedule.clone(), seed, start);
    Ok(Forwarder {
        direction,
        ingress: ingress.try_clone()?,
        egress: egress.try_clone()?,
        line: match tap {
            Some(_) => line.observed(),
            None => line,
        },
        coalescer: Coalescer::new(link.delivery),
        store: PacketRing::new(way.memory_bytes()?),
        counters: Counters::new(&link.name, direction, start),
        tap,
        corrupt_buffer: Vec::new(),
    })
}

impl ForwardingThread {
    fn start(
        link: &str,
        lanes: Vec<Forwarder>,
        config: &Config,
        snapshots: Sender<Snapshot>,
    ) -> Result<Self> {
        let (orders, inbox) = mpsc::channel();
        let bell = Bell::new()?;
        let pump = ForwardingLoop {
            forwarders: lanes,
            commands: inbox,
            bell: bell.clone(),
            snapshots,
            interval: config.interval,
            realtime: config.realtime,
        };
        let handle = thread::Builder::new()
            .name(link.to_owned())
            .spawn(|| pump.run())?;
        Ok(Self {
            commands: orders,
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

impl DirectionHandle {
    fn new(way: &DirectionConfig, thread: usize) -> Self {
        Self {
            config: RefCell::new(way.clone()),
            latest_snapshot: RefCell::default(),
            thread,
        }
    }

    fn with_setting(&self, setting: &Setting) -> DirectionConfig {
        let mut way = self.config.borrow().clone();
        way.initial.apply(setting.clone());
        way
    }
}

/// Makes one end's interface.
fn create_interface(netns: &Netns, end: &Endpoint, link: &Link) -> Result<Tun> {
    let name = &end.interface;
    let tun = netns
        .run(|| Tun::create(name, link.offload))
        .map_err(|error| interface_error(name, &error))?;
    suppress_ipv6(netns, name, end.addresses.iter().all(|(a, _)| a.is_ipv4()))
        .with_context(|| format!("cannot configure IPv6 on {name}"))?;
    interface::configure(
        netns,
        name,
        link.mtu,
        TRANSMIT_QUEUE_PACKETS,
        &end.addresses,
    )?;
    Ok(tun)
}

/// No packets of its own on a link whose packets may be counted: no router solicitations, no
/// link-local address, and no IPv6 at all without an IPv6 address.
fn suppress_ipv6(netns: &Netns, interface: &str, v4_only: bool) -> io::Result<()> {
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

fn interface_error(name: &str, error: &io::Error) -> anyhow::Error {
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
