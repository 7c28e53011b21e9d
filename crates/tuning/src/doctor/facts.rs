// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of a host: plain values, which the checks judge and `--json` prints. What could not
//! be read is absent; no check guesses.

use longhaul_linux::ethtool::Rings;
use longhaul_units::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Facts {
    /// Kernel release, as `uname -r`.
    pub(super) kernel: String,
    /// Options of the kernel's build without `CONFIG_`: `y`, `m` or `n`.
    pub(super) kernel_options: BTreeMap<String, String>,
    /// Whether the kernel brings its own type information.
    pub(super) btf: bool,
    /// Kernel settings by name; one that the kernel or namespace lacks is absent.
    pub(super) sysctl: BTreeMap<String, String>,
    pub(super) interfaces: Vec<Interface>,
    /// Processors that this process may use.
    pub(super) cpus: u64,
    pub(super) memory: Bytes,
    /// The least memory limit among this process's control groups.
    pub(super) cgroup_memory: Option<Bytes>,
    /// Bytes of a page.
    pub(super) page: u64,
    /// `RLIMIT_NOFILE`, soft and hard; `None` is no limit.
    pub(super) files_soft: Option<u64>,
    pub(super) files_hard: Option<u64>,
    pub(super) clock_source: Option<String>,
    /// By how much the kernel may delay this process's timers, in nanoseconds.
    pub(super) timer_slack_ns: Option<u64>,
    /// Programs out of those that longhaul runs that were found.
    pub(super) programs: BTreeSet<String>,
    pub(super) tun: Tun,
    /// Whether the asking process was root.
    pub(super) root: bool,
    /// What came of trying what longhaul can do.
    pub(super) trials: Vec<Trial>,
}

/// A feature that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trial {
    /// A command, with the flag that asks for it if it is a part of one.
    pub(super) feature: String,
    /// The rights that it takes; none of an ordinary user's if empty.
    pub(super) needs: String,
    pub(super) outcome: Outcome,
    /// Why it does not work, or could not be tried.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
}

/// What came of it.
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

/// A network interface that is up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Interface {
    pub(super) name: String,
    /// Kind of a virtual one.
    pub(super) kind: Option<String>,
    pub(super) mtu: u32,
    /// Transmit queue in packets.
    pub(super) transmit_queue: u32,
    /// Queueing disciplines that packets leave through.
    pub(super) qdiscs: Vec<String>,
    /// Offloads that the driver tells, and whether each is on.
    pub(super) offloads: BTreeMap<String, bool>,
    pub(super) rings: Option<Rings>,
    /// Speed of the line in Mbit/s.
    pub(super) speed_mbit: Option<u64>,
    /// The receive queues' `rps_cpus` masks.
    pub(super) rps: Vec<String>,
}

impl Facts {
    /// A setting as text.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.sysctl.get(name).map(String::as_str)
    }

    /// A setting of one number.
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.setting(name)?.parse().ok()
    }

    /// A setting of `N` numbers.
    pub(super) fn numbers<const N: usize>(&self, name: &str) -> Option<[u64; N]> {
        let all: Result<Vec<u64>, _> = self
            .setting(name)?
            .split_whitespace()
            .map(str::parse)
            .collect();
        all.ok()?.try_into().ok()
    }

    /// Major and minor version of the kernel.
    pub(super) fn version(&self) -> Option<(u32, u32)> {
        let mut parts = self
            .kernel
            .split(|c: char| !c.is_ascii_digit())
            .map(str::parse);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    }

    /// Whether it is known by trying it whether this feature works.
    pub(super) fn is_tried(&self, feature: &str) -> bool {
        let known = |trial: &Trial| trial.outcome != Outcome::Untried;
        self.trials
            .iter()
            .any(|trial| trial.feature == feature && known(trial))
    }

    /// Whether the kernel was certainly built without an option.
    pub(super) fn lacks(&self, option: &str) -> bool {
        self.kernel_options
            .get(option)
            .is_some_and(|value| value == "n")
    }
}
