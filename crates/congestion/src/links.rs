// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registration of TCP operations as programs (struct_ops). A link keeps them registered; before Linux 6.4, their map
//! does.

use crate::{Error, feature_probe};
use libbpf_rs::{MapType, Object, OpenObject};

/// Object that keeps operations registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Registration {
    /// A link: they are unregistered with its last descriptor or pin.
    Link,
    /// Their map: they stay until its entry is deleted, even after the process ends.
    Map,
}

/// Loads the object that `open` prepares: for registration by a link, or by its map if the kernel has no links.
pub(crate) fn load(
    open: impl Fn() -> Result<OpenObject, Error>,
) -> Result<(Object, Registration), Error> {
    if let Ok(object) = open()?.load() {
        return Ok((object, Registration::Link));
    }
    // A kernel without links refuses before it verifies programs. If that was not the reason, the second
    // attempt fails like the first.
    feature_probe::clear_warnings();
    let mut without_link = open()?;
    unlink(&mut without_link)?;
    let loaded = without_link.load();
    let object = loaded.map_err(|error| feature_probe::refused("load its programs", &error))?;
    Ok((object, Registration::Map))
}

/// Clears BPF_F_LINK (include/uapi/linux/bpf.h) of the operations.
pub(crate) fn unlink(object: &mut OpenObject) -> Result<(), Error> {
    const BPF_F_LINK: u32 = 1 << 13;
    let mut maps = object.maps_mut();
    let map = maps.find(|map| map.map_type() == MapType::StructOps);
    let mut map = map.expect("the object has operations");
    let flags = map.map_flags() & !BPF_F_LINK;
    let outcome = map.set_map_flags(flags);
    outcome.map_err(|error| feature_probe::failed("do without a link", &error))
}
