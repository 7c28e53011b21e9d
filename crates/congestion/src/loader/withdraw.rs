// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unregistration of a congestion control, and garbage collection of what killed processes left.

use super::{
    loaded::{LINK, Loaded, MAP, OPERATIONS, loaded},
    register::draft_path,
    replace::open_link,
};
use crate::{
    Error, choice, feature_probe,
    math::{Algorithm, algorithms},
    pins::{self, Pins},
};
use libbpf_rs::{MapCore, MapHandle, query::LinkTypeInfo};
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// Longest time to wait until the kernel frees a name, which takes an RCU grace period.
const UNREGISTER_TIMEOUT: Duration = Duration::from_secs(5);

/// Removes a congestion control's directory, and with it the pin that keeps the congestion control registered.
pub(super) fn withdraw(pins: &Pins, directory: &Path) -> Result<(), Error> {
    let operations = directory.join(OPERATIONS);
    if operations.exists() {
        let map = feature_probe::capture_warnings(|| MapHandle::from_pinned_path(&operations));
        let map = map.map_err(|error| feature_probe::failed("open its map", &error))?;
        // It may not be registered yet, or no longer.
        let _ = feature_probe::capture_warnings(|| map.delete(&0_u32.to_ne_bytes()));
    }
    let removed = pins::remove(directory, LINK);
    removed.map_err(|source| pins.error(directory, source))?;
    Ok(())
}

/// Waits until the kernel has freed the name, which it does asynchronously.
pub(super) fn wait_until_unregistered(name: &str) -> Result<(), Error> {
    let start = Instant::now();
    while choice::is_registered(name) {
        if start.elapsed() > UNREGISTER_TIMEOUT {
            return Err(Error::Failed {
                step: "unload it",
                reason: format!("{name} stays: another program holds its link (bpftool link list)"),
            });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Completes or removes a load, a replacement or an unload that a kill interrupted. Returns whether there was one.
pub(super) fn gc(pins: &Pins, algorithm: Algorithm) -> Result<bool, Error> {
    let (new, old) = (
        draft_path(pins, algorithm),
        pins.directory_of(algorithm.name()),
    );
    let mut found = false;
    if new.exists() {
        found = true;
        if is_active(&new) && old.exists() {
            let exchanged = pins::exchange(&new, &old);
            exchanged.map_err(|source| pins.error(&new, source))?;
        }
        let replacing = old.join(LINK).exists();
        withdraw(pins, &new)?;
        if !replacing {
            wait_until_unregistered(&algorithm.system_name())?;
        }
    }
    if old.exists() && loaded(pins, algorithm)?.is_none() {
        found = true;
        withdraw(pins, &old)?;
        wait_until_unregistered(&algorithm.system_name())?;
    }
    Ok(found)
}

/// Whether the link runs the operations of its own directory, and not those of another one.
fn is_active(directory: &Path) -> bool {
    let link = feature_probe::capture_warnings(|| open_link(directory));
    let info = link.ok().and_then(|link| link.info().ok());
    let active_map = info.and_then(|info| match info.info {
        LinkTypeInfo::StructOps(operations) => Some(operations.map_id.to_string()),
        _ => None,
    });
    active_map.is_some() && active_map == pins::metadata(directory, MAP)
}

/// Removes what killed programs left: interrupted loads, and transient congestion controls without a lease
/// ([`acquire`](super::acquire())). Returns the names of those removed.
pub fn clean(pins: &Pins) -> Result<Vec<String>, Error> {
    if !pins.is_mounted() {
        return Ok(Vec::new());
    }
    let lock = pins.lock()?;
    let mut names = Vec::new();
    for algorithm in algorithms() {
        let mut removed = gc(pins, algorithm)?;
        let is_abandoned = |loaded: &Loaded| loaded.is_transient() && !loaded.is_leased();
        if let Some(abandoned) = loaded(pins, algorithm)?.filter(is_abandoned) {
            withdraw(pins, &abandoned.directory)?;
            wait_until_unregistered(&algorithm.system_name())?;
            removed = true;
        }
        if removed {
            names.push(algorithm.system_name());
        }
    }
    pins.remove_empty(lock);
    Ok(names)
}
