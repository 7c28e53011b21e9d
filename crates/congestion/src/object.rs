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
pub const OBJECTS: &[(&str, &[u8])] = &[
    object!("bic"),
    object!("bic_linux"),
    object!("fast"),
    object!("hstcp"),
    object!("htcp"),
    object!("scalable"),
    object!("trc"),
];

/// The iterator over a congestion control's connections that [`crate::watch`] reads.
pub(crate) const WATCH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/watch.bpf.o"));

/// The socket option of [`crate::socket_parameters`].
pub(crate) const OWN_PARAMETERS: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/own_parameters.bpf.o"));

/// Returns the object of `algorithm`.
pub(crate) fn of(algorithm: crate::math::Algorithm) -> Option<&'static [u8]> {
    let entry = OBJECTS.iter().find(|(name, _)| *name == algorithm.name());
    entry.map(|(_, bytes)| *bytes)
}

/// The programs of [`crate::sockets::profile`], for the sockets of a cgroup.
pub(crate) const PROFILE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/profile.bpf.o"));
