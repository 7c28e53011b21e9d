// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether this kernel takes our programs, found out by loading them. Nothing is pinned, and what is registered or
//! attached for a moment hangs on this process's descriptors: all of it goes with the call, or with the process.

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

/// Whether this process may load programs at all.
pub fn permitted() -> Result<(), Error> {
    feature_probe::check_rights("programs are loaded into the kernel")
}

/// The programs of a congestion control, those that count ACKs among them.
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

/// A congestion control that can be replaced, and that goes with its process: `algorithm` is registered for a moment,
/// by a name that nobody asks for.
pub fn link(algorithm: Algorithm) -> Result<(), Error> {
    let name = format!("lh_try{:x}", std::process::id());
    loader::register_transient_as(algorithm, &defaults(algorithm), &name).map(drop)
}

/// Parameters of its own for each socket in `cgroup`.
pub fn socket_parameters(algorithm: Algorithm, cgroup: BorrowedFd<'_>) -> Result<(), Error> {
    feature_probe::check(feature_probe::CC_LOADING)?;
    let object = feature_probe::capture_warnings(|| load(algorithm))?;
    let map = object
        .maps()
        .find(|map| map.name() == socket_parameters::CONNECTIONS);
    let map = map.expect("each object has it");
    socket_parameters::attach(algorithm, map.as_fd(), cgroup).map(drop)
}

/// The walk through a congestion control's connections.
pub fn watch() -> Result<(), Error> {
    Watch::new().map(drop)
}

/// Caps on windows.
pub fn window_caps() -> Result<(), Error> {
    window_cap::Caps::try_load()
}

/// Initial windows of single sockets.
pub fn initial_window() -> Result<(), Error> {
    profile::permitted()?;
    initial_window::check_permission().map_err(|error| Error::Kernel(error.to_string()))
}
