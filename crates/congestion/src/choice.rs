// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resolution of a congestion control's name on this machine.

use crate::math::{Algorithm, algorithm};
use rustix::{
    net::{AddressFamily, SocketType, socket, sockopt},
    thread::{CapabilitySet, capabilities},
};
use std::fs;

/// Provider of a congestion control.
#[derive(Debug, Clone)]
pub enum Choice {
    /// The kernel, under this name.
    Kernel(String),
    /// This crate, once it is loaded.
    Ours(Algorithm),
}

impl Choice {
    /// Returns the name for TCP_CONGESTION.
    #[must_use]
    pub fn system_name(&self) -> String {
        match self {
            Self::Kernel(name) => name.clone(),
            Self::Ours(algorithm) => algorithm.system_name(),
        }
    }
}

/// Resolves a name: `htcp` is the kernel's own if it has one, else ours; `lh_htcp` is always ours. `None`
/// if neither has it.
#[must_use]
pub fn choose(name: &str) -> Option<Choice> {
    match (name.starts_with("lh_"), algorithm(name)) {
        (true, ours) => ours.map(Choice::Ours),
        (false, _) if kernel_has(kernel_name(name)) => {
            Some(Choice::Kernel(kernel_name(name).to_owned()))
        }
        (false, ours) => ours.map(Choice::Ours),
    }
}

/// Availability of a congestion control on this machine, found without loading a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// The kernel has the congestion control now. One in eBPF (struct_ops) may be unloaded later.
    Registered,
    /// A module on disk has the congestion control, and the kernel loads that module for root.
    Module,
    /// This crate has the congestion control.
    Ours,
    /// The kernel and this crate lack the congestion control.
    Absent,
}

/// Like [`choose`], but loads no module.
#[must_use]
pub fn availability(name: &str) -> Availability {
    match (name.starts_with("lh_"), algorithm(name)) {
        (true, Some(_)) => Availability::Ours,
        (true, None) => Availability::Absent,
        _ if is_registered(kernel_name(name)) => Availability::Registered,
        _ if is_module(name) => Availability::Module,
        (false, Some(_)) => Availability::Ours,
        (false, None) => Availability::Absent,
    }
}

/// Congestion controls of Linux 6.18 (net/ipv4/Kconfig), whether or not a kernel was built with them.
const LINUX_NAMES: [&str; 17] = [
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
pub fn is_in_linux(name: &str) -> bool {
    LINUX_NAMES.contains(&kernel_name(name))
}

/// Returns the module that the kernel requests (`tcp_ca_find_autoload`, net/ipv4/tcp_cong.c).
#[must_use]
pub fn module(name: &str) -> String {
    format!("tcp_{}", kernel_name(name))
}

/// Whether the kernel loads a module for this process: the caller has CAP_NET_ADMIN.
#[must_use]
pub fn may_load_modules() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN))
}

fn is_module(name: &str) -> bool {
    let release = rustix::system::uname();
    let list = format!(
        "/lib/modules/{}/modules.dep",
        release.release().to_string_lossy()
    );
    let list = fs::read_to_string(list).unwrap_or_default();
    lists_module(&list, &module(name))
}

/// Whether `modules.dep` lists a module: a line each, its path before a colon, compressed or not.
fn lists_module(list: &str, module: &str) -> bool {
    list.lines().any(|line| {
        let path = line.split(':').next().unwrap_or_default();
        let file = path.rsplit('/').next().unwrap_or_default();
        file.split_once(".ko")
            .is_some_and(|(stem, _)| stem == module)
    })
}

/// Returns the names of all congestion controls that the kernel has now, the same in every namespace.
#[must_use]
pub fn registered() -> Vec<String> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let text = text.unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Whether a congestion control of this name is registered.
pub(crate) fn is_registered(name: &str) -> bool {
    registered().iter().any(|other| other == name)
}

/// Returns Linux's name, which differs for one algorithm.
fn kernel_name(name: &str) -> &str {
    match name {
        "hstcp" => "highspeed",
        other => other,
    }
}

/// Whether the kernel has the congestion control, or loads a module for it: a socket of root that requests it makes the kernel
/// load the module (`tcp_set_congestion_control`, net/ipv4/tcp_cong.c).
fn kernel_has(name: &str) -> bool {
    if is_registered(name) {
        return true;
    }
    let outcome = socket(AddressFamily::INET, SocketType::STREAM, None)
        .and_then(|socket| sockopt::set_tcp_congestion(socket, name));
    outcome.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chooses_kernel_and_prefixed_names() {
        let name = |name| choose(name).map(|choice| choice.system_name());
        assert_eq!(name("reno").as_deref(), Some("reno"));
        assert_eq!(name("lh_scalable").as_deref(), Some("lh_scalable"));
        assert_eq!(name("lh_reno"), None);
        assert_eq!(name("nobody_has_it"), None);
    }

    #[test]
    fn reports_availability_without_loading() {
        assert_eq!(availability("reno"), Availability::Registered);
        assert_eq!(availability("lh_bic"), Availability::Ours);
        assert_eq!(availability("lh_reno"), Availability::Absent);
        assert_eq!(availability("nobody_has_it"), Availability::Absent);
        assert!(is_in_linux("hstcp") && is_in_linux("westwood") && !is_in_linux("cubik"));
    }

    #[test]
    fn finds_modules_in_modules_dep() {
        let list = "kernel/net/ipv4/tcp_htcp.ko.xz:\n\
            kernel/net/ipv4/tcp_bbr.ko: kernel/net/ipv4/tcp_vegas.ko\n";
        assert!(lists_module(list, &module("htcp")) && lists_module(list, "tcp_bbr"));
        assert!(!lists_module(list, "tcp_vegas") && !lists_module(list, "tcp_ht"));
    }
}
