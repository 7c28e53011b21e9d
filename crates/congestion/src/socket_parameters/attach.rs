// SPDX-License-Identifier: MIT OR Apache-2.0
//! The socket option for the programs of a cgroup.

use super::{MAX, option};
use crate::{Error, feature_probe, math::Algorithm, object};
use libbpf_rs::{Link, Object, ObjectBuilder, OpenObject};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The map of the connections of a congestion control, in each object and among its pins.
pub(crate) const CONNECTIONS: &str = "connections";

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
