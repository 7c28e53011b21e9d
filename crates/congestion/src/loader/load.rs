// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads a congestion control that stays until it is unloaded.

use super::{
    loaded::{Loaded, Request, TRANSIENT, loaded},
    register::fresh,
    replace::take_over,
    withdraw::{forgotten, sweep, withdraw},
};
use crate::{
    Error, kernel,
    math::Algorithm,
    pins::{self, Pins},
};

/// Whether this kernel and this user can load one at all.
pub fn permitted() -> Result<(), Error> {
    kernel::check(kernel::LOADED)
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

/// Loads it as `request` says. `replace` allows to take the place of one that is
/// loaded otherwise; connections that are open keep what they have.
pub fn load(
    pins: &Pins,
    algorithm: Algorithm,
    request: Request<'_>,
    replace: bool,
) -> Result<Outcome, Error> {
    kernel::check(kernel::LOADED)?;
    let lock = pins.lock()?;
    let outcome = under_lock(pins, algorithm, request, replace);
    if let Ok(Outcome::New(it) | Outcome::Same(it) | Outcome::Replaced(it, _)) = &outcome {
        // Whoever asks for it by name wants it to stay.
        pins::forget(&it.directory, TRANSIENT).map_err(|source| it.error(source))?;
    }
    pins.tidy(lock);
    outcome
}

fn under_lock(
    pins: &Pins,
    algorithm: Algorithm,
    request: Request<'_>,
    replace: bool,
) -> Result<Outcome, Error> {
    sweep(pins, algorithm)?;
    let Some(old) = loaded(pins, algorithm)? else {
        return fresh(pins, algorithm, request).map(Outcome::New);
    };
    let same_build = old.is_of_this_build();
    if same_build && old.request_is(request)? {
        return Ok(Outcome::Same(old));
    }
    match replace {
        true => {
            let watched = take_over(pins, &old, request)?;
            Ok(Outcome::Replaced(old, watched))
        }
        false => Err(old.differs(same_build)),
    }
}

/// Takes it away: nobody can choose it any more; connections that use it go on.
pub fn unload(pins: &Pins, algorithm: Algorithm) -> Result<(), Error> {
    kernel::rights(kernel::LOADED)?;
    if !pins.is_mounted() {
        return Err(Error::NotLoaded(algorithm.system_name()));
    }
    let lock = pins.lock()?;
    let swept = sweep(pins, algorithm)?;
    let found = loaded(pins, algorithm)?;
    let there = found.is_some();
    if let Some(it) = found {
        if it.is_held() {
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

#[cfg(test)]
mod tests {
    use super::super::place::place;
    use super::*;

    #[test]
    fn acks_are_counted_only_if_asked_for() {
        let Some((_turn, directory)) = place() else {
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
