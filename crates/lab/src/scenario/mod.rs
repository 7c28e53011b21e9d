// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scenario as its TOML file says it. `docs/lab.md` explains every key to its writers.

pub(crate) mod claim;
pub(crate) mod control;
pub mod expression;
pub(crate) mod fault;
pub(crate) mod finding;
pub(crate) mod flow;
pub(crate) mod link;
pub(crate) mod measure;
mod notation;
pub(crate) mod relay;
pub(crate) mod value;
pub(crate) mod view;
pub(crate) mod words;

use claim::PaperFigures;
pub(crate) use claim::{AnswerPlan, CheckPlan};
pub(crate) use control::Control;
pub(crate) use flow::{Direction, Flow, HostPort, Pace, Program};
use indexmap::IndexMap;
pub(crate) use link::{Address, Link, LinkKind};
use longhaul_units::Time;
pub(crate) use measure::MeasurePlan;
pub(crate) use relay::{Decp, Relay, RelayProgram};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toml::{Table, Value};
use view::{FigurePlan, TablePlan};

/// The whole file, with its parameters filled in.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// One line for the head of the report.
    pub(crate) title: String,
    /// What the experiment is to answer.
    pub(crate) question: String,
    /// Where the paper's figures come from.
    pub(crate) source: Option<String>,
    /// What differs from the paper's experiment, one sentence each.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    /// Seed of the order of runs, the files' contents and the links' decisions.
    #[serde(default = "defaults::seed")]
    pub(crate) seed: u64,
    /// Whether this cell runs under simulated time instead of on a testbed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) simulate: bool,
    /// Counted runs of each cell, 1 to 1,000.
    #[serde(default = "defaults::repetitions")]
    pub(crate) repetitions: u32,
    /// How often a run is taken again if the machine was too busy for the emulator (`measure/links.rs`).
    #[serde(default = "defaults::retakes")]
    pub(crate) retakes: u32,
    /// Runs of each cell, shortened as by `--quick`, before the counted ones; their figures are
    /// thrown away. 0 to 10.
    #[serde(default)]
    pub(crate) warmup: u32,
    /// Longest that one run may take before it counts as failed.
    #[serde(default = "defaults::limit")]
    pub(crate) limit: Time,
    /// Named values that the rest of the file uses as `${name}`.
    #[serde(default)]
    pub(crate) parameters: Table,
    /// Parameters that `--quick` and warm-up runs use instead, and `repetitions`.
    #[serde(default)]
    pub(crate) quick: Table,
    /// Parameters varied against each other: every combination is a cell.
    #[serde(default)]
    pub(crate) vary: IndexMap<String, Vec<Value>>,
    /// Parameters that go with a varied value: by its parameter, then by the value.
    #[serde(default)]
    pub(crate) with: IndexMap<String, IndexMap<String, Table>>,
    /// Cells beside those of `vary`.
    #[serde(default)]
    pub(crate) cells: Vec<CellPlan>,
    /// Congestion control of every host's connections; the machine's default if absent.
    pub(crate) congestion_control: Option<String>,
    /// Kernel settings of every host, by their dotted names.
    #[serde(default)]
    pub(crate) sysctl: BTreeMap<String, Setting>,
    /// What is special about single hosts.
    #[serde(default)]
    pub(crate) hosts: BTreeMap<String, Host>,
    pub(crate) links: Vec<Link>,
    /// Relays by name: that of the host that each runs on, unless it says another host.
    #[serde(default)]
    pub(crate) relays: IndexMap<String, Relay>,
    /// `longhaul decp`, by the host that it runs on.
    #[serde(default)]
    pub(crate) decp: IndexMap<String, Decp>,
    pub(crate) flows: Vec<Flow>,
    /// Metrics computed from others, as expressions.
    #[serde(default)]
    pub(crate) derived: IndexMap<String, String>,
    /// Metrics of how a run went over time.
    #[serde(default)]
    pub(crate) measure: Vec<MeasurePlan>,
    #[serde(default)]
    pub(crate) check: Vec<CheckPlan>,
    /// What the report shows as tables.
    #[serde(default)]
    pub(crate) table: Vec<TablePlan>,
    /// What it draws.
    #[serde(default)]
    pub(crate) figure: Vec<FigurePlan>,
    /// Which number answers the question.
    pub(crate) answer: Option<AnswerPlan>,
    /// The paper's own figures.
    #[serde(default)]
    pub(crate) paper: Vec<PaperFigures>,
}

impl Scenario {
    /// Each relay's name, its host and itself.
    pub(crate) fn relays(&self) -> impl Iterator<Item = (&String, &String, &Relay)> {
        self.relays
            .iter()
            .map(|(name, relay)| (name, relay.host.as_ref().unwrap_or(name), relay))
    }

    /// Whether something relays on `host` in this cell.
    pub(crate) fn relays_on(&self, host: &str) -> bool {
        self.relays()
            .any(|(_, own, relay)| own == host && relay.when)
    }
}

/// A cell that `vary` does not make.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CellPlan {
    /// A name for people.
    pub(crate) label: Option<String>,
    /// Parameters that tell this cell from the others.
    pub(crate) vary: Table,
    /// Parameters that go with them, without being named in the result.
    #[serde(default)]
    pub(crate) set: Table,
}

/// A sysctl's value.
#[derive(Debug, Clone, Serialize, Deserialize)]
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

/// What is special about one host.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    /// Instead of the scenario's.
    pub(crate) congestion_control: Option<String>,
    #[serde(default)]
    pub(crate) sysctl: BTreeMap<String, Setting>,
    /// For the drawing in the report.
    pub(crate) note: Option<String>,
}

mod defaults {
    use longhaul_units::Time;

    pub(super) fn seed() -> u64 {
        1
    }

    pub(super) fn retakes() -> u32 {
        2
    }

    pub(super) fn repetitions() -> u32 {
        3
    }

    pub(super) fn limit() -> Time {
        Time::from_secs(600)
    }
}
