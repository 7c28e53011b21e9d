// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics: label, unit and better direction, derived from the name. The registry has the unit and direction of
//! built-in metrics. For a metric that a scenario defines, the name's suffix gives the unit and its words the
//! direction.

use crate::{
    registry::{self, Better},
    unit::Unit,
};
use longhaul_units::rounding::format_3_digits;

/// Metric, as described by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// Label for users: the name without its unit, such as "Download".
    pub label: String,
    /// Unit of its values.
    pub unit: Unit,
    /// Better direction.
    pub better: Better,
}

impl Metric {
    /// Returns the metric of this name.
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

    /// Returns the factor by which `value` is better than `baseline`, below 1 if it is worse. If no direction is
    /// better, returns `value` over `baseline`. Returns `None` unless both are above zero.
    pub fn factor(&self, value: f64, baseline: f64) -> Option<f64> {
        let factor = match self.better {
            Better::Less => baseline / value,
            Better::More | Better::Neither => value / baseline,
        };
        (value > 0.0 && baseline > 0.0).then_some(factor)
    }

    /// Formats `value` with its unit and three significant digits.
    pub fn format(&self, value: f64) -> String {
        self.unit.format(value)
    }
}

/// Returns the better direction of a metric that a scenario defines.
fn better(stem: &str, unit: Unit) -> Better {
    let less_is_better = ["loss", "lost", "retrans", "drop", "error"];
    match unit {
        Unit::Probability => Better::Neither,
        Unit::Seconds | Unit::Micros => Better::Less,
        _ if less_is_better.iter().any(|word| stem.contains(word)) => Better::Less,
        _ => Better::More,
    }
}

/// Formats a factor: `5.7×`.
pub fn format_factor(factor: f64) -> String {
    format!("{}×", format_3_digits(factor))
}

/// Formats a share as percent: `0.1 %`.
pub fn format_percent(share: f64) -> String {
    format!("{} %", format_3_digits(share * 100.0))
}

/// Converts a name without unit to a label: `client_cpu` → "Client CPU".
fn label(stem: &str) -> String {
    let word = |word: &str| match word {
        "cpu" | "rtt" | "rto" | "ack" | "tcp" | "dvd" => word.to_uppercase(),
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
    fn derives_label_unit_and_direction_from_name() {
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
    fn guesses_direction_of_scenario_metrics() {
        let better = |name: &str| Metric::of(name).better;
        assert_eq!(better("after_switch_bps"), Better::More);
        assert_eq!(better("dvd_s"), Better::Less);
        assert_eq!(better("dropped"), Better::Less);
        assert_eq!(better("flows"), Better::More);
    }

    #[test]
    fn formats_factors_and_shares_with_three_digits() {
        assert_eq!(format_factor(5.6875), "5.69×");
        assert_eq!(format_percent(0.001), "0.1 %");
    }

    #[test]
    fn factor_above_one_is_better() {
        assert_eq!(Metric::of("download_s").factor(16.0, 80.0), Some(5.0));
        assert_eq!(Metric::of("goodput_bps").factor(80.0, 16.0), Some(5.0));
        assert_eq!(Metric::of("goodput_bps").factor(80.0, 0.0), None);
    }
}
