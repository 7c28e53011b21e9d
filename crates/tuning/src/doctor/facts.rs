// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about a host: plain values, which the checks evaluate and `--json` prints. Values that the host does not
//! have are absent. Those that could not be read are listed as unknown; no check guesses.

use longhaul_linux::{ethtool::Rings, queueing::Discipline, routes::Route};
use longhaul_units::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Facts about a host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Facts {
    /// Kernel release, as `uname -r`.
    pub(super) kernel: String,
    /// Options of the kernel's build without `CONFIG_`: `y`, `m` or `n`.
    pub(super) kernel_options: BTreeMap<String, String>,
    /// Whether the kernel provides BTF.
    pub(super) btf: bool,
    /// Kernel settings by name; one that the kernel or namespace lacks is absent.
    pub(super) sysctl: BTreeMap<String, String>,
    pub(super) interfaces: Vec<Interface>,
    /// Routes that tell TCP how to use them.
    pub(super) routes: Vec<Route>,
    /// Facts that could not be read, with the reason.
    pub(super) unknown: BTreeMap<String, String>,
    /// Processors that this process may use.
    pub(super) cpus: u64,
    pub(super) memory: Bytes,
    /// Minimum memory limit of this process's control groups.
    pub(super) cgroup_memory: Option<Bytes>,
    /// Bytes of a page.
    pub(super) page: u64,
    /// `RLIMIT_NOFILE`, soft and hard; `None` is no limit.
    pub(super) files_soft: Option<u64>,
    pub(super) files_hard: Option<u64>,
    pub(super) clock_source: Option<String>,
    /// Longest delay of this process's timers by the kernel, nanoseconds.
    pub(super) timer_slack_ns: Option<u64>,
    /// Programs that longhaul uses and that were found.
    pub(super) programs: BTreeSet<String>,
    pub(super) tun: Tun,
    /// Listeners to which running relays divert connections; `None` if their tables could not be read.
    pub(super) interceptions: Option<Vec<Interception>>,
    /// INPUT chains that drop what no rule accepts, of IPv4 and IPv6; `None` if they could not be read.
    pub(super) input_drops: Option<BTreeSet<String>>,
    /// Whether the process that read the facts was root.
    pub(super) root: bool,
    /// Results of the trials of longhaul's features.
    pub(super) trials: Vec<Trial>,
}

/// Trial of a feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trial {
    /// Command, with the flag that enables the feature if it is a part of one.
    pub(super) feature: String,
    /// Rights that the feature needs; empty if any user may use it.
    pub(super) needs: String,
    pub(super) outcome: Outcome,
    /// Reason why the feature does not work, or could not be tried.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
}

/// Result of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Works,
    Fails,
    Untried,
}

/// Whether `/dev/net/tun` can be opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Tun {
    Open,
    Denied,
    #[default]
    Absent,
}

/// Listener of a running relay to which connections are diverted, with counts since its rules were installed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Interception {
    pub(super) is_ipv6: bool,
    pub(super) port: u16,
    /// Whether new connections are diverted now.
    pub(super) active: bool,
    /// SYNs that were diverted to the listener.
    pub(super) diverted_syns: u64,
    /// Diverted SYNs that all INPUT rules have accepted.
    pub(super) arrived_syns: u64,
}

/// Network interface that is up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Interface {
    pub(super) name: String,
    /// Kind of a virtual interface.
    pub(super) kind: Option<String>,
    pub(super) mtu: u32,
    /// Transmit queue in packets.
    pub(super) transmit_queue: u32,
    /// Queueing disciplines that packets leave through.
    pub(super) qdiscs: Vec<String>,
    /// The disciplines themselves, and filters that drop packets beyond a rate.
    pub(super) disciplines: Vec<Discipline>,
    /// Offloads that the driver reports, and whether each is on.
    pub(super) offloads: BTreeMap<String, bool>,
    pub(super) rings: Option<Rings>,
    /// Link speed in Mbit/s.
    pub(super) speed_mbit: Option<u64>,
    /// Masks `rps_cpus` of the receive queues.
    pub(super) rps: Vec<String>,
}

impl Facts {
    /// Returns a setting as text.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.sysctl.get(name).map(String::as_str)
    }

    /// Returns a setting of one number.
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.setting(name)?.parse().ok()
    }

    /// Returns a setting of `N` numbers.
    pub(super) fn numbers<const N: usize>(&self, name: &str) -> Option<[u64; N]> {
        let all: Result<Vec<u64>, _> = self
            .setting(name)?
            .split_whitespace()
            .map(str::parse)
            .collect();
        all.ok()?.try_into().ok()
    }

    /// Returns the major and minor version of the kernel.
    pub(super) fn version(&self) -> Option<(u32, u32)> {
        let mut parts = self
            .kernel
            .split(|c: char| !c.is_ascii_digit())
            .map(str::parse);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    }

    /// Whether a trial has shown that this feature works or fails.
    pub(super) fn is_tried(&self, feature: &str) -> bool {
        let is_known = |trial: &Trial| trial.outcome != Outcome::Untried;
        self.trials
            .iter()
            .any(|trial| trial.feature == feature && is_known(trial))
    }

    /// Whether the kernel was certainly built without an option.
    pub(super) fn lacks(&self, option: &str) -> bool {
        self.kernel_options
            .get(option)
            .is_some_and(|value| value == "n")
    }
}
