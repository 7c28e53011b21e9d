// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a congestion control is taken from the kernel.

use super::loaded::{LINK, OPERATIONS};
use crate::{
    Error, kernel,
    pins::{self, Pins},
};
use libbpf_rs::{MapCore, MapHandle};
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// How long the kernel may take to forget a name: it waits for an RCU grace period.
const PATIENCE: Duration = Duration::from_secs(5);

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
