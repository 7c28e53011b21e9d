// SPDX-License-Identifier: MIT OR Apache-2.0
//! A congestion control that stays for as long as somebody needs it.

use super::{
    loaded::{Loaded, TRANSIENT, loaded},
    register::fresh,
    withdraw::{clean, sweep},
};
use crate::{Error, kernel, math::Algorithm, pins::Pins};
use std::fs::File;

/// Keeps a congestion control loaded for as long as it lives.
#[derive(Debug)]
pub struct Hold {
    pins: Pins,
    loaded: Loaded,
    held: Option<File>,
}

/// Loads it unless it is, and holds it. One that was loaded for this goes with its last holder, if
/// need be (after a kill) at the hands of the next [`load`](super::load), [`unload`](super::unload()) or [`clean`]. `parameters`
/// are for the case that it is not loaded; who needs others for sockets of his own gives them
/// [`own_parameters::value`](crate::own_parameters::value).
pub fn hold(pins: &Pins, algorithm: Algorithm, parameters: &[u32]) -> Result<Hold, Error> {
    kernel::check(kernel::LOADED)?;
    let lock = pins.lock()?;
    let outcome = hold_under_lock(pins, algorithm, parameters);
    pins.tidy(lock);
    outcome
}

fn hold_under_lock(pins: &Pins, algorithm: Algorithm, parameters: &[u32]) -> Result<Hold, Error> {
    sweep(pins, algorithm)?;
    let loaded = match loaded(pins, algorithm)? {
        Some(loaded) if loaded.is_legible() => loaded,
        Some(other) => return Err(other.differs(false)),
        None => {
            let loaded = fresh(pins, algorithm, parameters.into())?;
            loaded.note(TRANSIENT, "1")?;
            loaded
        }
    };
    let held = loaded.share().map_err(|source| loaded.error(source))?;
    Ok(Hold {
        pins: pins.clone(),
        loaded,
        held: Some(held),
    })
}

impl Hold {
    /// What is held.
    #[must_use]
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        drop(self.held.take());
        let _ = clean(&self.pins);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Outcome, load, place::place, unload};
    use super::*;

    #[test]
    fn what_is_held_goes_with_its_last_holder() {
        let Some((_turn, directory)) = place() else {
            return;
        };
        let pins = Pins::at(directory.path());
        let scalable = crate::math::algorithm("scalable").unwrap();
        let one = hold(&pins, scalable, &[7, 1]).unwrap();
        let other = hold(&pins, scalable, &[9, 2]).unwrap();
        assert_eq!(other.loaded().parameters().unwrap(), [7, 1]);
        assert!(
            unload(&pins, scalable)
                .unwrap_err()
                .to_string()
                .contains("in use")
        );
        drop(one);
        assert!(kernel::is_registered("lh_scalable"));
        drop(other);
        assert!(!kernel::is_registered("lh_scalable") && !pins.is_mounted());

        // A holder that was killed leaves it to `clean`; who loads it by name keeps it.
        let mut killed = hold(&pins, scalable, &[7, 1]).unwrap();
        killed.held = None;
        std::mem::forget(killed);
        assert_eq!(clean(&pins).unwrap(), ["lh_scalable"]);
        let holder = hold(&pins, scalable, &[7, 1]).unwrap();
        assert!(matches!(
            load(&pins, scalable, (&[7, 1]).into(), false),
            Ok(Outcome::Same(_))
        ));
        drop(holder);
        assert!(kernel::is_registered("lh_scalable"));
        unload(&pins, scalable).unwrap();
    }
}
