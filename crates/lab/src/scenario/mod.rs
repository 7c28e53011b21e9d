// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenarios as their TOML files define them. `docs/lab.md` explains every key for authors.

pub(crate) mod claim;
pub(crate) mod config_error;
pub(crate) mod control;
pub mod expression;
pub(crate) mod flow;
pub(crate) mod link;
pub(crate) mod measure;
mod notation;
pub(crate) mod placeholders;
pub(crate) mod relay;
#[cfg(test)]
mod schema;
pub(crate) mod title_template;
pub(crate) mod value;
pub(crate) mod view;

use claim::ReferenceValues;
pub(crate) use claim::{CheckSpec, HeadlineSpec};
pub(crate) use control::CcSpec;
pub(crate) use flow::{Direction, Flow, HostPort, Pacing, Program};
use indexmap::IndexMap;
pub(crate) use link::{Address, Link, LinkKind};
use longhaul_units::Time;
pub(crate) use measure::MeasureSpec;
pub(crate) use relay::{Decp, Relay, RelayProgram};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toml::{Table, Value};
use view::{FigureSpec, TableSpec};

/// Whole scenario file, with its parameters filled in.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// Title of the report, one line.
    pub(crate) title: String,
    /// Question that the experiment answers.
    pub(crate) question: String,
    /// Source of the paper's figures.
    pub(crate) source: Option<String>,
    /// Differences from the paper's experiment, one sentence each.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    /// Seed of the order of runs, the contents of files and the random decisions of links.
    #[serde(default = "defaults::seed")]
    pub(crate) seed: u64,
    /// Whether this cell runs under simulated time instead of on a testbed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) simulated: bool,
    /// Counted runs of each cell, 1 to 1,000, without warm-up runs.
    #[serde(default = "defaults::repetitions")]
    pub(crate) repetitions: u32,
    /// Most retries of a run in which the emulator was late (`measure/links.rs`).
    #[serde(default = "defaults::max_retries")]
    pub(crate) max_retries: u32,
    /// Warm-up runs of each cell, 0 to 10. They are shortened as by `--quick`, come before the
    /// counted runs, and their figures are discarded.
    #[serde(default)]
    pub(crate) warmup_runs: u32,
    /// Longest time of one run; a longer run fails.
    #[serde(default = "defaults::timeout")]
    #[cfg_attr(test, schemars(with = "schema::Time"))]
    pub(crate) timeout: Time,
    /// Named values that the rest of the file uses as `${name}`.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "schema::Table"))]
    pub(crate) parameters: Table,
    /// Parameters that `--quick` and warm-up runs use instead, and the `repetitions` of `--quick`.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "schema::Table"))]
    pub(crate) quick: Table,
    /// Parameters that are varied: every combination of their values is a cell.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "IndexMap<String, Vec<schema::Value>>"))]
    pub(crate) matrix: IndexMap<String, Vec<Value>>,
    /// Overrides of parameters for a varied value: by its parameter, then by the value.
    #[serde(default)]
    #[cfg_attr(
        test,
        schemars(with = "IndexMap<String, IndexMap<String, schema::Table>>")
    )]
    pub(crate) overrides: IndexMap<String, IndexMap<String, Table>>,
    /// Single cells in addition to those of `matrix`.
    #[serde(default)]
    pub(crate) include: Vec<CellSpec>,
    /// Congestion control of every host's connections; the machine's default if absent.
    pub(crate) congestion_control: Option<String>,
    /// Kernel settings of every host, by their dotted names.
    #[serde(default)]
    pub(crate) sysctl: BTreeMap<String, Setting>,
    /// Settings of single hosts.
    #[serde(default)]
    pub(crate) hosts: BTreeMap<String, Host>,
    pub(crate) links: Vec<Link>,
    /// Relays by name, which is also the host unless the relay names another one.
    #[serde(default)]
    pub(crate) relays: IndexMap<String, Relay>,
    /// Instances of `longhaul decp`, by the host that each runs on.
    #[serde(default)]
    pub(crate) decp: IndexMap<String, Decp>,
    pub(crate) flows: Vec<Flow>,
    /// Metrics computed from others by expressions.
    #[serde(default)]
    pub(crate) derived: IndexMap<String, String>,
    /// Metrics computed from time series.
    #[serde(default)]
    pub(crate) measure: Vec<MeasureSpec>,
    #[serde(default)]
    pub(crate) check: Vec<CheckSpec>,
    /// Tables of the report.
    #[serde(default)]
    pub(crate) table: Vec<TableSpec>,
    /// Figures of the report.
    #[serde(default)]
    pub(crate) figure: Vec<FigureSpec>,
    /// Headline with the number that answers the question.
    #[serde(rename = "answer")]
    pub(crate) headline: Option<HeadlineSpec>,
    /// Figures that the paper prints.
    #[serde(default)]
    pub(crate) reference: Vec<ReferenceValues>,
}

impl Scenario {
    /// Returns each relay's name, its host and the relay.
    pub(crate) fn relays(&self) -> impl Iterator<Item = (&String, &String, &Relay)> {
        self.relays
            .iter()
            .map(|(name, relay)| (name, relay.host.as_ref().unwrap_or(name), relay))
    }

    /// Whether a relay runs on `host` in this cell.
    pub(crate) fn relays_on(&self, host: &str) -> bool {
        self.relays()
            .any(|(_, own, relay)| own == host && relay.enabled)
    }
}

/// Single cell that is not a combination of `matrix`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct CellSpec {
    /// Name for tables and messages.
    pub(crate) label: Option<String>,
    /// Parameters that identify the cell.
    #[cfg_attr(test, schemars(with = "schema::Table"))]
    pub(crate) values: Table,
    /// Further parameters of the cell. The result does not name them.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "schema::Table"))]
    pub(crate) set: Table,
}

/// Value of a kernel setting.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "a setting is a whole number or a text")]
pub(crate) enum Setting {
    Number(i64),
    Text(String),
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// Settings of one host.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    /// Congestion control instead of the scenario's.
    pub(crate) congestion_control: Option<String>,
    #[serde(default)]
    pub(crate) sysctl: BTreeMap<String, Setting>,
    /// Note in the topology diagram of the report.
    pub(crate) note: Option<String>,
}

mod defaults {
    use longhaul_units::Time;

    pub(super) fn seed() -> u64 {
        1
    }

    pub(super) fn max_retries() -> u32 {
        2
    }

    pub(super) fn repetitions() -> u32 {
        3
    }

    pub(super) fn timeout() -> Time {
        Time::from_secs(600)
    }
}
