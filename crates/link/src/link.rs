// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running link: creates the interfaces, starts the threads, and changes settings.

use super::{
    arrival_clock::ArrivalClock,
    capture::{Capture, SegmentRecorder},
    config::{Config, DirectionConfig, Endpoint, Link},
    counters::{Counters, Direction, DirectionState, EffectiveQueueLimit, Snapshot, TimingReport},
    forwarding::{Forwarder, ForwardingLoop, LoopCommand},
    packet_ring::PacketRing,
};
use anyhow::{Context, Result};
use longhaul_command::{errln, exit::Refusal};
use longhaul_linux::{
    clock, interface,
    netns::Netns,
    packet_ring::{OpenError, TransmitLog},
    sysctl,
    tun::Tun,
    wait::Waker,
};
use longhaul_netem::{Coalescer, Delivery, Line, LinkConfig, Setting, setting::QueueCapacity};
use std::{
    cell::RefCell,
    collections::BTreeSet,
    fs::File,
    io,
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::sync::mpsc::Sender;

/// Longest time that a forwarding thread may take to respond. On a machine with a free core it takes microseconds.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);
/// Length of the transmit queue of both interfaces, packets. A full queue drops, so it is long enough for the burst of
/// a large window: 10,000 super-packets are at most 640 MB.
const TRANSMIT_QUEUE_PACKETS: u32 = 10_000;
/// Packets in the log of an interface: a full queue, and some that the interface drops. Memory: 2 MB a direction.
const LOG_PACKETS: usize = 16_384;

/// A link with its threads.
pub(super) struct RunningLink {
    name: String,
    delivery: Delivery,
    /// Ends, in the order of the directions that begin there. An interface exists while its device is open.
    ends: [End; 2],
    directions: [DirectionHandle; 2],
    threads: Vec<ForwardingThread>,
    capture: Option<Capture>,
}

/// One end of a link.
struct End {
    netns: Netns,
    interface: String,
    device: Tun,
    /// Whether the kernel logs the times of the packets that are sent there.
    has_log: bool,
}

/// Handle of one direction, for use outside its thread.
struct DirectionHandle {
    config: RefCell<DirectionConfig>,
    latest_snapshot: RefCell<Option<Snapshot>>,
    thread: usize,
}

/// Handle of a forwarding thread.
struct ForwardingThread {
    commands: mpsc::Sender<LoopCommand>,
    waker: Waker,
    handle: JoinHandle<io::Result<()>>,
}

impl RunningLink {
    pub(super) fn start(
        link: &Link,
        ends: (Netns, Netns),
        config: &Config,
        capture: Option<File>,
        snapshots: &Sender<Snapshot>,
    ) -> Result<Self> {
        let (left, left_log) = End::create(ends.0, &link.left, link)?;
        let (right, right_log) = End::create(ends.1, &link.right, link)?;
        let capture = link.capture.as_ref().zip(capture);
        let capture = capture
            .map(|(options, file)| Capture::start(options, file))
            .transpose()?;
        let (capture, recorders) = capture.unzip();
        let [forward_capture, backward_capture] =
            recorders.map_or([None, None], |recorders| recorders.map(Some));
        let forwarders = [
            forwarder(
                link,
                Direction::Forward,
                [&left, &right],
                left_log,
                forward_capture,
            )?,
            forwarder(
                link,
                Direction::Backward,
                [&right, &left],
                right_log,
                backward_capture,
            )?,
        ];
        let directions = [
            (&link.forward, 0),
            (&link.backward, config.threads.min(2) - 1),
        ];
        let [forward, backward] =
            directions.map(|(config, thread)| DirectionHandle::new(config, thread));
        let forwarders_by_thread = match config.threads {
            1 => vec![Vec::from(forwarders)],
            _ => forwarders.map(|forwarder| vec![forwarder]).into(),
        };
        let threads = forwarders_by_thread.into_iter().map(|forwarders| {
            ForwardingThread::start(&link.name, forwarders, config, snapshots.clone())
        });
        Ok(Self {
            name: link.name.clone(),
            delivery: link.delivery,
            directions: [forward, backward],
            threads: threads.collect::<Result<_>>()?,
            capture,
            ends: [left, right],
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Adds the drops of the sender's interface to the newest counters of a direction, and stores them.
    pub(super) fn record_snapshot(&self, snapshot: &mut Snapshot) {
        let End {
            netns, interface, ..
        } = &self.ends[snapshot.direction as usize];
        snapshot.device_overflow = interface::transmit_drops(netns, interface).ok();
        let handle = self.handle(snapshot.direction);
        handle.latest_snapshot.replace(Some(snapshot.clone()));
    }

    /// Returns the name of a namespace of this link that was deleted while it runs.
    pub(super) fn deleted_namespace(&self) -> Option<&str> {
        let mut namespaces = self.ends.iter().map(|end| &end.netns);
        namespaces.find(|netns| netns.has_lost_name())?.name()
    }

    /// Whether a thread has ended by itself, because its interface was removed.
    pub(super) fn has_ended(&self) -> bool {
        self.threads
            .iter()
            .any(|thread| thread.handle.is_finished())
    }

    fn handle(&self, direction: Direction) -> &DirectionHandle {
        &self.directions[direction as usize]
    }

    /// Changes a setting in one direction or both; on error it changes neither. The change applies to every packet that
    /// arrives afterwards. Returns warnings of the new settings that the old ones did not deserve.
    pub(super) fn set(
        &self,
        setting: &Setting,
        direction: Option<Direction>,
    ) -> Result<BTreeSet<String>> {
        let directions = match direction {
            Some(one) => vec![one],
            None => vec![Direction::Forward, Direction::Backward],
        };
        for direction in &directions {
            self.handle(*direction).with_setting(setting).check()?;
        }
        let mut warnings = BTreeSet::new();
        for direction in directions {
            let before = self.handle(direction).config.borrow().settings.warnings();
            self.set_direction(setting, direction)?;
            let after = self.handle(direction).config.borrow().settings.warnings();
            warnings.extend(&after - &before);
        }
        Ok(warnings)
    }

    fn set_direction(&self, setting: &Setting, direction: Direction) -> Result<()> {
        let handle = self.handle(direction);
        let thread = &self.threads[handle.thread];
        let changed = handle.with_setting(setting);
        let (done, confirmation) = mpsc::channel();
        let command = LoopCommand::Set(direction, setting.clone(), changed.memory_bytes()?, done);
        thread
            .commands
            .send(command)
            .context("the link has ended")?;
        handle.config.replace(changed);
        thread.waker.wake()?;
        let message = "the link is too busy: the change will take effect later";
        confirmation.recv_timeout(COMMAND_TIMEOUT).context(message)
    }

    /// Returns the current state of each direction.
    pub(super) fn states(&self) -> Vec<DirectionState> {
        [Direction::Forward, Direction::Backward]
            .map(|direction| self.state(direction))
            .into()
    }

    fn state(&self, direction: Direction) -> DirectionState {
        let handle = self.handle(direction);
        let (config, limit) = match self.current_config(direction) {
            Some((config, limit)) => (config, Some(limit)),
            None => (handle.config.borrow().settings.initial.clone(), None),
        };
        let limit = limit.filter(|_| config.rate.mean().is_some());
        let settings = config.settings().into_iter();
        DirectionState {
            link: self.name.clone(),
            direction,
            settings: settings
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
            queue_limit: limit.map(EffectiveQueueLimit::from),
            counters: handle.latest_snapshot.borrow().clone(),
        }
    }

    /// Returns the current settings of the thread, with the changes of its schedule, and its queue limit; `None` if it is
    /// too busy to respond.
    fn current_config(&self, direction: Direction) -> Option<(LinkConfig, QueueCapacity)> {
        let thread = &self.threads[self.handle(direction).thread];
        let (response, config) = mpsc::channel();
        thread
            .commands
            .send(LoopCommand::Show(direction, response))
            .ok()?;
        thread.waker.wake().ok()?;
        config.recv_timeout(COMMAND_TIMEOUT).ok()
    }

    pub(super) fn stop(&self) {
        for thread in &self.threads {
            // A thread that has ended receives neither.
            drop(thread.commands.send(LoopCommand::Stop));
            drop(thread.waker.wake());
        }
    }

    /// Waits for all threads. Returns their result, the last reports, and the capture.
    pub(super) fn join(self) -> (Result<()>, Vec<TimingReport>, Option<Capture>) {
        let ended = self.threads.into_iter().map(ForwardingThread::join);
        let ended = ended.fold(Ok(()), Result::and);
        let mut reports = Vec::new();
        for (handle, end) in self.directions.into_iter().zip(&self.ends) {
            let latest = handle.latest_snapshot.into_inner();
            reports.extend(latest.map(|last| TimingReport::new(&last, self.delivery, end.has_log)));
        }
        (ended, reports, self.capture)
    }
}

fn forwarder(
    link: &Link,
    direction: Direction,
    [ingress, egress]: [&End; 2],
    log: Option<TransmitLog>,
    capture: Option<SegmentRecorder>,
) -> Result<Forwarder> {
    let config = match direction {
        Direction::Forward => &link.forward,
        Direction::Backward => &link.backward,
    };
    let start = clock::now();
    // Each direction has its own random sequence.
    let seed = link.seed.wrapping_mul(2).wrapping_add(direction as u64);
    let line = Line::new(
        config.settings.initial.clone(),
        config.settings.schedule.clone(),
        seed,
        start,
    );
    Ok(Forwarder {
        direction,
        ingress: ingress.device.try_clone()?,
        egress: egress.device.try_clone()?,
        arrivals: ArrivalClock::new(log, start),
        line: match capture {
            Some(_) => line.observed(),
            None => line,
        },
        coalescer: Coalescer::new(link.delivery),
        packets: PacketRing::new(config.memory_bytes()?),
        counters: Counters::new(&link.name, direction, start),
        capture,
        corrupt_buffer: Vec::new(),
    })
}

impl ForwardingThread {
    fn start(
        link: &str,
        forwarders: Vec<Forwarder>,
        config: &Config,
        snapshots: Sender<Snapshot>,
    ) -> Result<Self> {
        let (commands, inbox) = mpsc::channel();
        let waker = Waker::new()?;
        let forwarding_loop = ForwardingLoop {
            forwarders,
            commands: inbox,
            waker: waker.clone(),
            snapshots,
            interval: config.interval,
            realtime: config.realtime,
        };
        let handle = thread::Builder::new()
            .name(link.to_owned())
            .spawn(|| forwarding_loop.run())?;
        Ok(Self {
            commands,
            waker,
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
    fn new(config: &DirectionConfig, thread: usize) -> Self {
        Self {
            config: RefCell::new(config.clone()),
            latest_snapshot: RefCell::default(),
            thread,
        }
    }

    fn with_setting(&self, setting: &Setting) -> DirectionConfig {
        let mut config = self.config.borrow().clone();
        config.settings.initial.apply(setting.clone());
        config
    }
}

impl End {
    /// Creates the interface of one end, and opens its log.
    fn create(netns: Netns, end: &Endpoint, link: &Link) -> Result<(Self, Option<TransmitLog>)> {
        let device = create_interface(&netns, end, link)?;
        let log = open_log(&netns, &end.interface)?;
        let created = Self {
            netns,
            interface: end.interface.clone(),
            device,
            has_log: log.is_some(),
        };
        Ok((created, log))
    }
}

/// Opens the log of an interface; `None` without CAP_NET_RAW.
fn open_log(netns: &Netns, interface: &str) -> Result<Option<TransmitLog>> {
    let open = || Ok(TransmitLog::open(interface, LOG_PACKETS));
    match netns.run(open)? {
        Ok(log) => Ok(Some(log)),
        Err(OpenError::NotPermitted) => {
            errln!(
                "warning: without CAP_NET_RAW packets from {interface} arrive when the link reads them: their wait before \
                 that is in no figure"
            );
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Creates the interface of one end.
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

/// Suppresses the kernel's own packets on the link, which would be counted: no router solicitations, no link-local
/// address, and no IPv6 at all without an IPv6 address.
fn suppress_ipv6(netns: &Netns, interface: &str, v4_only: bool) -> io::Result<()> {
    let set = |key: &str, value: &str| {
        match sysctl::write(netns, &format!("net/ipv6/conf/{interface}/{key}"), value) {
            // A kernel without IPv6 sends nothing.
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
        // `InvalidInput` is the error for an interface that is not a TUN device, such as lo.
        io::ErrorKind::ResourceBusy | io::ErrorKind::InvalidInput => Refusal::usage(format!(
            "interface {name} exists already in that namespace; choose another name"
        )),
        _ => anyhow::anyhow!("cannot make interface {name}: {error}"),
    }
}
