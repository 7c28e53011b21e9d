// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transient registration of a congestion control: it is not pinned, so that the kernel unregisters it
//! when the process ends, for whatever reason.

use super::{
    loaded::Request,
    prepare::{operations, prepare, rename},
};
use crate::{
    Error, choice, feature_probe,
    links::{self, Registration},
    math::Algorithm,
};
use libbpf_rs::{ErrorKind, Link, Object};

/// A congestion control that is registered until this value is dropped or its process ends.
#[derive(Debug)]
pub struct TransientCc {
    name: String,
    /// Its descriptor keeps the congestion control registered.
    _link: Link,
}

/// Most registrations of one algorithm at a time, each with its own parameters.
const TRANSIENT_MAX: usize = 16;

/// Registers `algorithm` until this process ends; any socket may use it. The name is `lh_NAME` if that is
/// free, else `lh_NAME.2`, `lh_NAME.3` … up to 16. `parameters` are in the order of
/// [`Algorithm::parameters`]. Needs links of struct_ops (Linux 6.4).
pub fn register_transient(algorithm: Algorithm, parameters: &[u32]) -> Result<TransientCc, Error> {
    feature_probe::check(feature_probe::CC_LOADING)?;
    let names = (1..=TRANSIENT_MAX).map(|number| numbered(algorithm, number));
    for name in names.filter(|name| !choice::is_registered(name)) {
        // Another process may have registered the name meanwhile.
        if let Some(registration) =
            feature_probe::capture_warnings(|| register(algorithm, parameters, &name))?
        {
            return Ok(registration);
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

/// Like [`register_transient`], with a name that begins with `lh_` and must be free.
pub(crate) fn register_transient_as(
    algorithm: Algorithm,
    parameters: &[u32],
    name: &str,
) -> Result<TransientCc, Error> {
    feature_probe::check(feature_probe::CC_LOADING)?;
    let registration = feature_probe::capture_warnings(|| register(algorithm, parameters, name))?;
    registration.ok_or_else(|| Error::Failed {
        step: "register it",
        reason: format!("{name} is there already"),
    })
}

/// Returns the numbered name. The kernel allows letters, digits, `_` and `.` (`bpf_obj_name_cpy`, kernel/bpf/syscall.c).
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
        (object, Registration::Link) => Ok(object),
        (_, Registration::Map) => Err(Error::Kernel(
            "this kernel keeps a congestion control registered when its process has ended: one that \
             goes with a process needs Linux 6.4"
                .to_owned(),
        )),
    }
}

impl TransientCc {
    /// Returns its name in the kernel, for a socket or a route.
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
    fn registers_two_with_own_parameters_until_dropped() {
        let Some(_turn) = test_guard() else {
            return;
        };
        let scalable = crate::math::algorithm("scalable").unwrap();
        let one = register_transient(scalable, &[100, 3]).unwrap();
        let other = register_transient(scalable, &[50, 2]).unwrap();
        assert_eq!([one.name(), other.name()], ["lh_scalable", "lh_scalable.2"]);
        assert!([&one, &other].map(|cc| choice::is_registered(cc.name())) == [true; 2]);
        drop(one);
        assert!(!choice::is_registered("lh_scalable") && choice::is_registered("lh_scalable.2"));
        drop(other);
        assert!(!choice::is_registered("lh_scalable.2"));
    }

    #[test]
    fn every_numbered_name_fits_the_kernel() {
        // TCP_CA_NAME_MAX of include/net/tcp.h counts the final NUL.
        let longest = |algorithm| numbered(algorithm, TRANSIENT_MAX).len();
        assert!(crate::math::algorithms().all(|algorithm| longest(algorithm) < 16));
    }
}
