// SPDX-License-Identifier: MIT OR Apache-2.0
//! The compiled eBPF programs.

macro_rules! object {
    ($name:literal) => {
        (
            $name,
            include_bytes!(concat!(env!("OUT_DIR"), "/lh_", $name, ".bpf.o")),
        )
    };
}

/// Each congestion control's name (without `lh_`) and its ELF object, for libbpf to load.
pub const OBJECTS: &[(&str, &[u8])] = &[object!("scalable")];

/// A profile for the sockets of a cgroup: what [`crate::profile`] attaches.
pub(crate) const PROFILE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/profile.bpf.o"));
