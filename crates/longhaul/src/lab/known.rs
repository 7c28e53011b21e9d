// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of all metrics that a scenario's runs can give. A slip of the pen in a check or a table is found before
//! the first run, not after the last.

use super::{book::Book, expression::Expression, metric};
use std::collections::BTreeSet;

/// What programs, samples and taps tell of a flow, bare or behind the flow's name. A metric that is made
/// anywhere else belongs in here too.
const OF_FLOWS: [&str; 41] = [
    // Of transfers.
    "goodput_bps",
    "retransmits",
    "jain_ratio",
    "download_s",
    "upload_s",
    "first_byte_s",
    // Of probes.
    "received",
    "lost",
    "first_lost",
    "loss_pattern",
    "delay_median_us",
    "delay_p99_us",
    "delay_error_median_us",
    "delay_error_p99_us",
    "delay_early_us",
    "jitter_p",
    "losses_p",
    "bursts_p",
    "gaps_p",
    "drain_bps",
    "drain_error_ratio",
    // Of taps.
    "data_peak_bps",
    "acked_peak_bps",
    "data_steady_bps",
    "acked_steady_bps",
    "ramp_up_s",
    "peak_s",
    "steady_s",
    "recovery_s",
    "ack_diff_mean_bytes",
    "packets_per_ack_ratio",
    "ramp_up_acks_pps",
    "steady_acks_pps",
    "acks_median_pps",
    "acks_p5_pps",
    "acks_p95_pps",
    "ack_limited_ratio",
    "data_retransmits",
    "duplicate_acks",
    "data_packets",
    "acks",
];

/// The metrics of one scenario.
#[derive(Debug)]
pub(crate) struct Known {
    /// Of the scenario's own making: derived ones and measures.
    own: BTreeSet<String>,
    flows: BTreeSet<String>,
}

impl Known {
    pub(crate) fn of(book: &Book) -> Self {
        let scenarios = || book.cells.iter().map(|cell| &cell.scenario);
        let measures = scenarios().flat_map(|scenario| &scenario.measure);
        let flows = scenarios().flat_map(|scenario| &scenario.flows);
        let derived = book.base.derived.keys().cloned();
        Self {
            own: derived
                .chain(measures.map(|plan| plan.name.clone()))
                .collect(),
            flows: flows.map(|flow| flow.name.clone()).collect(),
        }
    }

    /// Refuses a name that no run gives; `paper.` before it means the paper's figure of that.
    pub(crate) fn check(&self, name: &str) -> Result<(), String> {
        let bare = name.strip_prefix("paper.").unwrap_or(name);
        match self.has(bare) {
            true => Ok(()),
            false => Err(format!(
                "no run gives a metric {bare:?}{}",
                self.advice(bare)
            )),
        }
    }

    /// Refuses an expression that speaks of such a one.
    pub(crate) fn check_all(&self, expression: &Expression) -> Result<(), String> {
        expression
            .metrics()
            .into_iter()
            .try_for_each(|name| self.check(name))
    }

    fn has(&self, name: &str) -> bool {
        let of_flow = |flow: &String| {
            let rest = name
                .strip_prefix(flow.as_str())
                .and_then(|rest| rest.strip_prefix('_'));
            rest.is_some_and(|rest| OF_FLOWS.contains(&rest))
        };
        self.own.contains(name) || OF_FLOWS.contains(&name) || self.flows.iter().any(of_flow)
    }

    /// The nearest name, or what there is.
    fn advice(&self, name: &str) -> String {
        let all = || {
            OF_FLOWS
                .into_iter()
                .chain(self.own.iter().map(String::as_str))
        };
        let nearest = all().min_by_key(|known| metric::distance(known, name));
        match nearest.filter(|known| metric::distance(known, name) <= 3) {
            Some(nearest) => format!("; did you mean {nearest:?}?"),
            None => format!(
                " (there are, alone or behind a flow's name and '_': {})",
                all().collect::<Vec<_>>().join(", ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_bare_and_behind_a_flow() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let known = Known {
            own: set(&["dvd_s"]),
            flows: set(&["get", "a_b"]),
        };
        for name in [
            "goodput_bps",
            "get_goodput_bps",
            "a_b_retransmits",
            "dvd_s",
            "paper.dvd_s",
        ] {
            assert_eq!(known.check(name), Ok(()), "{name}");
        }
        let error = known.check("godput_bps").unwrap_err();
        assert!(error.contains("did you mean \"goodput_bps\"?"), "{error}");
        assert!(known.check("put_goodput_bps").is_err());
        assert!(known.check("get_dvd_s").is_err());
        assert!(known.check("speed").unwrap_err().contains("first_byte_s, "));
    }
}
