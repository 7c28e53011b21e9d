// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trials that load our programs to find out whether this kernel accepts them. Nothing is pinned. Registrations and
//! attachments belong to this process's descriptors, and end with the call or with the process.

use crate::{
    Error, feature_probe, links,
    loader::{self, Request, prepare},
    math::{Algorithm, parameters::defaults},
    socket_parameters,
    sockets::{initial_window, profile, window_cap},
    watch::Watch,
};
use libbpf_rs::MapCore;
use std::os::fd::{AsFd, BorrowedFd};

/// Checks whether this process may load programs.
pub fn permitted() -> Result<(), Error> {
    feature_probe::check_rights("programs are loaded into the kernel")
}

/// Loads the programs of a congestion control, with ACK counting.
pub fn congestion_control(algorithm: Algorithm) -> Result<(), Error> {
    feature_probe::check(feature_probe::CC_LOADING)?;
    feature_probe::capture_warnings(|| load(algorithm)).map(drop)
}

fn load(algorithm: Algorithm) -> Result<libbpf_rs::Object, Error> {
    let values = defaults(algorithm);
    let request = Request {
        parameters: &values,
        count_acks: true,
    };
    let (object, _) = links::load(|| prepare(algorithm, request, None))?;
    Ok(object)
}

/// Checks support of links, by which a congestion control can be replaced and ends with its process. Registers
/// `algorithm` briefly, by an unused name.
pub fn link(algorithm: Algorithm) -> Result<(), Error> {
    let name = format!("lh_try{:x}", std::process::id());
    loader::register_transient_as(algorithm, &defaults(algorithm), &name).map(drop)
}

/// Checks support of parameters of single sockets in `cgroup`.
pub fn socket_parameters(algorithm: Algorithm, cgroup: BorrowedFd<'_>) -> Result<(), Error> {
    feature_probe::check(feature_probe::CC_LOADING)?;
    let object = feature_probe::capture_warnings(|| load(algorithm))?;
    let map = object
        .maps()
        .find(|map| map.name() == socket_parameters::CONNECTIONS);
    let map = map.expect("each object has it");
    socket_parameters::attach(algorithm, map.as_fd(), cgroup).map(drop)
}

/// Loads the iterator over a congestion control's connections.
pub fn watch() -> Result<(), Error> {
    Watch::new().map(drop)
}

/// Loads the programs that cap windows.
pub fn window_caps() -> Result<(), Error> {
    window_cap::Caps::try_load()
}

/// Attaches the program for initial windows of single sockets.
pub fn initial_window() -> Result<(), Error> {
    profile::permitted()?;
    initial_window::check_permission().map_err(|error| Error::Kernel(error.to_string()))
}
