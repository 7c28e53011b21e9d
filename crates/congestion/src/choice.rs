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

/// What a name is on this machine, as far as looking tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The kernel has it now; one that came as eBPF (struct_ops) may go again.
    Registered,
    /// A module on the disk has it, which the kernel loads when root asks.
    Module,
    /// This crate has it.
    Ours,
    /// Nobody has it.
    Nowhere,
}

/// As [`choose`], but nothing is loaded for the answer.
#[must_use]
pub fn standing(name: &str) -> Standing {
    match (name.starts_with("lh_"), algorithm(name)) {
        (true, Some(_)) => Standing::Ours,
        (true, None) => Standing::Nowhere,
        _ if kernel::is_registered(in_the_kernel(name)) => Standing::Registered,
        _ if is_a_module(name) => Standing::Module,
        (false, Some(_)) => Standing::Ours,
        (false, None) => Standing::Nowhere,
    }
}

/// Congestion controls of Linux 6.18 (net/ipv4/Kconfig), whether a kernel was built with them or not.
const OF_LINUX: [&str; 17] = [
    "bbr",
    "bic",
    "cdg",
    "cubic",
    "dctcp",
    "highspeed",
    "htcp",
    "hybla",
    "illinois",
    "lp",
    "nv",
    "reno",
    "scalable",
    "vegas",
    "veno",
    "westwood",
    "yeah",
];

/// Whether Linux has a congestion control of this name.
#[must_use]
pub fn is_of_linux(name: &str) -> bool {
    OF_LINUX.contains(&in_the_kernel(name))
}

/// The module that the kernel asks for (`tcp_ca_find_autoload`, net/ipv4/tcp_cong.c).
#[must_use]
pub fn module(name: &str) -> String {
    format!("tcp_{}", in_the_kernel(name))
}

/// Whether the kernel loads a module for this process.
#[must_use]
pub fn may_load_modules() -> bool {
    kernel::is_network_admin()
}

fn is_a_module(name: &str) -> bool {
    let release = rustix::system::uname();
    let list = format!(
        "/lib/modules/{}/modules.dep",
        release.release().to_string_lossy()
    );
    let list = std::fs::read_to_string(list).unwrap_or_default();
    lists_module(&list, &module(name))
}

/// `modules.dep`: a line for each module, its path before a colon, compressed or not.
fn lists_module(list: &str, module: &str) -> bool {
    list.lines().any(|line| {
        let path = line.split(':').next().unwrap_or_default();
        let file = path.rsplit('/').next().unwrap_or_default();
        file.split_once(".ko")
            .is_some_and(|(stem, _)| stem == module)
    })
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

    #[test]
    fn looking_tells_who_has_it() {
        assert_eq!(standing("reno"), Standing::Registered);
        assert_eq!(standing("lh_bic"), Standing::Ours);
        assert_eq!(standing("lh_reno"), Standing::Nowhere);
        assert_eq!(standing("nobody_has_it"), Standing::Nowhere);
        assert!(is_of_linux("hstcp") && is_of_linux("westwood") && !is_of_linux("cubik"));
    }

    #[test]
    fn a_module_is_found_in_the_list_of_modules() {
        let list = "kernel/net/ipv4/tcp_htcp.ko.xz:\n\
            kernel/net/ipv4/tcp_bbr.ko: kernel/net/ipv4/tcp_vegas.ko\n";
        assert!(lists_module(list, &module("htcp")) && lists_module(list, "tcp_bbr"));
        assert!(!lists_module(list, "tcp_vegas") && !lists_module(list, "tcp_ht"));
    }
}
