// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of TCP as programs (struct_ops): the kernel keeps them registered by a link, before Linux 6.4 by their map
//! alone.

use crate::{Error, feature_probe};
use libbpf_rs::{MapType, Object, OpenObject};

/// What keeps operations registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// A link: they go with its last descriptor or pin.
    Link,
    /// Their map: they stay until its entry is deleted, whatever becomes of the process.
    Map,
}

/// Loads what `open` makes ready, for a link; by its map alone where the kernel does not take that.
pub(crate) fn load(open: impl Fn() -> Result<OpenObject, Error>) -> Result<(Object, By), Error> {
    if let Ok(object) = open()?.load() {
        return Ok((object, By::Link));
    }
    // A kernel without links refuses before it looks at programs. Where that was not the reason, the
    // second answer is the first one's.
    feature_probe::clear_warnings();
    let mut plain = open()?;
    unlink(&mut plain)?;
    let loaded = plain.load();
    let object = loaded.map_err(|error| feature_probe::refused("load its programs", &error))?;
    Ok((object, By::Map))
}

/// Takes BPF_F_LINK (include/uapi/linux/bpf.h) off the operations.
pub(crate) fn unlink(object: &mut OpenObject) -> Result<(), Error> {
    const BPF_F_LINK: u32 = 1 << 13;
    let mut maps = object.maps_mut();
    let map = maps.find(|map| map.map_type() == MapType::StructOps);
    let mut map = map.expect("whoever asks has operations");
    let flags = map.map_flags() & !BPF_F_LINK;
    let set = map.set_map_flags(flags);
    set.map_err(|error| feature_probe::failed("do without a link", &error))
}
