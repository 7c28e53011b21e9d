// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a metric's name says: its unit and which way is better. A metric that runs have by themselves is looked up;
//! of others, which scenarios define, the end of the name and its words tell.

use crate::{
    registry::{self, Better},
    unit::Unit,
};
use longhaul_units::rounding::digits;

/// A metric as its name describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// The name without its unit, for people: "Download".
    pub label: String,
    /// The unit of its values.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
}

impl Metric {
    /// The metric of this name.
    pub fn of(name: &str) -> Self {
        let (stem, unit) = Unit::split(name);
        let entry = registry::find(name);
        Self {
            label: match unit {
                Unit::Probability => format!("{}, p", label(stem)),
                _ => label(stem),
            },
            unit: entry.map_or(unit, |entry| entry.unit),
            better: entry.map_or_else(|| better(stem, unit), |entry| entry.better),
        }
    }

    /// By what factor `ours` is better than `baseline`, or more, where neither is better; below 1 if it is worse.
    /// `None` if either is not above zero.
    pub fn factor(&self, ours: f64, baseline: f64) -> Option<f64> {
        let factor = match self.better {
            Better::Less => baseline / ours,
            Better::More | Better::Neither => ours / baseline,
        };
        (ours > 0.0 && baseline > 0.0).then_some(factor)
    }

    /// `value` with its unit and three significant digits.
    pub fn print(&self, value: f64) -> String {
        self.unit.print(value)
    }
}

/// What is better of a metric that a scenario defines.
fn better(stem: &str, unit: Unit) -> Better {
    let lossy = ["loss", "lost", "retrans", "drop", "error"];
    match unit {
        Unit::Probability => Better::Neither,
        Unit::Seconds | Unit::Micros => Better::Less,
        _ if lossy.iter().any(|word| stem.contains(word)) => Better::Less,
        _ => Better::More,
    }
}

/// `5.7×`.
pub fn times(factor: f64) -> String {
    format!("{}×", digits(factor))
}

/// A share as percent: `0.1 %`.
pub fn percent(share: f64) -> String {
    format!("{} %", digits(share * 100.0))
}

/// `client_cpu` → "Client CPU".
fn label(stem: &str) -> String {
    let word = |word: &str| match word {
        "cpu" | "rtt" | "rto" | "ack" | "tcp" => word.to_uppercase(),
        "acks" => "ACKs".to_owned(),
        "srtt" => "smoothed RTT".to_owned(),
        word => word.to_owned(),
    };
    sentence_case(&stem.split('_').map(word).collect::<Vec<_>>().join(" "))
}

fn sentence_case(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_gives_label_unit_and_direction() {
        let download = Metric::of("download_s");
        assert_eq!(
            (download.label.as_str(), download.unit, download.better),
            ("Download", Unit::Seconds, Better::Less)
        );
        assert_eq!(Metric::of("client_cpu_s").label, "Client CPU");
        assert_eq!(Metric::of("losses_p").label, "Losses, p");
        let better = |name: &str| Metric::of(name).better;
        assert_eq!(better("get_goodput_bps"), Better::More);
        assert_eq!(better("retransmits"), Better::Less);
        assert_eq!(better("duplicate_acks"), Better::Less);
        for neither in ["losses_p", "p_loss_pattern", "steady_s", "windows_p"] {
            assert_eq!(better(neither), Better::Neither, "{neither}");
        }
    }

    #[test]
    fn what_a_scenario_defines_says_itself_what_is_better() {
        let better = |name: &str| Metric::of(name).better;
        assert_eq!(better("after_switch_bps"), Better::More);
        assert_eq!(better("dvd_s"), Better::Less);
        assert_eq!(better("dropped"), Better::Less);
        assert_eq!(better("flows"), Better::More);
    }

    #[test]
    fn factors_and_shares_have_three_significant_digits() {
        assert_eq!(times(5.6875), "5.69×");
        assert_eq!(percent(0.001), "0.1 %");
    }

    #[test]
    fn a_factor_above_one_is_better() {
        assert_eq!(Metric::of("download_s").factor(16.0, 80.0), Some(5.0));
        assert_eq!(Metric::of("goodput_bps").factor(80.0, 16.0), Some(5.0));
        assert_eq!(Metric::of("goodput_bps").factor(80.0, 0.0), None);
    }
}
