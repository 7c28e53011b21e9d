// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program at a cgroup's egress, and the thread that sends delayed ACKs when their time is up.

use super::{
    delayed_acks::{self, Sender, word},
    settings::{Counts, RATIO_MAX, Settings},
};
use crate::{Error, feature_probe};
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, RingBufferBuilder,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    time::{ClockId, clock_gettime},
};
use std::{
    io::{self, PipeReader, PipeWriter},
    os::{
        fd::{AsRawFd, BorrowedFd},
        unix::fs::MetadataExt,
    },
    thread::JoinHandle,
    time::Duration,
};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ack_thin.bpf.o"));

/// Active ACK control. It ends when it is dropped, which sends the ACKs in its storage, or when the process
/// dies; senders then recover as from a lost ACK.
#[derive(Debug)]
pub struct AckControl {
    link: Option<Link>,
    object: Object,
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

/// Controls the ACKs of the sockets of a cgroup, and of those below it, that are in the calling
/// thread's network namespace. Sockets belong to the cgroup in which they were created.
///
/// Memory: at most 16,384 flows of 250 B, and a ring of 256 KiB.
pub fn attach(cgroup: BorrowedFd<'_>, settings: &Settings) -> Result<AckControl, Error> {
    feature_probe::check_rights("ACK control is attached to a program")?;
    let sender = Sender::new().map_err(|error| failed("open a raw socket", &error))?;
    let object = feature_probe::capture_warnings(|| load(settings))?;
    let (stop_reader, stop_writer) = io::pipe().map_err(|error| failed("open a pipe", &error))?;
    let lease = map(&object, "lease")?;
    renew(&lease, LEASE);
    let late = map(&object, "late")?;
    let thread = std::thread::Builder::new()
        .name("late-acks".into())
        .spawn(move || serve(&late, &lease, &stop_reader, &sender))
        .map_err(|error| failed("start a thread", &error))?;
    let program = object.progs_mut().next().expect("the object has a program");
    let link = feature_probe::capture_warnings(|| program.attach_cgroup(cgroup.as_raw_fd()));
    let link =
        link.map_err(|error| feature_probe::failed("attach ACK control to a cgroup", &error))?;
    Ok(AckControl {
        link: Some(link),
        object,
        stop: Some(stop_writer),
        thread: Some(thread),
    })
}

impl AckControl {
    /// Returns the counts so far.
    pub fn counts(&self) -> Result<Counts, Error> {
        let values = map(&self.object, "counts")?.lookup_percpu(&[0; 4], MapFlags::ANY);
        // The map is an array, which always has its only entry.
        let values = values
            .map_err(|error| feature_probe::failed("read the counts of ACKs", &error))?
            .unwrap_or_default();
        let add = |sum: Counts, cpu_values: &Vec<u8>| Counts {
            generated: sum.generated + word(cpu_values, 0),
            withheld: sum.withheld + word(cpu_values, 8),
            delayed: sum.delayed + word(cpu_values, 16),
        };
        Ok(values.iter().fold(Counts::default(), add))
    }
}

impl Drop for AckControl {
    fn drop(&mut self) {
        // In this order: first no more ACKs are stored, then the stored ones are sent.
        drop(self.link.take());
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let (Ok(flows), Ok(sender)) = (map(&self.object, "flows"), Sender::new()) {
            delayed_acks::held_acks(&flows).for_each(|packet| sender.send(&packet));
        }
    }
}

/// Encodes `config` of ack_thin.bpf.c.
fn configuration(settings: &Settings) -> io::Result<[u8; 24]> {
    let netns = std::fs::metadata("/proc/thread-self/ns/net")?.ino() as u32;
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&(settings.hold_max.as_nanos() as u64).to_ne_bytes());
    bytes[8..12].copy_from_slice(&netns.to_ne_bytes());
    bytes[12..16].copy_from_slice(&settings.ratio.clamp(1, RATIO_MAX).to_ne_bytes());
    if let Some(class) = settings.pace {
        bytes[16..20].copy_from_slice(&class.handle.to_ne_bytes());
        bytes[20..].copy_from_slice(&class.device.to_ne_bytes());
    }
    Ok(bytes)
}

fn load(settings: &Settings) -> Result<Object, Error> {
    let bytes = configuration(settings).map_err(|error| failed("read /proc", &error))?;
    let loaded = open(&bytes).and_then(OpenObject::load);
    loaded.map_err(|error| feature_probe::refused("load the programs of ACK control", &error))
}

fn open(configuration: &[u8]) -> libbpf_rs::Result<OpenObject> {
    let mut object = ObjectBuilder::default().open_memory(OBJECT)?;
    let mut maps = object.maps_mut();
    let mut constants = maps
        .find(|map| map.name().to_string_lossy().ends_with(".rodata"))
        .expect("the object has constants");
    let initial = constants.initial_value_mut().expect("they have values");
    initial[..configuration.len()].copy_from_slice(configuration);
    drop(maps);
    Ok(object)
}

fn map(object: &Object, name: &str) -> Result<MapHandle, Error> {
    let mut maps = object.maps();
    let found = maps.find(|map| map.name() == name);
    let handle = MapHandle::try_from(&found.expect("the object's own map"));
    handle.map_err(|error| feature_probe::failed("open a map of ACK control", &error))
}

fn failed(step: &'static str, error: &io::Error) -> Error {
    let reason = error.to_string();
    match error.kind() {
        io::ErrorKind::PermissionDenied => Error::Denied(format!("cannot {step}: {reason}")),
        _ => Error::Failed { step, reason },
    }
}

/// Time that the program delays ACKs after the last renewal by [`serve`]. When the process is stopped or
/// hangs, all ACKs are sent at once.
const LEASE: Duration = Duration::from_secs(1);
/// Interval of renewals.
const RENEWAL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 250_000_000,
};

/// Sends delayed ACKs that are due, which the program puts into the ring `late`, until the other end of `stop_reader` is
/// closed.
fn serve(late: &MapHandle, lease: &MapHandle, stop_reader: &PipeReader, sender: &Sender) {
    let mut rings = RingBufferBuilder::new();
    let send = |record: &[u8]| {
        delayed_acks::packet(record).inspect(|packet| sender.send(packet));
        0
    };
    if rings.add(late, send).is_err() {
        return;
    }
    let Ok(ring) = rings.build() else { return };
    loop {
        renew(lease, LEASE);
        let mut ready = [
            PollFd::new(late, PollFlags::IN),
            PollFd::new(stop_reader, PollFlags::IN),
        ];
        match poll(&mut ready, Some(&RENEWAL_INTERVAL)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => break,
        }
        let ended = !ready[1].revents().is_empty();
        let _ = ring.consume();
        if ended {
            break;
        }
    }
    renew(lease, Duration::ZERO);
}

fn renew(lease: &MapHandle, length: Duration) {
    let now = clock_gettime(ClockId::Monotonic);
    let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
    let expires_at = (now + length).as_nanos() as u64;
    let _ = lease.update(&[0; 4], &expires_at.to_ne_bytes(), MapFlags::ANY);
}
