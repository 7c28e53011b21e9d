// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the name of a congestion control means on this machine.

use crate::{
    kernel,
    math::{Algorithm, algorithm},
};
use rustix::net::{AddressFamily, SocketType, socket, sockopt};

/// Who provides it.
#[derive(Debug, Clone)]
pub enum Choice {
    /// The kernel, under this name.
    Kernel(String),
    /// This crate, once it is loaded.
    Ours(Algorithm),
}

impl Choice {
    /// What a socket is told (TCP_CONGESTION).
    #[must_use]
    pub fn system_name(&self) -> String {
        match self {
            Self::Kernel(name) => name.clone(),
            Self::Ours(algorithm) => algorithm.system_name(),
        }
    }
}

/// `htcp` is the kernel's own if it has one, else ours; `lh_htcp` is always ours. None: nobody has
/// it.
#[must_use]
pub fn choose(name: &str) -> Option<Choice> {
    match (name.starts_with("lh_"), algorithm(name)) {
        (true, ours) => ours.map(Choice::Ours),
        (false, _) if kernel_has(in_the_kernel(name)) => {
            Some(Choice::Kernel(in_the_kernel(name).to_owned()))
        }
        (false, ours) => ours.map(Choice::Ours),
    }
}

/// Names of all congestion controls that the kernel has now, in every namespace alike.
#[must_use]
pub fn registered() -> Vec<String> {
    kernel::registered()
}

/// Linux calls one otherwise.
fn in_the_kernel(name: &str) -> &str {
    match name {
        "hstcp" => "highspeed",
        other => other,
    }
}

/// Whether it is there, or becomes there: a socket that asks, as root, lets the kernel load a module
/// (`tcp_set_congestion_control`, net/ipv4/tcp_cong.c).
fn kernel_has(name: &str) -> bool {
    if kernel::is_registered(name) {
        return true;
    }
    let asked = socket(AddressFamily::INET, SocketType::STREAM, None)
        .and_then(|socket| sockopt::set_tcp_congestion(socket, name));
    asked.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reno_is_the_kernels_and_the_prefix_is_ours() {
        let name = |asked| choose(asked).map(|choice| choice.system_name());
        assert_eq!(name("reno").as_deref(), Some("reno"));
        assert_eq!(name("lh_scalable").as_deref(), Some("lh_scalable"));
        assert_eq!(name("lh_reno"), None);
        assert_eq!(name("nobody_has_it"), None);
    }
}
