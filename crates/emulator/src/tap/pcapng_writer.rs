// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that writes a tap's file.

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

/// Records wait so long for earlier ones. Notes come at most [`FILL_MAX`] late and a turn of the
/// pump, but with CoDel or ACK rules as late as they settle a segment's fate.
const ORDER_WINDOW: Time = Time::from_millis(200);
/// Bytes for one system call.
const WRITE_MIN: usize = 256 << 10;

/// Writes notes as they come, in order of time, whole blocks of pcapng at a time.
pub(super) struct PcapngWriter {
    file: File,
    snap: usize,
    epoch_offset: Time,
    started_at: Time,
    inbox: Receiver<FullBuffer>,
    spare: [Sender<RecordBuffer>; 2],
    merge: RecordMerger,
    /// What is not in the file yet.
    out: Vec<u8>,
    headers: Vec<u8>,
    /// Records in `out`, in the file, and too late because the disk failed, by interface.
    pending: [u64; 2],
    written: [u64; 2],
    dropped: [u64; 2],
    write_error: Option<io::Error>,
}

impl PcapngWriter {
    /// Writes what stands at the begin of the file. Of each direction `most` blocks may wait for
    /// their order.
    pub(super) fn start(
        file: File,
        snap: u32,
        since_1970: Time,
        inbox: Receiver<FullBuffer>,
        spare: [Sender<RecordBuffer>; 2],
        most: usize,
    ) -> io::Result<Self> {
        let mut scribe = Self {
            file,
            snap: snap as usize,
            epoch_offset: since_1970,
            started_at: clock::now(),
            inbox,
            spare,
            merge: RecordMerger::new(most),
            out: Vec::with_capacity(2 * WRITE_MIN),
            headers: Vec::new(),
            pending: [0; 2],
            written: [0; 2],
            dropped: [0; 2],
            write_error: None,
        };
        write_header(&mut scribe.out, snap);
        scribe.file.write_all(&scribe.out)?;
        scribe.out.clear();
        Ok(scribe)
    }

    /// Works until all tap points are gone.
    pub(super) fn run(mut self) -> Self {
        loop {
            let ended = self.receive();
            let horizon = match ended {
                true => Time::MAX,
                false => clock::now() - ORDER_WINDOW,
            };
            // Nothing that was noted before the horizon is still on its way after that.
            while let Ok(full) = self.inbox.try_recv() {
                self.merge.add(full);
            }
            self.write_until(horizon);
            if ended {
                return self;
            }
        }
    }

    /// Waits for a block, or until something may be written; whether there will be no more.
    fn receive(&mut self) -> bool {
        let received = match self.merge.is_empty() {
            true => self
                .inbox
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
            false => self.inbox.recv_timeout(FILL_TIME_MAX.into()),
        };
        match received {
            Ok(full) => self.merge.add(full),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return true,
        }
        false
    }

    fn write_until(&mut self, horizon: Time) {
        while let Some(place) = self.merge.next(horizon) {
            self.write_record(place);
            if let Some((direction, mut block)) = self.merge.release(place) {
                block.clear();
                // A point that is gone needs no blocks.
                drop(self.spare[direction as usize].send(block));
            }
            if self.out.len() >= WRITE_MIN {
                self.flush();
            }
        }
        self.flush();
    }

    fn write_record(&mut self, place: RecordIndex) {
        let Some((direction, block, note)) = self.merge.get(place) else {
            return;
        };
        let wire_len = block.headers(note, &mut self.headers);
        let at = interface(direction, note.is_departure());
        let frame = Frame {
            timestamp_ns: (self.epoch_offset + note.at).as_nanos(),
            interface: at as u32,
            link_type: LinkType::Raw,
            wire_len,
            bytes: &self.headers[..self.headers.len().min(self.snap)],
            segment_size: 0,
            truth: note.emulator_record,
        };
        let heading = match note.is_departure() {
            true => PacketDirection::Inbound,
            false => PacketDirection::Outbound,
        };
        writer::packet(&mut self.out, &frame, heading);
        self.pending[at] += 1;
    }

    /// A disk that fails ends the file, never the link.
    fn flush(&mut self) {
        if !self.out.is_empty() && self.write_error.is_none() {
            self.write_error = self.file.write_all(&self.out).err();
            if let Some(error) = &self.write_error {
                errln!("the tap ends here: {error}");
            }
        }
        self.out.clear();
        let counts = match self.write_error {
            None => &mut self.written,
            Some(_) => &mut self.dropped,
        };
        for (count, unsaved) in counts.iter_mut().zip(&mut self.pending) {
            *count += std::mem::take(unsaved);
        }
    }

    /// Writes the statistics of both interfaces; how many records there are, and how many are
    /// missing.
    pub(super) fn finish(&mut self, checks: &[TimingReport], now: Time) -> [u64; 2] {
        for check in checks {
            let missed = check.tap_missed.unwrap_or_default();
            self.dropped[interface(check.direction, false)] += missed.arrivals;
            self.dropped[interface(check.direction, true)] += missed.departures;
        }
        for direction in [Direction::Backward, Direction::Forward] {
            let check = checks.iter().find(|check| check.direction == direction);
            self.write_statistics(interface(direction, true), check, now);
        }
        self.flush();
        [self.written, self.dropped].map(|counts| counts.iter().sum())
    }

    /// The comment is the self-check of the direction that comes out there.
    fn write_statistics(&mut self, interface: usize, check: Option<&TimingReport>, now: Time) {
        let statistics = Statistics {
            interface: interface as u32,
            from_ns: (self.epoch_offset + self.started_at).as_nanos(),
            until_ns: (self.epoch_offset + now).as_nanos(),
            received: self.written[interface] + self.dropped[interface],
            dropped: self.dropped[interface],
        };
        let comment = check.and_then(|check| serde_json::to_string(check).ok());
        let comment = comment.unwrap_or_default();
        writer::annotated_statistics(&mut self.out, &statistics, &comment);
    }

    /// Why the file ends early, if it does.
    pub(super) fn write_error(self) -> Option<io::Error> {
        self.write_error
    }
}

/// The interface in the file at which a direction's segments begin, or come out.
const fn interface(direction: Direction, is_departure: bool) -> usize {
    direction as usize ^ is_departure as usize
}

fn write_header(out: &mut Vec<u8>, snap: u32) {
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
            snaplen: snap,
            filter: "",
        };
        writer::interface(out, &interface);
    }
}
