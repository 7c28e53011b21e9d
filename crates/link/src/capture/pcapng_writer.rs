// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread that writes the pcapng file of a capture.

use super::{
    super::counters::{Direction, TimingReport},
    merger::{RecordIndex, RecordMerger},
    record_buffer::{FILL_TIME_MAX, FullBuffer, RecordBuffer},
};
use longhaul_command::errln;
use longhaul_linux::clock;
use longhaul_packet::capture::{
    Frame, LinkType,
    writer::{self, Interface, PacketDirection, SectionInfo, Statistics},
};
use longhaul_units::Time;
use std::{
    fs::File,
    io::{self, Write},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender},
};

/// Time that records wait for earlier ones. Records arrive at most [`FILL_TIME_MAX`] and one forwarding turn late. With
/// CoDel or ACK rules they also wait for the segment's verdict.
const ORDER_WINDOW: Time = Time::from_millis(200);
/// Least bytes of one write call.
const WRITE_MIN: usize = 256 << 10;

/// Writes records in order of time as they arrive, in whole blocks of pcapng.
pub(super) struct PcapngWriter {
    file: File,
    snap_length: usize,
    epoch_offset: Time,
    started_at: Time,
    inbox: Receiver<FullBuffer>,
    spare: [Sender<RecordBuffer>; 2],
    merger: RecordMerger,
    /// Bytes that are not in the file yet.
    out: Vec<u8>,
    headers: Vec<u8>,
    /// Records in `out`, records in the file, and records dropped because the disk failed, by interface.
    pending: [u64; 2],
    written: [u64; 2],
    dropped: [u64; 2],
    write_error: Option<io::Error>,
}

impl PcapngWriter {
    /// Writes the header of the file. At most `pending_max` buffers of each direction may wait for their order.
    pub(super) fn start(
        file: File,
        snap_length: u32,
        epoch_offset: Time,
        inbox: Receiver<FullBuffer>,
        spare: [Sender<RecordBuffer>; 2],
        pending_max: usize,
    ) -> io::Result<Self> {
        let mut writer = Self {
            file,
            snap_length: snap_length as usize,
            epoch_offset,
            started_at: clock::now(),
            inbox,
            spare,
            merger: RecordMerger::new(pending_max),
            out: Vec::with_capacity(2 * WRITE_MIN),
            headers: Vec::new(),
            pending: [0; 2],
            written: [0; 2],
            dropped: [0; 2],
            write_error: None,
        };
        write_header(&mut writer.out, snap_length);
        writer.file.write_all(&writer.out)?;
        writer.out.clear();
        Ok(writer)
    }

    /// Runs until all recorders are dropped.
    pub(super) fn run(mut self) -> Self {
        loop {
            let ended = self.receive();
            let horizon = if ended {
                Time::MAX
            } else {
                clock::now() - ORDER_WINDOW
            };
            // All buffers with records from before the horizon have arrived by now.
            while let Ok(full) = self.inbox.try_recv() {
                self.merger.add(full);
            }
            self.write_until(horizon);
            if ended {
                return self;
            }
        }
    }

    /// Waits for a buffer, or until records may be written; returns whether all recorders are dropped.
    fn receive(&mut self) -> bool {
        let received = if self.merger.is_empty() {
            self.inbox
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            self.inbox.recv_timeout(FILL_TIME_MAX.into())
        };
        match received {
            Ok(full) => self.merger.add(full),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return true,
        }
        false
    }

    fn write_until(&mut self, horizon: Time) {
        while let Some(index) = self.merger.next(horizon) {
            self.write_record(index);
            if let Some((direction, mut buffer)) = self.merger.release(index) {
                buffer.clear();
                // A dropped recorder needs no buffers.
                drop(self.spare[direction as usize].send(buffer));
            }
            if self.out.len() >= WRITE_MIN {
                self.flush();
            }
        }
        self.flush();
    }

    fn write_record(&mut self, index: RecordIndex) {
        let Some((direction, buffer, record)) = self.merger.get(index) else {
            return;
        };
        let wire_len = buffer.headers(record, &mut self.headers);
        let at = interface(direction, record.is_departure());
        let frame = Frame {
            timestamp_ns: (self.epoch_offset + record.at).as_nanos(),
            interface: at as u32,
            link_type: LinkType::Raw,
            wire_len,
            bytes: &self.headers[..self.headers.len().min(self.snap_length)],
            segment_size: 0,
            emulator_record: record.emulator_record,
        };
        let direction_flag = if record.is_departure() {
            PacketDirection::Inbound
        } else {
            PacketDirection::Outbound
        };
        writer::packet(&mut self.out, &frame, direction_flag);
        self.pending[at] += 1;
    }

    /// Writes the pending bytes. A disk error ends the file, but never the link.
    fn flush(&mut self) {
        if !self.out.is_empty() && self.write_error.is_none() {
            self.write_error = self.file.write_all(&self.out).err();
            if let Some(error) = &self.write_error {
                errln!("the capture ends here: {error}");
            }
        }
        self.out.clear();
        let counts = match self.write_error {
            None => &mut self.written,
            Some(_) => &mut self.dropped,
        };
        for (count, records) in counts.iter_mut().zip(&mut self.pending) {
            *count += std::mem::take(records);
        }
    }

    /// Writes the statistics of both interfaces; returns the numbers of written and of dropped records.
    pub(super) fn finish(&mut self, reports: &[TimingReport], now: Time) -> [u64; 2] {
        for report in reports {
            let dropped = report.capture_dropped.unwrap_or_default();
            self.dropped[interface(report.direction, false)] += dropped.arrivals;
            self.dropped[interface(report.direction, true)] += dropped.departures;
        }
        for direction in [Direction::Backward, Direction::Forward] {
            let report = reports.iter().find(|report| report.direction == direction);
            self.write_statistics(interface(direction, true), report, now);
        }
        self.flush();
        [self.written, self.dropped].map(|counts| counts.iter().sum())
    }

    /// Writes the statistics of an interface; their comment is the report of the direction that ends there.
    fn write_statistics(&mut self, interface: usize, report: Option<&TimingReport>, now: Time) {
        let statistics = Statistics {
            interface: interface as u32,
            from_ns: (self.epoch_offset + self.started_at).as_nanos(),
            until_ns: (self.epoch_offset + now).as_nanos(),
            received: self.written[interface] + self.dropped[interface],
            dropped: self.dropped[interface],
        };
        let comment = report.and_then(|report| serde_json::to_string(report).ok());
        let comment = comment.unwrap_or_default();
        writer::annotated_statistics(&mut self.out, &statistics, &comment);
    }

    /// Returns the error that ended the file early, if any.
    pub(super) fn write_error(self) -> Option<io::Error> {
        self.write_error
    }
}

/// Returns the interface in the file at which a direction's segments arrive or depart.
const fn interface(direction: Direction, is_departure: bool) -> usize {
    direction as usize ^ is_departure as usize
}

fn write_header(out: &mut Vec<u8>, snap_length: u32) {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let origin = SectionInfo {
        hardware: &system.machine().to_string_lossy(),
        system: &format!("{} {release}", system.sysname().to_string_lossy()),
        application: &format!("longhaul {} link", longhaul_command::version()),
    };
    writer::section(out, &origin);
    for name in ["left", "right"] {
        let interface = Interface {
            name,
            link_type: LinkType::Raw,
            snaplen: snap_length,
            filter: "",
        };
        writer::interface(out, &interface);
    }
}
