// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading of a congestion control that stays until it is unloaded.

use super::{
    loaded::{Loaded, Request, TRANSIENT, loaded},
    register::load_new,
    replace::replace,
    withdraw::{gc, wait_until_unregistered, withdraw},
};
use crate::{
    Error, choice, feature_probe,
    math::Algorithm,
    pins::{self, Pins},
};

/// Checks whether this kernel and this user can load a congestion control.
pub fn permitted() -> Result<(), Error> {
    feature_probe::check(feature_probe::CC_LOADING)
}

/// Outcome of [`load`].
#[derive(Debug)]
pub enum Outcome {
    /// The congestion control was not loaded before.
    New(Loaded),
    /// The same one was loaded with the same parameters; unchanged.
    Same(Loaded),
    /// The loaded one was replaced. The flag says whether open connections can still be watched, which is
    /// not so if another longhaul had loaded it with another layout.
    Replaced(Loaded, bool),
}

/// Loads a congestion control as in `request`. `may_replace` allows replacing one that is loaded with
/// other parameters; open connections keep theirs.
pub fn load(
    pins: &Pins,
    algorithm: Algorithm,
    request: Request<'_>,
    may_replace: bool,
) -> Result<Outcome, Error> {
    feature_probe::check(feature_probe::CC_LOADING)?;
    let lock = pins.lock()?;
    pins.check_lifetime(&lock)?;
    let outcome = under_lock(pins, algorithm, request, may_replace);
    if let Ok(Outcome::New(it) | Outcome::Same(it) | Outcome::Replaced(it, _)) = &outcome {
        // An explicit load is permanent.
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
    if may_replace {
        let watched = replace(pins, &old, request)?;
        Ok(Outcome::Replaced(old, watched))
    } else {
        Err(old.mismatch(same_build))
    }
}

/// Unloads a congestion control: no socket can choose it any more; connections that use it continue.
pub fn unload(pins: &Pins, algorithm: Algorithm) -> Result<(), Error> {
    feature_probe::check_rights(feature_probe::CC_LOADING)?;
    if !pins.is_mounted() {
        return Err(Error::NotLoaded(algorithm.system_name()));
    }
    let lock = pins.lock()?;
    let removed = gc(pins, algorithm)?;
    let found = loaded(pins, algorithm)?;
    let was_loaded = found.is_some();
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
    match was_loaded || removed {
        true => wait_until_unregistered(&name),
        false if choice::is_registered(&name) => Err(Error::Taken(name, pins.directory())),
        false => Err(Error::NotLoaded(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_guard::test_guard;
    use super::*;

    #[test]
    fn counts_acks_only_on_request() {
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
