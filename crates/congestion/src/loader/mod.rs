// SPDX-License-Identifier: MIT OR Apache-2.0
//! Brings congestion controls to the running kernel, and takes them away.
//!
//! A load is built in a directory of its own (`new-NAME`, `register.rs`) and gets its name when it is
//! complete, so that one that was cut short is known as such and is taken away by the next that comes
//! along (`leftovers.rs`). Sockets that use a congestion control hold its programs: taking it away
//! (`unload.rs`) only keeps new ones from choosing it. What is `tied.rs` to a process is pinned nowhere.

mod hold;
mod leftovers;
mod loaded;
#[cfg(test)]
mod place;
mod prepare;
mod register;
mod replace;
mod tied;
mod unload;

pub use hold::{Hold, hold};
pub use leftovers::clean;
pub use loaded::{Loaded, Program, all_loaded, loaded};
pub use tied::{Tied, tie};
pub use unload::unload;

use crate::{
    Error, kernel,
    math::Algorithm,
    pins::{self, Pins},
};
use leftovers::sweep;
use register::fresh;
use replace::take_over;

/// Pins of a directory.
const LINK: &str = "link";
const OPERATIONS: &str = "operations";
pub(crate) const CONNECTIONS: &str = "connections";
const PARAMETERS: &str = "parameters";
const ACKS: &str = "acks";
const OWN_PARAMETERS: &str = "own-parameters";
/// Facts beside them.
const LAYOUT: &str = "layout";
const LOADED_BY: &str = "loaded-by";
const MAP: &str = "map";
const TRANSIENT: &str = "transient";

/// Whether this kernel and this user can load one at all.
pub fn permitted() -> Result<(), Error> {
    kernel::check()
}

/// How it shall be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// In the order of [`Algorithm::parameters`].
    pub parameters: &'a [u32],
    /// Whether to keep [`AckCounts`](crate::ack_counts::AckCounts) of each connection: 96 B, and
    /// some tens of nanoseconds an ACK.
    pub count_acks: bool,
}

impl<'a, P: AsRef<[u32]> + ?Sized> From<&'a P> for Request<'a> {
    fn from(parameters: &'a P) -> Self {
        Self {
            parameters: parameters.as_ref(),
            count_acks: false,
        }
    }
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
    kernel::check()?;
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
    let same_build = old.is_legible() && old.loaded_by() == VERSION;
    if same_build && old.request_is(request)? {
        return Ok(Outcome::Same(old));
    }
    match replace {
        true => take_over(pins, &old, request),
        false => Err(Error::Loaded(differs(&old, same_build))),
    }
}

/// What `loaded-by` says of this build.
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn differs(old: &Loaded, same_build: bool) -> String {
    let name = old.algorithm.system_name();
    match same_build {
        true => format!(
            "{name} is loaded with other parameters or counts: --replace sets these for connections that \
             begin later"
        ),
        false => format!(
            "{name} is loaded, by another longhaul ({}): --replace puts this one's in its place",
            old.loaded_by()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::place::place;
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
