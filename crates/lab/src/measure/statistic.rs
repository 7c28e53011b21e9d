// SPDX-License-Identifier: MIT OR Apache-2.0
//! Evaluation of `[[measure]]`: a statistic over the time series of a run, such as the rate after a
//! switch or the settling time. It becomes a metric like every other.

use super::{
    Flows, Recording,
    time_series::{self, Bins},
};
use crate::{
    network::{Topology, link},
    scenario::{
        Flow, LinkKind, MeasureSpec, Scenario,
        measure::{Level, Stat, level},
    },
};
use longhaul_results::result::Metrics;
use longhaul_stats::sample;
use longhaul_units::Time;

/// Computes every measure of a run whose part of the run has at least one whole bin.
pub(crate) fn of(scenario: &Scenario, topology: &Topology, recording: &Recording) -> Metrics {
    let flows = Flows::of(scenario, topology);
    let context = MeasureContext {
        scenario,
        topology,
        flows,
    };
    let value = |spec: &MeasureSpec| {
        let value = spec.value(&context, recording)?;
        Some((spec.name.clone(), value))
    };
    scenario.measure.iter().filter_map(value).collect()
}

/// Scenario of a run, with its flows identified.
pub(crate) struct MeasureContext<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) topology: &'a Topology,
    pub(crate) flows: Flows<'a>,
}

impl MeasureSpec {
    fn value(&self, context: &MeasureContext<'_>, recording: &Recording) -> Option<f64> {
        let flow_numbers = self.flow_numbers(context);
        let bins = self.bins(recording.end_s());
        let all = time_series::values(self.metric, &context.flows, &flow_numbers, recording, bins);
        let values = || all.iter().flatten().copied();
        let quantile = |share| sample::quantile(&sample::sorted(values()), share);
        match self.stat {
            Stat::SettlingTime => {
                let level = self.level(context)?;
                settling_time(&all, level, bins.width_s, self.hold.map(Time::as_secs_f64))
            }
            Stat::Mean => sample::mean(values()),
            Stat::Median => sample::median(&sample::sorted(values())),
            Stat::Min => quantile(0.0),
            Stat::Max => quantile(1.0),
            Stat::P05 => quantile(0.05),
            Stat::P95 => quantile(0.95),
        }
    }

    fn bins(&self, end_s: f64) -> Bins {
        let end = self.to.map_or(end_s, |to| to.as_secs_f64().min(end_s));
        Bins::between(self.from.as_secs_f64(), end, self.bin.as_secs_f64())
    }

    pub(crate) fn flow_numbers(&self, context: &MeasureContext<'_>) -> Vec<usize> {
        context.flows.select_transfers(self.flow.as_deref())
    }

    /// Capacity of the slowest link on the path of the first flow, in bits a second.
    pub(crate) fn capacity(&self, context: &MeasureContext<'_>) -> Option<f64> {
        let flow = context.flows.all[*self.flow_numbers(context).first()?];
        slowest_link_rate(context.scenario, context.topology, flow)
    }

    fn level(&self, context: &MeasureContext<'_>) -> Option<f64> {
        match level(self.target.as_ref()?, self.metric)? {
            Level::Share(share) => Some(share * self.capacity(context)?),
            Level::Value(value) => Some(value),
        }
    }
}

/// Rate of the slowest link on the flow's path, in bits a second.
fn slowest_link_rate(scenario: &Scenario, topology: &Topology, flow: &Flow) -> Option<f64> {
    let path = topology.path(&flow.from, &flow.to)?;
    let rate = |pair: &[String]| {
        let index = topology.between(&pair[0], &pair[1])?;
        let link = &scenario.links[index];
        if link.kind == LinkKind::Veth {
            return None;
        }
        let [link_config, _] = link::configs_from(link, &pair[0]).ok()?;
        link_config.rate.mean().map(|rate| rate.bits() as f64)
    };
    path.windows(2).filter_map(rate).min_by(f64::total_cmp)
}

/// Settling time: the end of the first bin from which on all bins, for `hold_s` seconds, reach the
/// level. The length of all bins if there is none; `None` without bins.
fn settling_time(
    values: &[Option<f64>],
    level: f64,
    width_s: f64,
    hold_s: Option<f64>,
) -> Option<f64> {
    let reached = |value: &Option<f64>| value.is_some_and(|value| value >= level);
    let bins_to_hold = hold_s.map(|hold| ((hold / width_s).ceil() as usize).max(1));
    let stays_reached = |n: &usize| {
        let rest = &values[*n..];
        // A hold that the end of the run cuts short counts as met.
        rest[..bins_to_hold.unwrap_or(rest.len()).min(rest.len())]
            .iter()
            .all(reached)
    };
    let bins = (0..values.len())
        .find(stays_reached)
        .map_or(values.len(), |n| n + 1);
    (!values.is_empty()).then_some(bins as f64 * width_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settling_time_requires_the_level_to_hold() {
        let values = [1.0, 9.0, 2.0, 9.0, 9.0, 9.0, 1.0].map(Some);
        assert_eq!(settling_time(&values, 9.0, 0.5, Some(0.5)), Some(1.0));
        assert_eq!(settling_time(&values, 9.0, 0.5, Some(1.0)), Some(2.0));
        assert_eq!(settling_time(&values[..6], 9.0, 0.5, None), Some(2.0));
        assert_eq!(
            settling_time(&values, 9.0, 0.5, None),
            Some(3.5),
            "never: the whole length"
        );
        assert_eq!(settling_time(&[None, Some(9.0)], 9.0, 1.0, None), Some(2.0));
        assert_eq!(settling_time(&[], 9.0, 1.0, None), None);
    }
}
