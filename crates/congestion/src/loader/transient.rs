// SPDX-License-Identifier: MIT OR Apache-2.0
//! A congestion control that is tied to one process: nothing is pinned, so that it goes with the
//! process, however that ends.

use super::{
    loaded::Request,
    prepare::{operations, prepare, rename},
};
use crate::{
    Error, feature_probe,
    links::{self, By},
    math::Algorithm,
};
use libbpf_rs::{ErrorKind, Link, Object};

/// Registered for as long as this lives, and its process does.
#[derive(Debug)]
pub struct TransientCc {
    name: String,
    /// Its descriptor is what keeps it registered.
    _link: Link,
}

/// How many of one algorithm can be there side by side, with parameters of their own.
const TRANSIENT_MAX: usize = 16;

/// Registers `algorithm` for this process alone to keep, though any socket may use it: as `lh_NAME`
/// if that is free, else as `lh_NAME.2`, `lh_NAME.3` … up to 16. `parameters` are in the order of
/// [`Algorithm::parameters`]. Needs links of struct_ops (Linux 6.4).
pub fn register_transient(algorithm: Algorithm, parameters: &[u32]) -> Result<TransientCc, Error> {
    feature_probe::check(feature_probe::CC_LOADING)?;
    let names = (1..=TRANSIENT_MAX).map(|number| numbered(algorithm, number));
    for name in names.filter(|name| !feature_probe::is_registered(name)) {
        // Somebody else may have been quicker.
        if let Some(tied) =
            feature_probe::capture_warnings(|| register(algorithm, parameters, &name))?
        {
            return Ok(tied);
        }
    }
    Err(Error::Failed {
        step: "find it a name",
        reason: format!(
            "{TRANSIENT_MAX} of {} are registered already",
            algorithm.system_name()
        ),
    })
}

/// The same by this name, which begins with `lh_` and must be free.
pub(crate) fn register_transient_as(
    algorithm: Algorithm,
    parameters: &[u32],
    name: &str,
) -> Result<TransientCc, Error> {
    feature_probe::check(feature_probe::CC_LOADING)?;
    let tied = feature_probe::capture_warnings(|| register(algorithm, parameters, name))?;
    tied.ok_or_else(|| Error::Failed {
        step: "register it",
        reason: format!("{name} is there already"),
    })
}

/// The kernel takes letters, digits, `_` and `.` (`bpf_obj_name_cpy`, kernel/bpf/syscall.c).
fn numbered(algorithm: Algorithm, number: usize) -> String {
    match number {
        1 => algorithm.system_name(),
        _ => format!("{}.{number}", algorithm.system_name()),
    }
}

fn register(
    algorithm: Algorithm,
    parameters: &[u32],
    name: &str,
) -> Result<Option<TransientCc>, Error> {
    let mut object = load(algorithm, parameters, name)?;
    match operations(&mut object).attach_struct_ops() {
        Ok(link) => Ok(Some(TransientCc {
            name: name.to_owned(),
            _link: link,
        })),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(feature_probe::failed("register it", &error)),
    }
}

fn load(algorithm: Algorithm, parameters: &[u32], name: &str) -> Result<Object, Error> {
    let prepared = || {
        let mut object = prepare(algorithm, Request::from(parameters), None)?;
        rename(&mut object, name)?;
        Ok(object)
    };
    match links::load(prepared)? {
        (object, By::Link) => Ok(object),
        (_, By::Map) => Err(Error::Kernel(
            "this kernel keeps a congestion control registered when its process has ended: one that \
             goes with a process needs Linux 6.4"
                .to_owned(),
        )),
    }
}

impl TransientCc {
    /// Its name in the kernel: what a socket or a route is told.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_guard::test_guard;
    use super::*;

    #[test]
    fn two_with_their_own_parameters_stand_side_by_side_and_go_with_their_owner() {
        let Some(_turn) = test_guard() else {
            return;
        };
        let scalable = crate::math::algorithm("scalable").unwrap();
        let one = register_transient(scalable, &[100, 3]).unwrap();
        let other = register_transient(scalable, &[50, 2]).unwrap();
        assert_eq!([one.name(), other.name()], ["lh_scalable", "lh_scalable.2"]);
        assert!([&one, &other].map(|tied| feature_probe::is_registered(tied.name())) == [true; 2]);
        drop(one);
        assert!(
            !feature_probe::is_registered("lh_scalable")
                && feature_probe::is_registered("lh_scalable.2")
        );
        drop(other);
        assert!(!feature_probe::is_registered("lh_scalable.2"));
    }

    #[test]
    fn every_numbered_name_fits_the_kernel() {
        // TCP_CA_NAME_MAX of include/net/tcp.h counts the final NUL.
        let longest = |algorithm| numbered(algorithm, TRANSIENT_MAX).len();
        assert!(crate::math::algorithms().all(|algorithm| longest(algorithm) < 16));
    }
}
