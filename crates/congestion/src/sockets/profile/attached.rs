// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs of a profile at a cgroup.

use super::{Counts, Profile, Refused};
use crate::{Error, feature_probe, object};
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, RingBuffer,
    RingBufferBuilder,
};
use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::Duration,
};

impl Profile {
    /// Encodes `struct profile`.
    fn bytes(&self) -> Vec<u8> {
        let longs = [self.gap_ns, self.cwnd_cap_bytes].map(Option::unwrap_or_default);
        let tos = self.dscp.map_or(u32::MAX, |dscp| u32::from(dscp) << 2);
        let words = [
            self.pacing_bytes_per_s.unwrap_or(0),
            self.initial_window.unwrap_or(0),
            self.notsent_lowat.unwrap_or(0),
            self.keepalive_s.unwrap_or(0),
            self.user_timeout_ms.unwrap_or(0),
            self.mss.unwrap_or(0),
            tos,
            self.send_buffer.unwrap_or(0),
            self.receive_buffer.unwrap_or(0),
        ];
        let mut name = [0; NAME_BYTES];
        let given = self.congestion_control.as_deref().unwrap_or("").bytes();
        name.iter_mut()
            .zip(given.take(NAME_BYTES - 1))
            .for_each(|(to, from)| *to = from);
        let mut bytes: Vec<u8> = longs.iter().flat_map(|long| long.to_ne_bytes()).collect();
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend(self.parameters.unwrap_or_default());
        bytes.extend(name);
        bytes
    }
}

/// TCP_CA_NAME_MAX (include/net/tcp.h).
const NAME_BYTES: usize = 16;

/// Names of the settings, in the order of `enum option`.
const OPTIONS: [&str; 12] = [
    "congestion_control",
    "parameters",
    "pacing",
    "cwnd_cap",
    "initial_window",
    "keepalive",
    "user_timeout",
    "notsent_lowat",
    "mss",
    "dscp",
    "send_buffer",
    "receive_buffer",
];

/// Number of sums at the start of `struct counts`.
const SUMS: usize = 8;

impl Counts {
    /// Parses `struct counts`.
    fn read(bytes: &[u8]) -> Self {
        let long = |at: usize| -> u64 {
            let bytes = bytes.get(8 * at..8 * at + 8);
            bytes.map_or(0, |b| {
                u64::from_ne_bytes(b.try_into().expect("eight bytes"))
            })
        };
        let refused = OPTIONS.iter().enumerate().map(|(at, setting)| Refused {
            setting,
            sockets: long(SUMS + at),
            errno: -(long(SUMS + OPTIONS.len() + at) as i64),
        });
        Self {
            connected: long(0),
            accepted: long(1),
            listening: long(2),
            closed: long(3),
            bytes_acked: long(4),
            bytes_received: long(5),
            segments_out: long(6),
            retransmitted: long(7),
            refused: refused.filter(|r| r.sockets > 0).collect(),
        }
    }
}

/// An attached profile. It is detached when this value is dropped, or when the process ends; connections
/// keep their settings.
#[derive(Debug)]
pub struct Attached {
    object: Object,
    /// Links, each of which detaches when it is closed.
    _links: Vec<Link>,
}

/// Programs that notify of sockets about to be used; the other one is the profile.
const NOTIFY_PROGRAMS: [&str; 4] = [
    "profile_connect4",
    "profile_connect6",
    "profile_bind4",
    "profile_bind6",
];

/// Checks whether the caller may attach a profile.
pub fn permitted() -> Result<(), Error> {
    feature_probe::check_rights("a profile is attached to a program")
}

/// Gives `profile` to TCP sockets that are opened in `cgroup` from now on, and below it.
/// `connections` is the map of the congestion control that [`Profile::parameters`] are for. With
/// `notify`, [`Attached::notifier`] notifies of sockets. Needs CAP_BPF and CAP_NET_ADMIN.
pub fn attach(
    profile: &Profile,
    cgroup: BorrowedFd<'_>,
    connections: Option<&MapHandle>,
    notify: bool,
) -> Result<Attached, Error> {
    permitted()?;
    feature_probe::capture_warnings(|| attach_programs(profile, cgroup, connections, notify))
}

fn attach_programs(
    profile: &Profile,
    cgroup: BorrowedFd<'_>,
    connections: Option<&MapHandle>,
    notify: bool,
) -> Result<Attached, Error> {
    let object = prepare(profile, connections, notify)?;
    let loaded = object.load();
    let object =
        loaded.map_err(|error| feature_probe::refused("load the profile's programs", &error))?;
    let wanted = object
        .progs_mut()
        .filter(|program| notify || !is_notify_program(program.name()));
    let links = wanted
        .map(|program| program.attach_cgroup(cgroup.as_raw_fd()))
        .collect::<Result<_, _>>()
        .map_err(failed("attach the profile to a cgroup"))?;
    Ok(Attached {
        object,
        _links: links,
    })
}

fn failed(step: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Error {
    move |error| feature_probe::failed(step, &error)
}

fn is_notify_program(program: &std::ffi::OsStr) -> bool {
    NOTIFY_PROGRAMS.iter().any(|name| program == *name)
}

fn prepare(
    profile: &Profile,
    connections: Option<&MapHandle>,
    notify: bool,
) -> Result<OpenObject, Error> {
    let object = ObjectBuilder::default().open_memory(object::PROFILE);
    let mut object = object.map_err(failed("read the profile's program"))?;
    write_profile(profile, &mut object);
    if let Some(theirs) = connections {
        let mut maps = object.maps_mut();
        let map = maps.find(|map| map.name() == "connections");
        let reused = map.expect("profile.bpf.c has it").reuse_fd(theirs.as_fd());
        reused.map_err(failed("use the congestion control's map"))?;
    }
    for mut program in object.progs_mut() {
        let wanted = notify || !is_notify_program(program.name());
        program.set_autoload(wanted);
    }
    Ok(object)
}

/// # Panics
/// If the object has no such variable, or one of another size.
fn write_profile(profile: &Profile, object: &mut OpenObject) {
    let mut maps = object.maps_mut();
    let constants = maps.find(|map| map.name().to_string_lossy().ends_with(".rodata"));
    let mut constants = constants.expect("profile.bpf.c has constants");
    let memory = constants.initial_value_mut().expect("they are its value");
    let bytes = profile.bytes();
    // (Rounded up to the alignment of its members.)
    assert_eq!(memory.len(), bytes.len().next_multiple_of(8), "one struct");
    memory[..bytes.len()].copy_from_slice(&bytes);
}

impl Attached {
    /// Returns the counts so far.
    pub fn counts(&self) -> Result<Counts, Error> {
        let mut maps = self.object.maps();
        let variables = maps.find(|map| map.name().to_string_lossy().ends_with(".bss"));
        let variables = variables.expect("profile.bpf.c has counts");
        let found = variables.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let found = found.map_err(failed("read the profile's counts"))?;
        Ok(Counts::read(&found.unwrap_or_default()))
    }

    /// Opens a notifier of sockets that are about to connect or to be bound.
    pub fn notifier(&self) -> Result<SocketNotifier, Error> {
        let mut maps = self.object.maps();
        let map = maps.find(|map| map.name() == "doorbell");
        let map = map.expect("profile.bpf.c has it");
        let handle = MapHandle::try_from(&map).map_err(failed("open the socket notifier"))?;
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&handle, |_| 0)
            .map_err(failed("open the socket notifier"))?;
        let ring = builder.build();
        Ok(SocketNotifier(
            ring.map_err(failed("open the socket notifier"))?,
        ))
    }
}

/// Notifies when a socket of the cgroup is about to connect or has been bound.
#[derive(Debug)]
pub struct SocketNotifier(RingBuffer<'static>);

impl SocketNotifier {
    /// Waits for a notification, for at most this time. Returns whether there was one.
    #[must_use]
    pub fn wait(&self, at_most: Duration) -> bool {
        self.0.poll_raw(at_most) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_has_the_program_s_layout() {
        let profile = Profile {
            congestion_control: Some("a_name_of_fifteen_and_more".into()),
            dscp: Some(8),
            ..Profile::default()
        };
        let bytes = profile.bytes();
        assert_eq!(bytes.len(), 2 * 8 + 9 * 4 + 32 + 16);
        assert_eq!(bytes.last(), Some(&0));
        assert_eq!(bytes[16 + 6 * 4], 32);
        prepare(&profile, None, true).unwrap();
    }

    #[test]
    fn counts_include_refused_settings() {
        let mut longs = [0_u64; SUMS + 2 * OPTIONS.len()];
        longs[0] = 3;
        longs[7] = 4;
        longs[SUMS] = 2;
        longs[SUMS + OPTIONS.len()] = (-2_i64) as u64;
        let bytes: Vec<u8> = longs.iter().flat_map(|long| long.to_ne_bytes()).collect();
        let counts = Counts::read(&bytes);
        assert_eq!((counts.connected, counts.retransmitted), (3, 4));
        let refused = Refused {
            setting: "congestion_control",
            sockets: 2,
            errno: 2,
        };
        assert_eq!(counts.refused, [refused]);
    }
}
