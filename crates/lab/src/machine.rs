// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts of the machine that belong beside every result.

use longhaul_linux::{netns::Netns, sysctl};
use longhaul_results::result::Host;
use std::{collections::BTreeMap, fs};

/// Settings that bear on TCP throughput. A scenario's own are in its resolved text.
const SYSCTLS: [&str; 14] = [
    "net.core.default_qdisc",
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_wmem",
];

/// This machine, as the caller sees it (outside the sandbox), with these programs' versions.
pub(crate) fn describe(programs: BTreeMap<String, String>) -> anyhow::Result<Host> {
    let here = Netns::current()?;
    let setting = |name: &&str| Some(((*name).to_owned(), sysctl::read(&here, name).ok()?));
    Ok(Host {
        kernel: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        cpus: std::thread::available_parallelism()?.get(),
        cpu: cpu_model(),
        sysctl: SYSCTLS.iter().filter_map(setting).collect(),
        offloads: BTreeMap::new(),
        programs,
    })
}

/// `model name` of `/proc/cpuinfo`, which arm64 lacks.
fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
