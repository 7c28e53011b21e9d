// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directions at work: reads packets from one device, lets [`Line`] decide on each segment, and
//! writes what comes out to the other device. One reader a direction, no lock.

use super::{
    counters::{Counters, Direction, Snapshot},
    packet_ring::PacketRing,
    tap::TapPoint,
};
use longhaul_linux::{clock, tun::Tun, wait::Bell};
use longhaul_netem::{
    AckClass, Batch, Coalescer, Delivered, Event, Line, LinkConfig, Segment, Setting,
};
use longhaul_packet::{super_packet::SuperPacket, vnet};
use longhaul_units::Time;
use std::{
    io,
    sync::mpsc::{self, Receiver, TryRecvError},
};
use tokio::sync::mpsc::Sender;

/// What a thread is told while it runs.
#[derive(Debug, Clone)]
pub(super) enum LoopCommand {
    /// Change one setting of one direction now, hold so many bytes from now on, and say when that is done.
    Set(Direction, Setting, usize, mpsc::Sender<()>),
    /// Say what is set in one direction.
    Show(Direction, mpsc::Sender<LinkConfig>),
    /// End.
    Stop,
}

/// A thread that serves one direction or both.
pub(super) struct ForwardingLoop {
    /// What it serves.
    pub(super) forwarders: Vec<Forwarder>,
    /// Orders from the outside, announced by `bell`.
    pub(super) commands: Receiver<LoopCommand>,
    /// Wakes the thread.
    pub(super) bell: Bell,
    /// Where snapshots go.
    pub(super) snapshots: Sender<Snapshot>,
    /// How often.
    pub(super) interval: Time,
    /// Whether it goes before all ordinary threads.
    pub(super) realtime: bool,
}

/// One direction of a link.
pub(super) struct Forwarder {
    /// Which one.
    pub(super) direction: Direction,
    /// Where packets come from.
    pub(super) ingress: Tun,
    /// Where they go.
    pub(super) egress: Tun,
    /// Decides.
    pub(super) line: Line,
    /// Joins what is due.
    pub(super) coalescer: Coalescer,
    /// Holds packets meanwhile.
    pub(super) store: PacketRing,
    /// Counts.
    pub(super) counters: Counters,
    /// Records, if there is a tap.
    pub(super) tap: Option<TapPoint>,
    /// Scratch space for damaged segments.
    pub(super) corrupt_buffer: Vec<u8>,
}

/// Packets read before deliveries are looked at again: bounds the time for which a due segment can
/// wait behind reads, at about 10 µs each.
const READS_PER_TURN: usize = 4;

/// A deadline so near is waited for awake: sleeping and waking takes longer.
const SPIN_MAX: Time = Time::from_micros(3);

/// Turns without a packet before the thread sleeps. Until then it gives way to any thread that
/// wants its core, so that it costs nobody anything, and a packet that comes meanwhile needs no
/// wake-up, which in a virtual machine takes longer than carrying the packet.
const IDLE_TURNS: u32 = 100;

impl ForwardingLoop {
    /// Works until told to stop, and sends a last snapshot. An error means that a device is gone.
    pub(super) fn run(mut self) -> io::Result<()> {
        longhaul_linux::wait::precise_timers()?;
        if self.realtime && !longhaul_linux::wait::take_precedence() {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        let ended = self.serve();
        self.send_snapshots(clock::now());
        ended
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut next_report = clock::now() + self.interval;
        let mut idle_turns = 0;
        loop {
            let read = self.forward_once()?;
            let now = clock::now();
            if now >= next_report {
                next_report = next_report.max(now) + self.interval;
                self.send_snapshots(now);
            }
            // At each turn: a thread that is never idle has orders, too.
            if self.process_commands() {
                return Ok(());
            }
            idle_turns = if read > 0 { 0 } else { idle_turns + 1 };
            match idle_turns {
                0 => {}
                1..IDLE_TURNS => longhaul_linux::wait::give_way(),
                _ => self.wait(next_report)?,
            }
        }
    }

    /// Serves each direction once; how many packets came in.
    fn forward_once(&mut self) -> io::Result<usize> {
        let mut read = 0;
        for lane in &mut self.forwarders {
            read += lane.read_packets()?;
            lane.deliver(clock::now());
        }
        Ok(read)
    }

    /// Sleeps until a packet, an order or a deadline comes.
    fn wait(&mut self, next_report: Time) -> io::Result<()> {
        let deadlines = self
            .forwarders
            .iter_mut()
            .filter_map(Forwarder::next_deadline);
        let deadline = deadlines.fold(next_report, Time::min);
        let left = deadline.since(clock::now());
        match left < SPIN_MAX {
            true => Ok(()),
            false => self
                .bell
                .wait(self.forwarders.iter().map(|lane| &lane.ingress), left)
                .map(drop),
        }
    }

    /// Carries out what was ordered; whether to end.
    fn process_commands(&mut self) -> bool {
        loop {
            match self.commands.try_recv() {
                Ok(LoopCommand::Set(direction, setting, memory, done)) => {
                    self.set(direction, setting, memory);
                    // Who asked may have given up.
                    let _ = done.send(());
                }
                Ok(LoopCommand::Show(direction, answer)) => self.show(direction, &answer),
                Err(TryRecvError::Empty) => return false,
                Ok(LoopCommand::Stop) | Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// A change that was due by now is made first.
    fn show(&mut self, direction: Direction, answer: &mpsc::Sender<LinkConfig>) {
        let lane = self
            .forwarders
            .iter_mut()
            .find(|lane| lane.direction == direction);
        if let Some(lane) = lane {
            lane.deliver(clock::now());
            // Who asked may have given up.
            drop(answer.send(lane.line.shape().clone()));
        }
    }

    fn set(&mut self, direction: Direction, setting: Setting, memory: usize) {
        let lane = self
            .forwarders
            .iter_mut()
            .find(|lane| lane.direction == direction);
        if let Some(Forwarder {
            line,
            store,
            counters,
            tap,
            ..
        }) = lane
        {
            store.grow(memory);
            line.set(clock::now(), setting, &mut |event| {
                apply_event(event, store, counters, tap);
            });
        }
    }

    /// Snapshots are for people and logs: one that finds no room is left out, never waited for.
    fn send_snapshots(&mut self, now: Time) {
        for lane in &mut self.forwarders {
            lane.counters.tap_missed = lane.tap.as_ref().map(TapPoint::dropped_records);
            drop(
                self.snapshots
                    .try_send(lane.counters.snapshot(now, &lane.line)),
            );
        }
    }
}

impl Forwarder {
    /// Reads what is there, up to a bound; how many packets.
    fn read_packets(&mut self) -> io::Result<usize> {
        for read in 0..READS_PER_TURN {
            if !self.read_one()? {
                return Ok(read);
            }
        }
        Ok(READS_PER_TURN)
    }

    /// Reads one packet, if there is one. With no room left it is lost, as in a device, instead of
    /// holding up those that are due.
    fn read_one(&mut self) -> io::Result<bool> {
        let mut scratch = [0; vnet::LEN + 128];
        let space = self.store.free_space();
        let room = space.is_some();
        match self.ingress.read(space.unwrap_or(&mut scratch)) {
            Ok(len) if room => self.accept(len),
            Ok(_) => self.counters.no_memory += 1,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    fn accept(&mut self, len: usize) {
        let now = clock::now();
        let Some(space) = self.store.free_space() else {
            return;
        };
        let Some((head, packet)) = space[..len].split_first_chunk::<{ vnet::LEN }>() else {
            self.counters.malformed += 1;
            return;
        };
        let Some(layout) = SuperPacket::parse(head, packet) else {
            self.counters.malformed += 1;
            return;
        };
        let acking = self
            .line
            .wants_acking()
            .then(|| AckClass::of(packet))
            .flatten();
        self.counters.count_arrival(&layout);
        let number = self.store.commit(len, layout);
        let Self {
            line,
            store,
            counters,
            tap,
            ..
        } = self;
        for index in 0..layout.segments() {
            let last = index + 1 == layout.segments();
            let segment = Segment {
                packet: number,
                index,
                last,
                len: layout.segment_len(index),
            };
            line.offer(now, segment, acking, &mut |event| {
                apply_event(event, store, counters, tap);
            });
        }
    }

    /// Writes all that is due by `now`.
    fn deliver(&mut self, now: Time) {
        let Self {
            line,
            coalescer: regroup,
            store,
            counters,
            egress,
            tap,
            corrupt_buffer: damaged,
            ..
        } = self;
        let mut write = |run: Batch, store: &mut PacketRing, counters: &mut Counters| {
            write_batch(egress, store, counters, &run, damaged);
        };
        line.poll(now, &mut |event| match event {
            Event::Deliver(out) => {
                if let Some(tap) = tap {
                    tap.record_departure(&out, store);
                }
                let Delivered {
                    at,
                    segment,
                    corrupt,
                } = out;
                regroup.push(at, segment, corrupt, |run| write(run, store, counters));
            }
            other => apply_event(other, store, counters, tap),
        });
        if let Some(run) = regroup.flush(now) {
            write(run, store, counters);
        }
        if let Some(tap) = tap {
            tap.flush(now);
        }
    }

    /// When something is due at the latest.
    fn next_deadline(&mut self) -> Option<Time> {
        let tap = self.tap.as_ref().and_then(TapPoint::deadline);
        [self.line.next_deadline(), self.coalescer.deadline(), tap]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Books a segment that will not, or not only once, be delivered, and for the tap each that came.
fn apply_event(
    event: Event,
    store: &mut PacketRing,
    counters: &mut Counters,
    tap: &mut Option<TapPoint>,
) {
    match event {
        Event::Verdict(judged) => {
            if let Some(tap) = tap {
                tap.record_arrival(&judged, store);
            }
        }
        Event::Drop { segment, cause } => {
            counters.count_drop(cause);
            store.release(segment.packet, 1);
        }
        Event::Copy(segment) => {
            counters.duplicated += 1;
            store.retain(segment.packet);
        }
        Event::Deliver(_) => {}
    }
}

fn write_batch(
    egress: &Tun,
    store: &mut PacketRing,
    counters: &mut Counters,
    run: &Batch,
    damaged: &mut Vec<u8>,
) {
    let (packet, bytes) = store.get(run.packet);
    let layout = packet.layout;
    let written = match run.corrupt {
        Some(entropy) => {
            layout.corrupt_into(&bytes[vnet::LEN..], run.segments.start, entropy, damaged);
            egress.write(damaged, &[])
        }
        None if run.segments == (0..layout.segments()) => egress.write(bytes, &[]),
        None => {
            let packet = &bytes[vnet::LEN..];
            let part = layout.run(packet, run.segments.clone());
            egress.write(part.head(), &packet[part.payload.clone()])
        }
    };
    counters.count_delivery(&layout, run, written.is_ok(), clock::now());
    store.release(run.packet, run.segments.len() as u32);
}
