// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requirements of an experiment on this machine, checked before anything is changed, and the facts
//! about the machine for the result.

use crate::{
    experiment::{Cell, ExperimentPlan},
    scenario::{LinkKind, Program, Relay, RelayProgram},
    testbed::{controls, programs},
};
use anyhow::Result;
use longhaul_command::{
    errln,
    exit::{self, Refusal},
};
use longhaul_linux::{netns::Netns, sandbox, sysctl};
use longhaul_results::result::Host;
use std::{collections::BTreeMap, fs};

/// Kernel settings that affect TCP throughput. A scenario's own are in its text.
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

/// Device that creates TUN/TAP interfaces.
const TUN: &str = "/dev/net/tun";

/// Describes this machine as seen outside the sandbox, with the given program versions.
fn describe_host(programs: BTreeMap<String, String>) -> anyhow::Result<Host> {
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

/// Removes the cells whose commands are not installed, and notes them. The other cells can still be
/// compared.
pub(crate) fn skip_missing_commands(experiment: &mut ExperimentPlan) -> Result<()> {
    let mut absent: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for cell in &experiment.cells {
        let mut flows = cell.scenario.flows.iter().filter(|flow| flow.enabled);
        if let Some(program) = flows.find_map(programs::command::missing) {
            let cells = absent.entry(program.to_owned()).or_default();
            cells.push(cell.name());
        }
    }
    let is_skipped = |cell: &Cell| absent.values().flatten().any(|name| *name == cell.name());
    if !absent.is_empty() && experiment.cells.iter().all(is_skipped) {
        let programs: Vec<_> = absent.into_keys().collect();
        return Err(Refusal::unsupported(format!(
            "not on this machine: {}; install it, or give its path in the scenario",
            programs.join(", ")
        )));
    }
    experiment.cells.retain(|cell| !is_skipped(cell));
    for (program, cells) in absent {
        let line = format!(
            "Skipped cells, because {program} is not on this machine: {}",
            cells.join("; ")
        );
        errln!("{line}");
        experiment.scenario.notes.push(line);
    }
    Ok(())
}

/// Checks the requirements of the scenario on this machine, and returns its facts.
pub(crate) fn check_prerequisites(experiment: &ExperimentPlan) -> Result<Host> {
    let scenarios = || experiment.on_testbed();
    let programs: std::collections::BTreeSet<Program> = scenarios()
        .flat_map(|s| &s.flows)
        .filter(|flow| flow.enabled)
        .map(|flow| flow.program)
        .collect();
    let relays: std::collections::BTreeSet<RelayProgram> = scenarios()
        .flat_map(|s| s.relays.values())
        .filter(|relay| relay.enabled)
        .map(|relay| relay.program)
        .collect();
    let interception = scenarios()
        .flat_map(|s| s.relays.values())
        .any(|relay| relay.enabled && !programs::relay::intercepted(relay).is_empty());
    let versions = programs::versions(programs, relays, interception)?;
    controls::check(experiment)?;
    check_windows(experiment)?;
    check_permissions(experiment)?;
    if experiment.needs_testbed() {
        try_sandbox(experiment)?;
    }
    describe_host(versions)
}

/// Checks permissions: for emulated links, and for the socket options of relays. No program is
/// started.
pub(crate) fn check_permissions(experiment: &ExperimentPlan) -> Result<()> {
    let mut links = experiment.on_testbed().flat_map(|scenario| &scenario.links);
    if links.any(|link| link.kind == LinkKind::Emulated) {
        let device = fs::OpenOptions::new().read(true).write(true).open(TUN);
        device.map_err(|error| {
            Refusal::unsupported(format!(
                "cannot open {TUN} ({error}), which emulated links need; run as root, or: \
                 sudo modprobe tun && sudo chmod 666 {TUN} (a container needs --device {TUN})"
            ))
        })?;
    }
    let relays = experiment
        .on_testbed()
        .flat_map(|scenario| &scenario.relays);
    let own = relays.filter(|(_, relay)| relay.enabled && relay.program == RelayProgram::Longhaul);
    let mut tried: Vec<(&String, &Relay)> = Vec::new();
    for (host, relay) in own {
        let tried_before = |(at, other): &(&String, &Relay)| {
            *at == host && other.options == relay.options && other.config == relay.config
        };
        if !tried.iter().any(tried_before) {
            programs::relay::check_permissions(host, relay)?;
            tried.push((host, relay));
        }
    }
    Ok(())
}

/// Creates the sandbox, and writes every kernel setting of the hosts in its network namespace. Both
/// end with it.
fn try_sandbox(experiment: &ExperimentPlan) -> Result<()> {
    let work = |set_up: Result<(), sandbox::SandboxError>| {
        let outcome = set_up
            .map_err(|error| unsupported(&error))
            .and_then(|()| try_sysctls(experiment));
        exit::report_outcome(&outcome)
    };
    match sandbox::run(work).map_err(|error| unsupported(&error))? {
        0 => Ok(()),
        // The error has been printed.
        code => std::process::exit(code.into()),
    }
}

fn try_sysctls(experiment: &ExperimentPlan) -> Result<()> {
    for scenario in experiment.on_testbed() {
        let hosts = scenario.hosts.values().flat_map(|host| &host.sysctl);
        for (name, value) in scenario.sysctl.iter().chain(hosts) {
            sysctl::write_here(name, &value.to_string()).map_err(|error| {
                Refusal::unsupported(format!(
                    "cannot set {name} = {value:?} on this machine: {error}",
                    value = value.to_string()
                ))
            })?;
        }
    }
    Ok(())
}

/// Checks `window` against the limits of socket buffers, which apply to the whole machine.
fn check_windows(experiment: &ExperimentPlan) -> Result<()> {
    let flows = experiment.on_testbed().flat_map(|scenario| &scenario.flows);
    let windows = flows
        .filter(|flow| flow.enabled)
        .filter_map(|flow| flow.window);
    let Some(largest) = windows.max() else {
        return Ok(());
    };
    for name in ["net.core.rmem_max", "net.core.wmem_max"] {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let limit = fs::read_to_string(path).ok();
        let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
        if limit.is_some_and(|limit| limit < largest.get()) {
            return Err(Refusal::unsupported(format!(
                "a window of {largest} is above this machine's {name}; allow it: sysctl -w {name}={}",
                largest.get()
            )));
        }
    }
    Ok(())
}

/// Error for a refused sandbox, with advice.
pub(crate) fn unsupported(error: &sandbox::SandboxError) -> anyhow::Error {
    let advice = if rustix::process::geteuid().is_root() {
        "inside a container, give it CAP_SYS_ADMIN and an unmasked /proc (docker: --privileged)"
    } else {
        "run as root, or allow user namespaces: sysctl user.max_user_namespaces above 0, \
         kernel.unprivileged_userns_clone=1 (Debian), \
         kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu 24.04)"
    };
    Refusal::unsupported(format!("{error}; {advice}"))
}
