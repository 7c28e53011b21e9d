// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parameters of a single socket, instead of those with which its congestion control was loaded.
//!
//! They are in the socket's storage, in the map of the congestion control's connections, before the
//! connection begins (or the congestion control is chosen, if that is later). They can be set by a BPF
//! program that puts [`value`] into that map
//! ([`Loaded::connections`](crate::loader::Loaded::connections)), or [`attach`], which gives the
//! programs of a cgroup a socket option for it.

use crate::{
    Error, feature_probe,
    math::{Algorithm, Digest},
    object,
};
use libbpf_rs::{Link, Object, ObjectBuilder, OpenObject};
use std::os::fd::{AsRawFd, BorrowedFd};

/// `level` of setsockopt(2).
pub const LEVEL: i32 = 0x6c68;

/// Most parameters of a congestion control (`struct lh_connection`, connections.h).
pub const MAX: usize = 7;

/// The map of the connections of a congestion control, in each object and among its pins.
pub(crate) const CONNECTIONS: &str = "connections";

/// Returns `optname` of setsockopt(2) for the parameter at this position; the option's value is an `unsigned int`. The number is a
/// digest of the congestion control's name.
#[must_use]
pub fn option(algorithm: Algorithm, position: usize) -> i32 {
    let mut digest = Digest::default();
    digest.add(algorithm.name().as_bytes());
    // 23 bits, so that it stays positive with the position after it.
    let name = (digest.0 & 0x7f_ffff) as i32;
    name << 8 | position as i32
}

/// Returns the value of a socket's storage (`struct lh_connection`, connections.h). Each setting is a
/// parameter's position and value.
///
/// # Panics
/// If a position is not below [`MAX`].
#[must_use]
pub fn value(settings: &[(usize, u32)]) -> [u8; 4 * (MAX + 1)] {
    let mut words = [0_u32; MAX + 1];
    for &(position, value) in settings {
        words[0] |= 1 << position;
        words[position + 1] = value;
    }
    let mut bytes = [0; 4 * (MAX + 1)];
    let all = words.iter().flat_map(|word| word.to_ne_bytes());
    bytes.iter_mut().zip(all).for_each(|(to, from)| *to = from);
    bytes
}

/// Gives the programs of a cgroup (version 2) and of its descendants the socket option of a congestion
/// control with these `connections`, as long as the link is open or pinned. A value out of range, or a
/// socket other than TCP, gets EPERM.
pub fn attach(
    algorithm: Algorithm,
    connections: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
) -> Result<Link, Error> {
    feature_probe::capture_warnings(|| {
        let object = load(algorithm, connections)?;
        let program = object.progs_mut().find(|p| p.name() == "own_parameters");
        let program = program.expect("own_parameters.bpf.c has it");
        let link = program.attach_cgroup(cgroup.as_raw_fd());
        link.map_err(|error| feature_probe::failed("serve that cgroup's sockets", &error))
    })
}

fn load(algorithm: Algorithm, connections: BorrowedFd<'_>) -> Result<Object, Error> {
    let step = "load the programs for parameters of single sockets";
    let object = ObjectBuilder::default().open_memory(object::OWN_PARAMETERS);
    let mut object = object.map_err(|error| feature_probe::failed(step, &error))?;
    share_connections(connections, &mut object)?;
    set_options(algorithm, &mut object);
    object
        .load()
        .map_err(|error| feature_probe::refused(step, &error))
}

/// Replaces the program's map by that of the congestion control.
pub(crate) fn share_connections(
    connections: BorrowedFd<'_>,
    object: &mut OpenObject,
) -> Result<(), Error> {
    let map = object.maps_mut().find(|map| map.name() == CONNECTIONS);
    let shared = map.expect("each object has it").reuse_fd(connections);
    shared.map_err(|error| feature_probe::failed("share its connections", &error))
}

/// Sets the program's `options`.
fn set_options(algorithm: Algorithm, object: &mut OpenObject) {
    let range = |value: fn(&crate::math::Parameter) -> u32| {
        let mut all: Vec<u32> = algorithm.parameters().map(|p| value(&p)).collect();
        all.resize(MAX, 0);
        all
    };
    let head = [
        option(algorithm, 0) as u32,
        algorithm.parameters().count() as u32,
    ];
    let words = [head.to_vec(), range(|p| p.min), range(|p| p.max)].concat();
    let mut maps = object.maps_mut();
    let options = maps.find(|map| map.name().to_string_lossy().ends_with(".rodata"));
    let mut options = options.expect("own_parameters.bpf.c has it");
    let bytes = options.initial_value_mut().expect("it is initialised");
    let values = words.iter().flat_map(|word| word.to_ne_bytes());
    bytes
        .iter_mut()
        .zip(values)
        .for_each(|(to, from)| *to = from);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::{algorithms, words};

    #[test]
    fn value_has_a_bit_for_each_setting() {
        let bytes = value(&[(0, 7), (2, 0x0102)]);
        let words: Vec<u32> = words(&bytes).collect();
        assert_eq!(words, [0b101, 7, 0, 0x0102, 0, 0, 0, 0]);
    }

    #[test]
    fn options_are_positive_and_unique() {
        let mut all: Vec<_> = algorithms().map(|algorithm| option(algorithm, 0)).collect();
        let count = all.len();
        assert!(all.iter().all(|option| *option > 0 && option & 0xff == 0));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
