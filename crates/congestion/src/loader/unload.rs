// SPDX-License-Identifier: MIT OR Apache-2.0
//! A congestion control that nobody shall choose any more.

use super::{LINK, OPERATIONS, hold::is_held, leftovers::sweep, loaded};
use crate::{
    Error, kernel,
    math::Algorithm,
    pins::{self, Pins},
};
use libbpf_rs::{MapCore, MapHandle};
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// How long the kernel may take to forget a name: it waits for an RCU grace period.
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes it away: nobody can choose it any more; connections that use it go on.
pub fn unload(pins: &Pins, algorithm: Algorithm) -> Result<(), Error> {
    kernel::rights("a congestion control is loaded and unloaded")?;
    if !pins.is_mounted() {
        return Err(Error::NotLoaded(algorithm.system_name()));
    }
    let lock = pins.lock()?;
    let swept = sweep(pins, algorithm)?;
    let found = loaded(pins, algorithm)?;
    let there = found.is_some();
    if let Some(it) = found {
        if is_held(&it.directory) {
            return Err(Error::Loaded(format!(
                "{} is in use by a longhaul run: end that first",
                algorithm.system_name()
            )));
        }
        withdraw(pins, &it.directory)?;
    }
    pins.tidy(lock);
    let name = algorithm.system_name();
    match there || swept {
        true => forgotten(&name),
        false if kernel::is_registered(&name) => Err(Error::Taken(name, pins.directory())),
        false => Err(Error::NotLoaded(name)),
    }
}

/// Removes its directory, and with it what holds it registered.
pub(super) fn withdraw(pins: &Pins, directory: &Path) -> Result<(), Error> {
    let operations = directory.join(OPERATIONS);
    if operations.exists() {
        let map = kernel::quietly(|| MapHandle::from_pinned_path(&operations));
        let map = map.map_err(|error| kernel::failed("open its map", &error))?;
        // It may not have come to the registration, or have lost it.
        let _ = kernel::quietly(|| map.delete(&0_u32.to_ne_bytes()));
    }
    let removed = pins::remove(directory, LINK);
    removed.map_err(|source| pins.error(directory, source))?;
    Ok(())
}

/// The kernel does it a moment later.
pub(super) fn forgotten(name: &str) -> Result<(), Error> {
    let start = Instant::now();
    while kernel::is_registered(name) {
        if start.elapsed() > PATIENCE {
            return Err(Error::Failed {
                step: "unload it",
                reason: format!("{name} stays: another program holds its link (bpftool link list)"),
            });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
