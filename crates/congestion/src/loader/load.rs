// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads a congestion control that stays until it is unloaded.

use super::{
    loaded::{Loaded, Request, TRANSIENT, loaded},
    register::load_new,
    replace::replace,
    withdraw::{gc, wait_until_unregistered, withdraw},
};
use crate::{
    Error, feature_probe,
    math::Algorithm,
    pins::{self, Pins},
};

/// Whether this kernel and this user can load one at all.
pub fn permitted() -> Result<(), Error> {
    feature_probe::check(feature_probe::CC_LOADING)
}

/// What [`load`] did.
#[derive(Debug)]
pub enum Outcome {
    /// It was not there, and is now.
    New(Loaded),
    /// It was there with the same parameters; nothing was touched.
    Same(Loaded),
    /// It took the place of what was there. Whether open connections can still be watched: they can't
    /// if another longhaul had loaded it with another layout.
    Replaced(Loaded, bool),
}

/// Loads it as `request` says. `may_replace` allows replacing one that is
/// loaded otherwise; connections that are open keep what they have.
pub fn load(
    pins: &Pins,
    algorithm: Algorithm,
    request: Request<'_>,
    may_replace: bool,
) -> Result<Outcome, Error> {
    feature_probe::check(feature_probe::CC_LOADING)?;
    let lock = pins.lock()?;
    let outcome = under_lock(pins, algorithm, request, may_replace);
    if let Ok(Outcome::New(it) | Outcome::Same(it) | Outcome::Replaced(it, _)) = &outcome {
        // Whoever asks for it by name wants it to stay.
        pins::unpin(&it.directory, TRANSIENT).map_err(|source| it.error(source))?;
    }
    pins.remove_empty(lock);
    outcome
}

fn under_lock(
    pins: &Pins,
    algorithm: Algorithm,
    request: Request<'_>,
    may_replace: bool,
) -> Result<Outcome, Error> {
    gc(pins, algorithm)?;
    let Some(old) = loaded(pins, algorithm)? else {
        return load_new(pins, algorithm, request).map(Outcome::New);
    };
    let same_build = old.is_of_this_build();
    if same_build && old.matches(request)? {
        return Ok(Outcome::Same(old));
    }
    match may_replace {
        true => {
            let watched = replace(pins, &old, request)?;
            Ok(Outcome::Replaced(old, watched))
        }
        false => Err(old.mismatch(same_build)),
    }
}

/// Takes it away: nobody can choose it any more; connections that use it go on.
pub fn unload(pins: &Pins, algorithm: Algorithm) -> Result<(), Error> {
    feature_probe::check_rights(feature_probe::CC_LOADING)?;
    if !pins.is_mounted() {
        return Err(Error::NotLoaded(algorithm.system_name()));
    }
    let lock = pins.lock()?;
    let swept = gc(pins, algorithm)?;
    let found = loaded(pins, algorithm)?;
    let there = found.is_some();
    if let Some(it) = found {
        if it.is_leased() {
            return Err(Error::Loaded(format!(
                "{} is in use by a longhaul run: end that first",
                algorithm.system_name()
            )));
        }
        withdraw(pins, &it.directory)?;
    }
    pins.remove_empty(lock);
    let name = algorithm.system_name();
    match there || swept {
        true => wait_until_unregistered(&name),
        false if feature_probe::is_registered(&name) => Err(Error::Taken(name, pins.directory())),
        false => Err(Error::NotLoaded(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_guard::test_guard;
    use super::*;

    #[test]
    fn acks_are_counted_only_if_asked_for() {
        let Some((_turn, directory)) = test_guard() else {
            return;
        };
        let pins = Pins::at(directory.path());
        let scalable = crate::math::algorithm("scalable").unwrap();
        let counts = |count_acks| {
            let request = Request {
                parameters: &[100, 3],
                count_acks,
            };
            load(&pins, scalable, request, true).unwrap();
            let it = loaded(&pins, scalable).unwrap().unwrap();
            let programs = it.programs().unwrap();
            let has = programs.iter().any(|p| p.name.starts_with("count_ack"));
            assert_eq!(it.counts_acks(), has);
            assert_eq!(it.acks().is_ok(), has);
            has
        };
        assert_eq!(
            [false, true, true, false].map(counts),
            [false, true, true, false]
        );
        unload(&pins, scalable).unwrap();
    }
}
