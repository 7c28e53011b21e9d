// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lease of a congestion control, which stays loaded as long as a process has a lease.

use super::{
    loaded::{Loaded, TRANSIENT, loaded},
    register::load_new,
    withdraw::{clean, gc},
};
use crate::{Error, feature_probe, math::Algorithm, pins::Pins};
use std::fs::File;

/// Keeps a congestion control loaded until it is dropped.
#[derive(Debug)]
pub struct Lease {
    pins: Pins,
    loaded: Loaded,
    shared_lock: Option<File>,
}

/// Loads a congestion control unless it is loaded, and leases it. If it was loaded here, it is unloaded when
/// its last lease is dropped. If the holder was killed, the next [`load`](super::load()),
/// [`unload`](super::unload()) or [`clean`] unloads it.
///
/// `parameters` apply only if the control is not loaded yet. To give a single socket other parameters, use
/// [`socket_parameters::value`](crate::socket_parameters::value).
pub fn acquire(pins: &Pins, algorithm: Algorithm, parameters: &[u32]) -> Result<Lease, Error> {
    feature_probe::check(feature_probe::CC_LOADING)?;
    let lock = pins.lock()?;
    pins.check_lifetime(&lock)?;
    let outcome = acquire_under_lock(pins, algorithm, parameters);
    pins.remove_empty(lock);
    outcome
}

fn acquire_under_lock(
    pins: &Pins,
    algorithm: Algorithm,
    parameters: &[u32],
) -> Result<Lease, Error> {
    gc(pins, algorithm)?;
    let loaded = match loaded(pins, algorithm)? {
        Some(loaded) if loaded.has_same_layout() => loaded,
        Some(loaded) => return Err(loaded.mismatch(false)),
        None => {
            let loaded = load_new(pins, algorithm, parameters.into())?;
            loaded.set_metadata(TRANSIENT, "1")?;
            loaded
        }
    };
    let shared_lock = loaded
        .lock_shared()
        .map_err(|source| loaded.error(source))?;
    Ok(Lease {
        pins: pins.clone(),
        loaded,
        shared_lock: Some(shared_lock),
    })
}

impl Lease {
    /// Returns the leased congestion control.
    #[must_use]
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        drop(self.shared_lock.take());
        let _ = clean(&self.pins);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Outcome, load, test_guard::test_guard, unload};
    use super::*;
    use crate::choice;

    #[test]
    fn last_lease_unloads() {
        let Some((_turn, directory)) = test_guard() else {
            return;
        };
        let pins = Pins::at(directory.path());
        let scalable = crate::math::algorithm("scalable").unwrap();
        let one = acquire(&pins, scalable, &[7, 1]).unwrap();
        let other = acquire(&pins, scalable, &[9, 2]).unwrap();
        assert_eq!(other.loaded().parameters().unwrap(), [7, 1]);
        assert!(
            unload(&pins, scalable)
                .unwrap_err()
                .to_string()
                .contains("in use")
        );
        drop(one);
        assert!(choice::is_registered("lh_scalable"));
        drop(other);
        assert!(!choice::is_registered("lh_scalable") && !pins.is_mounted());

        // After a kill, `clean` unloads it; an explicit load makes it permanent.
        let mut killed = acquire(&pins, scalable, &[7, 1]).unwrap();
        killed.shared_lock = None;
        std::mem::forget(killed);
        assert_eq!(clean(&pins).unwrap(), ["lh_scalable"]);
        let holder = acquire(&pins, scalable, &[7, 1]).unwrap();
        assert!(matches!(
            load(&pins, scalable, (&[7, 1]).into(), false),
            Ok(Outcome::Same(_))
        ));
        drop(holder);
        assert!(choice::is_registered("lh_scalable"));
        unload(&pins, scalable).unwrap();
    }
}
