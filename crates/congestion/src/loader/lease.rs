// SPDX-License-Identifier: MIT OR Apache-2.0
//! A congestion control that stays for as long as somebody needs it.

use super::{
    loaded::{Loaded, TRANSIENT, loaded},
    register::load_new,
    withdraw::{clean, gc},
};
use crate::{Error, feature_probe, math::Algorithm, pins::Pins};
use std::fs::File;

/// Keeps a congestion control loaded for as long as it lives.
#[derive(Debug)]
pub struct Lease {
    pins: Pins,
    loaded: Loaded,
    shared_lock: Option<File>,
}

/// Loads it unless it is, and holds it. One that was loaded for this goes with its last holder, if
/// need be (after a kill) at the hands of the next [`load`](super::load), [`unload`](super::unload()) or [`clean`]. `parameters`
/// are for the case that it is not loaded; who needs others for sockets of his own gives them
/// [`own_parameters::value`](crate::own_parameters::value).
pub fn acquire(pins: &Pins, algorithm: Algorithm, parameters: &[u32]) -> Result<Lease, Error> {
    feature_probe::check(feature_probe::CC_LOADING)?;
    let lock = pins.lock()?;
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
        Some(other) => return Err(other.mismatch(false)),
        None => {
            let loaded = load_new(pins, algorithm, parameters.into())?;
            loaded.set_fact(TRANSIENT, "1")?;
            loaded
        }
    };
    let held = loaded
        .lock_shared()
        .map_err(|source| loaded.error(source))?;
    Ok(Lease {
        pins: pins.clone(),
        loaded,
        shared_lock: Some(held),
    })
}

impl Lease {
    /// What is held.
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

    #[test]
    fn what_is_held_goes_with_its_last_holder() {
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
        assert!(feature_probe::is_registered("lh_scalable"));
        drop(other);
        assert!(!feature_probe::is_registered("lh_scalable") && !pins.is_mounted());

        // A holder that was killed leaves it to `clean`; who loads it by name keeps it.
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
        assert!(feature_probe::is_registered("lh_scalable"));
        unload(&pins, scalable).unwrap();
    }
}
