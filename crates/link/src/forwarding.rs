// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwarding of packets: reads them from one device, lets [`Line`] decide on each segment, and writes the results to
//! the other device. Each direction has one reader and no lock.

use super::{
    arrival_clock::ArrivalClock,
    capture::SegmentRecorder,
    counters::{Counters, Direction, Snapshot},
    packet_ring::PacketRing,
};
use longhaul_linux::{clock, tun::Tun, wait::Waker};
use longhaul_netem::{
    AckClass, Batch, Coalescer, Delivered, Event, Line, LinkConfig, Segment, Setting,
    setting::QueueCapacity,
};
use longhaul_packet::{super_packet::SuperPacket, vnet};
use longhaul_units::Time;
use std::{
    io,
    sync::mpsc::{self, Receiver, TryRecvError},
};
use tokio::sync::mpsc::Sender;

/// Command to a forwarding thread.
#[derive(Debug, Clone)]
pub(super) enum LoopCommand {
    /// Change one setting of one direction now, and grow its packet ring to this many bytes; then confirm.
    Set(Direction, Setting, usize, mpsc::Sender<()>),
    /// Send back the settings of one direction, and its queue limit.
    Show(Direction, mpsc::Sender<(LinkConfig, QueueCapacity)>),
    /// Stop the thread.
    Stop,
}

/// State of a thread that forwards one direction or both.
pub(super) struct ForwardingLoop {
    /// Directions that it forwards.
    pub(super) forwarders: Vec<Forwarder>,
    /// Commands from other threads. The sender of a command triggers `waker`.
    pub(super) commands: Receiver<LoopCommand>,
    /// Wakes the thread for a command.
    pub(super) waker: Waker,
    /// Channel that takes the snapshots.
    pub(super) snapshots: Sender<Snapshot>,
    /// Interval between snapshots.
    pub(super) interval: Time,
    /// Whether the thread runs at real-time priority.
    pub(super) realtime: bool,
}

/// Forwarder of one direction of a link.
pub(super) struct Forwarder {
    /// Direction that it forwards.
    pub(super) direction: Direction,
    /// Device that packets are read from.
    pub(super) ingress: Tun,
    /// Device that packets are written to.
    pub(super) egress: Tun,
    /// Arrival times of the packets from `ingress`.
    pub(super) arrivals: ArrivalClock,
    /// Model of the path, which decides on each segment.
    pub(super) line: Line,
    /// Coalesces due segments into writes.
    pub(super) coalescer: Coalescer,
    /// Packets whose segments the line holds.
    pub(super) packets: PacketRing,
    /// Counters of this direction.
    pub(super) counters: Counters,
    /// Capture, if any.
    pub(super) capture: Option<SegmentRecorder>,
    /// Buffer in which corrupt segments are built.
    pub(super) corrupt_buffer: Vec<u8>,
}

/// Most packets that are read in one turn (iteration of the loop), before due segments are delivered. This bounds the
/// time that a due segment waits for reads, which take about 10 µs each.
const READS_PER_TURN: usize = 4;

/// Longest wait that the thread spends spinning: sleeping and waking up takes longer.
const SPIN_MAX: Time = Time::from_micros(3);

/// Turns without a packet before the thread sleeps. Until then it yields its core to any thread that wants it. A packet
/// that arrives meanwhile needs no wake-up. In a virtual machine, a wake-up takes longer than forwarding the packet.
const IDLE_TURNS: u32 = 100;

impl ForwardingLoop {
    /// Runs until a stop command, and sends a last snapshot. Fails if a device was removed, or if the kernel refuses
    /// timer slack 0 or real-time priority.
    pub(super) fn run(mut self) -> io::Result<()> {
        longhaul_linux::wait::disable_timer_slack()?;
        if self.realtime && !longhaul_linux::wait::request_realtime_priority() {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        let result = self.forward_until_stopped();
        self.send_snapshots(clock::now());
        result
    }

    fn forward_until_stopped(&mut self) -> io::Result<()> {
        let mut next_report = clock::now() + self.interval;
        let mut idle_turns = 0;
        loop {
            let read = self.forward_once()?;
            let now = clock::now();
            if now >= next_report {
                next_report = next_report.max(now) + self.interval;
                self.send_snapshots(now);
            }
            // Commands are checked at each turn, because a thread that is never idle receives commands, too.
            if self.process_commands() {
                return Ok(());
            }
            idle_turns = if read > 0 { 0 } else { idle_turns + 1 };
            match idle_turns {
                0 => {}
                1..IDLE_TURNS => longhaul_linux::wait::yield_now(),
                _ => self.wait(next_report)?,
            }
        }
    }

    /// Serves each direction once; returns the number of packets read.
    fn forward_once(&mut self) -> io::Result<usize> {
        let mut read = 0;
        for forwarder in &mut self.forwarders {
            read += forwarder.read_packets()?;
            forwarder.deliver(clock::now());
        }
        Ok(read)
    }

    /// Sleeps until a packet, a command or a deadline.
    fn wait(&mut self, next_report: Time) -> io::Result<()> {
        let deadlines = self
            .forwarders
            .iter_mut()
            .filter_map(Forwarder::next_deadline);
        let deadline = deadlines.fold(next_report, Time::min);
        let time_left = deadline.since(clock::now());
        if time_left < SPIN_MAX {
            Ok(())
        } else {
            self.waker
                .wait(
                    self.forwarders.iter().map(|forwarder| &forwarder.ingress),
                    time_left,
                )
                .map(drop)
        }
    }

    /// Executes pending commands; returns whether to stop.
    fn process_commands(&mut self) -> bool {
        loop {
            match self.commands.try_recv() {
                Ok(LoopCommand::Set(direction, setting, memory, done)) => {
                    self.set(direction, setting, memory);
                    // The client may have disconnected.
                    let _ = done.send(());
                }
                Ok(LoopCommand::Show(direction, response)) => self.show(direction, &response),
                Err(TryRecvError::Empty) => return false,
                Ok(LoopCommand::Stop) | Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// Sends the settings to `response`, after applying changes that are due by now.
    fn show(&mut self, direction: Direction, response: &mpsc::Sender<(LinkConfig, QueueCapacity)>) {
        let forwarder = self
            .forwarders
            .iter_mut()
            .find(|forwarder| forwarder.direction == direction);
        if let Some(forwarder) = forwarder {
            forwarder.deliver(clock::now());
            // The client may have disconnected.
            let line = &forwarder.line;
            drop(response.send((line.config().clone(), line.queue_capacity())));
        }
    }

    fn set(&mut self, direction: Direction, setting: Setting, memory: usize) {
        let forwarder = self
            .forwarders
            .iter_mut()
            .find(|forwarder| forwarder.direction == direction);
        if let Some(Forwarder {
            line,
            packets,
            counters,
            capture,
            arrivals,
            ..
        }) = forwarder
        {
            packets.grow(memory);
            line.set(arrivals.complete_until(), setting, &mut |event| {
                apply_event(event, packets, counters, capture);
            });
        }
    }

    /// Sends snapshots. If the channel is full, they are dropped: forwarding never waits for them.
    fn send_snapshots(&mut self, now: Time) {
        for forwarder in &mut self.forwarders {
            forwarder.counters.capture_dropped = forwarder
                .capture
                .as_ref()
                .map(SegmentRecorder::dropped_records);
            drop(self.snapshots.try_send(forwarder.snapshot(now)));
        }
    }
}

impl Forwarder {
    /// Reads available packets, up to a bound; returns how many.
    fn read_packets(&mut self) -> io::Result<usize> {
        for read in 0..READS_PER_TURN {
            if !self.read_one()? {
                return Ok(read);
            }
        }
        Ok(READS_PER_TURN)
    }

    /// Reads one packet, if available. If the ring is full, the packet is read and dropped, as a device drops it, and
    /// due segments are not delayed.
    fn read_one(&mut self) -> io::Result<bool> {
        let mut scratch = [0; vnet::LEN + 128];
        let space = self.packets.free_space();
        let has_space = space.is_some();
        let before = clock::now();
        match self.ingress.read(space.unwrap_or(&mut scratch)) {
            Ok(len) if has_space => self.accept(len),
            Ok(_) => self.counters.no_memory += 1,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.arrivals.drained(before);
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Offers the segments of a packet of `len` bytes, which is in the free space of the ring, to the line.
    fn accept(&mut self, len: usize) {
        let now = clock::now();
        let Some(space) = self.packets.free_space() else {
            return;
        };
        let Some((vnet_header, packet)) = space[..len].split_first_chunk::<{ vnet::LEN }>() else {
            self.counters.malformed += 1;
            return;
        };
        let arrival = self.arrivals.arrival(packet, now);
        let Some(layout) = SuperPacket::parse(vnet_header, packet) else {
            self.counters.malformed += 1;
            return;
        };
        let ack_class = self
            .line
            .needs_ack_class()
            .then(|| AckClass::of(packet))
            .flatten();
        self.counters.count_arrival(&layout);
        let number = self.packets.commit(len, layout);
        let Self {
            line,
            packets,
            counters,
            capture,
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
            line.offer(arrival, segment, ack_class, &mut |event| {
                apply_event(event, packets, counters, capture);
            });
        }
    }

    fn snapshot(&self, now: Time) -> Snapshot {
        let Self { line, packets, .. } = self;
        self.counters.snapshot(now, line, packets.segments())
    }

    /// Delivers all segments due by `now`.
    fn deliver(&mut self, now: Time) {
        let Self {
            line,
            coalescer,
            packets,
            counters,
            egress,
            capture,
            corrupt_buffer,
            arrivals,
            ..
        } = self;
        let known = arrivals.complete_until();
        let mut write = |batch: Batch, packets: &mut PacketRing, counters: &mut Counters| {
            write_batch(egress, packets, counters, &batch, corrupt_buffer);
        };
        line.poll_known(known, now, &mut |event| match event {
            Event::Deliver(delivered) => {
                if let Some(capture) = capture {
                    capture.record_departure(&delivered, packets);
                }
                let Delivered {
                    at,
                    segment,
                    corrupt,
                } = delivered;
                coalescer.push(at, segment, corrupt, |batch| {
                    write(batch, packets, counters);
                });
            }
            other => apply_event(other, packets, counters, capture),
        });
        if let Some(batch) = coalescer.flush(now) {
            write(batch, packets, counters);
        }
        if let Some(capture) = capture {
            capture.flush(now);
        }
    }

    /// Returns the earliest deadline of the line, the coalescer and the capture.
    fn next_deadline(&mut self) -> Option<Time> {
        let capture = self.capture.as_ref().and_then(SegmentRecorder::deadline);
        [
            self.line.next_deadline(),
            self.coalescer.deadline(),
            capture,
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

/// Applies an event of the line to the packet ring, counters and capture: a verdict, a drop or a duplicate.
fn apply_event(
    event: Event,
    packets: &mut PacketRing,
    counters: &mut Counters,
    capture: &mut Option<SegmentRecorder>,
) {
    match event {
        Event::Verdict(verdict) => {
            if let Some(capture) = capture {
                capture.record_arrival(&verdict, packets);
            }
        }
        Event::Drop { segment, cause } => {
            counters.count_drop(cause);
            packets.release(segment.packet, 1);
        }
        Event::Duplicate(segment) => {
            counters.duplicated += 1;
            packets.retain(segment.packet);
        }
        Event::Deliver(_) => {}
    }
}

fn write_batch(
    egress: &Tun,
    packets: &mut PacketRing,
    counters: &mut Counters,
    batch: &Batch,
    corrupt_buffer: &mut Vec<u8>,
) {
    let (packet, bytes) = packets.get(batch.packet);
    let layout = packet.layout;
    let written = match batch.corrupt {
        Some(entropy) => {
            layout.corrupt_into(
                &bytes[vnet::LEN..],
                batch.segments.start,
                entropy,
                corrupt_buffer,
            );
            egress.write(corrupt_buffer, &[])
        }
        None if batch.segments == (0..layout.segments()) => egress.write(bytes, &[]),
        None => {
            let packet = &bytes[vnet::LEN..];
            let part = layout.run(packet, batch.segments.clone());
            egress.write(part.head(), &packet[part.payload.clone()])
        }
    };
    counters.count_delivery(&layout, batch, written.is_ok(), clock::now());
    packets.release(batch.packet, batch.segments.len() as u32);
}
