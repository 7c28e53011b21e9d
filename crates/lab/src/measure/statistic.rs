// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[measure]]`: a figure of how a run went over time, such as the rate after a switch or the time until it was
//! back. It becomes a metric like every other.

use super::{
    Flows, Recording,
    course::{self, Bins},
};
use crate::{
    network::{Topology, link},
    scenario::{
        Flow, LinkKind, MeasurePlan, Scenario,
        fault::{Checked, at, each, ensure},
        measure::{Level, Quantity, Stat, level},
    },
};
use longhaul_report::metric::{Metric, Unit};
use longhaul_results::{result::Metrics, summary};
use longhaul_units::{BitRate, Time};
use toml::Value;

/// Every measure of a run, where its part of the run has a whole bin.
pub(crate) fn of(scenario: &Scenario, topology: &Topology, recording: &Recording) -> Metrics {
    let flows = Flows::of(scenario, topology);
    let place = Place {
        scenario,
        topology,
        flows,
    };
    let value = |plan: &MeasurePlan| {
        let value = plan.value(&place, recording)?;
        Some((plan.name.clone(), value))
    };
    scenario.measure.iter().filter_map(value).collect()
}

/// What a measure is taken of.
struct Place<'a> {
    scenario: &'a Scenario,
    topology: &'a Topology,
    flows: Flows<'a>,
}

/// Refuses a measure of `scenario` that can't be taken.
pub(crate) fn check(scenario: &Scenario) -> Checked {
    let topology = &Topology::of(scenario);
    let flows = Flows::of(scenario, topology);
    let place = Place {
        scenario,
        topology,
        flows,
    };
    at(
        "measure",
        each(&scenario.measure, |plan| plan.check(&place)),
    )
}

impl MeasurePlan {
    fn value(&self, place: &Place<'_>, recording: &Recording) -> Option<f64> {
        let chosen = self.chosen(place);
        let bins = self.bins(recording.end_s());
        let all = course::values(self.of, &place.flows, &chosen, recording, bins);
        let values: Vec<f64> = all.iter().flatten().copied().collect();
        let capacity = || self.capacity(place);
        match self.stat {
            Stat::TimeTo => {
                let level = self.level(capacity)?;
                time_to(&all, level, bins.width_s, self.hold.map(Time::as_secs_f64))
            }
            Stat::ShareOfCapacity => Some(mean(&values)? / capacity()?),
            Stat::Mean => mean(&values),
            Stat::Median => summary::quantile(&values, 0.5),
            Stat::Min => summary::quantile(&values, 0.0),
            Stat::Max => summary::quantile(&values, 1.0),
            Stat::P05 => summary::quantile(&values, 0.05),
            Stat::P95 => summary::quantile(&values, 0.95),
        }
    }

    fn bins(&self, end_s: f64) -> Bins {
        let end = self.to.map_or(end_s, |to| to.as_secs_f64().min(end_s));
        Bins::between(self.from.as_secs_f64(), end, self.bin.as_secs_f64())
    }

    fn chosen(&self, place: &Place<'_>) -> Vec<usize> {
        place.flows.chosen(self.flow.as_deref())
    }

    /// Bits a second.
    fn capacity(&self, place: &Place<'_>) -> Option<f64> {
        let given = self.capacity.map(|rate| rate.bits() as f64);
        let first = || {
            let flow = place.flows.all[*self.chosen(place).first()?];
            slowest(place.scenario, place.topology, flow)
        };
        given.or_else(first)
    }

    fn level(&self, capacity: impl Fn() -> Option<f64>) -> Option<f64> {
        match level(self.reaches.as_ref()?, self.of)? {
            Level::Share(share) => Some(share * capacity()?),
            Level::Value(value) => Some(value),
        }
    }

    fn check(&self, place: &Place<'_>) -> Checked {
        at("name", self.check_name())?;
        self.check_times()?;
        if let Some(wanted) = &self.flow {
            at(
                "flow",
                named_flow(place.scenario, &place.flows, wanted, self.of),
            )?;
        }
        self.check_level()?;
        self.check_capacity(place)
    }

    fn check_name(&self) -> Checked {
        let name = &self.name;
        let clean = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let good = name.chars().all(clean) && name.starts_with(|c: char| c.is_ascii_alphabetic());
        ensure(good, || {
            format!("{name:?}: a metric's name is letters, digits and '_'")
        })?;
        let unit = self.unit();
        ensure(Metric::of(name).unit == unit, || {
            format!(
                "{name:?} must end in {}, the unit of what it measures",
                ending(unit)
            )
        })
    }

    fn unit(&self) -> Unit {
        match self.stat {
            Stat::TimeTo => Unit::Seconds,
            Stat::ShareOfCapacity => Unit::Ratio,
            _ => Metric::of(self.of.name()).unit,
        }
    }

    fn check_times(&self) -> Checked {
        let onward = self.to.is_none_or(|to| to > self.from);
        at("to", ensure(onward, || "to must be later than from"))?;
        let wide = ensure(
            self.bin >= Time::from_millis(100),
            || "bin: there are ten samples a second, so at least 100ms",
        );
        at("bin", wide)
    }

    fn check_level(&self) -> Checked {
        let level = self.reaches.as_ref().map(|value| level(value, self.of));
        match (self.stat, level) {
            (Stat::TimeTo, None) => at(
                "stat",
                Err("time_to needs reaches, such as \"90 %\" of the capacity"),
            ),
            (Stat::TimeTo, Some(None)) => at("reaches", Err(self.unread_level())),
            (Stat::TimeTo, Some(Some(Level::Value(_)))) => Ok(()),
            (Stat::TimeTo, Some(Some(Level::Share(_)))) | (Stat::ShareOfCapacity, None) => {
                at("of", self.check_share())
            }
            (_, Some(_)) => at("reaches", Err("reaches is a key of stat = \"time_to\"")),
            (_, None) => Ok(()),
        }
    }

    /// Why what should be reached is no level.
    fn unread_level(&self) -> String {
        const WANT: &str =
            "want a share such as \"90 %\", or a quantity in the unit of what is measured";
        let text = self.reaches.as_ref().and_then(Value::as_str);
        match text.map(str::parse::<BitRate>) {
            Some(Err(error)) if self.of == Quantity::GoodputBps => format!("{error}; {WANT}"),
            _ => format!("{}: {WANT}", text.unwrap_or("this")),
        }
    }

    fn check_share(&self) -> Checked {
        ensure(self.of == Quantity::GoodputBps, || {
            format!("{} has no capacity", self.of.name())
        })
    }

    fn check_capacity(&self, place: &Place<'_>) -> Checked {
        let reaches = self.reaches.as_ref();
        let share = reaches.and_then(|value| level(value, self.of));
        let needed = self.stat == Stat::ShareOfCapacity || matches!(share, Some(Level::Share(_)));
        if !needed || self.capacity.is_some() || self.chosen(place).is_empty() {
            return Ok(());
        }
        ensure(
            !changes(place.scenario),
            || "a link changes its rate; say which capacity is meant",
        )?;
        ensure(
            self.capacity(place).is_some(),
            || "no link on the way has a rate; say the capacity",
        )
    }
}

/// The flow called `wanted` is one whose connections can be told from all others.
pub(crate) fn named_flow(
    scenario: &Scenario,
    flows: &Flows<'_>,
    wanted: &String,
    quantity: Quantity,
) -> Checked {
    let transfers: Vec<&str> = scenario
        .flows
        .iter()
        .filter(|flow| flow.program.transfers())
        .map(|flow| flow.name.as_str())
        .collect();
    ensure(transfers.contains(&wanted.as_str()), || {
        format!(
            "no flow that moves bytes is called {wanted:?} (there are: {})",
            transfers.join(", ")
        )
    })?;
    let end = |number| match quantity.of_senders() {
        true => flows.sending(number),
        false => flows.receiving(number),
    };
    let all = &flows.all;
    let Some(own) = all.iter().position(|flow| flow.name == *wanted) else {
        return Ok(());
    };
    let mut others =
        (0..all.len()).filter(|other| *other != own && all[*other].program.transfers());
    let mistaken = others.find(|other| end(own).is_mistaken_for(&end(*other)));
    let problem = mistaken.map(|other| {
        let other = &all[other].name;
        format!("the connections of {wanted:?} and {other:?} can't be told apart by their ports")
    });
    problem.map_or(Ok(()), |problem| Err(problem.into()))
}

/// The slowest link from where the flow's data leaves to where it arrives, bits a second.
fn slowest(scenario: &Scenario, topology: &Topology, flow: &Flow) -> Option<f64> {
    let path = topology.path(&flow.from, &flow.to)?;
    let rate = |pair: &[String]| {
        let index = topology.between(&pair[0], &pair[1])?;
        let (link, wire) = (&scenario.links[index], &topology.wires[index]);
        if link.kind == LinkKind::Veth {
            return None;
        }
        let [right, left] = link::shapes(link, wire).ok()?;
        let shape = if link.between[0] == pair[0] {
            right
        } else {
            left
        };
        shape.rate.mean().map(|rate| rate.bits() as f64)
    };
    path.windows(2).filter_map(rate).min_by(f64::total_cmp)
}

/// Whether a link has another rate later.
fn changes(scenario: &Scenario) -> bool {
    let schedules = scenario
        .links
        .iter()
        .filter_map(|link| link.options.get("at"));
    schedules
        .map(ToString::to_string)
        .any(|text| text.contains("rate"))
}

fn ending(unit: Unit) -> &'static str {
    match unit {
        Unit::BitsPerSecond => "_bps",
        Unit::PacketsPerSecond => "_pps",
        Unit::Seconds => "_s",
        Unit::Micros => "_us",
        Unit::Bytes => "_bytes",
        Unit::Ratio => "_ratio",
        Unit::Probability => "_p",
        Unit::Count => "no unit",
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// When the first bin ended from which on all, for `hold` seconds, are at the level; the length of all if
/// there is none. `None` of nothing.
fn time_to(values: &[Option<f64>], level: f64, width_s: f64, hold_s: Option<f64>) -> Option<f64> {
    let reached = |value: &Option<f64>| value.is_some_and(|value| value >= level);
    let held = hold_s.map(|hold| ((hold / width_s).ceil() as usize).max(1));
    let stays = |n: &usize| {
        let rest = &values[*n..];
        // A hold that the end cuts short counts as kept.
        rest[..held.unwrap_or(rest.len()).min(rest.len())]
            .iter()
            .all(reached)
    };
    let bins = (0..values.len())
        .find(stays)
        .map_or(values.len(), |n| n + 1);
    (!values.is_empty()).then_some(bins as f64 * width_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::course::tests::{SCENARIO, two_flows};

    fn scenario(measure: &str) -> Scenario {
        toml::from_str(&format!("{SCENARIO}[[measure]]\n{measure}")).unwrap()
    }

    /// The figure of a run in which flow one receives 4 MB/s and flow two 1 MB/s, or what is wrong.
    fn measured(measure: &str) -> Result<Option<f64>, String> {
        let scenario = scenario(measure);
        check(&scenario).map_err(|fault| fault.to_string())?;
        let recording = two_flows(3_000_000, 1_000_000);
        let metrics = of(&scenario, &Topology::of(&scenario), &recording);
        Ok(metrics
            .first()
            .map(|(_, value)| (value * 1e4).round() / 1e4))
    }

    #[test]
    fn a_part_of_a_run_is_a_metric() {
        let mean = "name = 'late_bps'\nof = 'goodput_bps'\nfrom = '4s'\nto = '8s'\n";
        assert_eq!(measured(mean), Ok(Some(40e6)));
        assert_eq!(measured(&format!("{mean}flow = 'two'")), Ok(Some(8e6)));
        let share = "name = 'x_ratio'\nof = 'goodput_bps'\nflow = 'one'\nstat = 'share_of_capacity'\nfrom = '1s'\n";
        assert_eq!(measured(share), Ok(Some(0.8)));
        assert_eq!(
            measured(&format!("{share}capacity = '64mbit'")),
            Ok(Some(0.5))
        );
        assert_eq!(
            measured("name = 'j_ratio'\nof = 'jain_ratio'\nflow = 'one'\nfrom = '1s'"),
            Ok(Some(0.8))
        );
        let beyond = "name = 'late_bps'\nof = 'goodput_bps'\nfrom = '20s'\n";
        assert_eq!(measured(beyond), Ok(None));
    }

    #[test]
    fn time_to_waits_until_it_stays() {
        let values = [1.0, 9.0, 2.0, 9.0, 9.0, 9.0, 1.0].map(Some);
        assert_eq!(time_to(&values, 9.0, 0.5, Some(0.5)), Some(1.0));
        assert_eq!(time_to(&values, 9.0, 0.5, Some(1.0)), Some(2.0));
        assert_eq!(time_to(&values[..6], 9.0, 0.5, None), Some(2.0));
        assert_eq!(
            time_to(&values, 9.0, 0.5, None),
            Some(3.5),
            "never: the whole length"
        );
        assert_eq!(time_to(&[None, Some(9.0)], 9.0, 1.0, None), Some(2.0));
        assert_eq!(time_to(&[], 9.0, 1.0, None), None);
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let problem = |measure: &str| measured(measure).unwrap_err();
        assert!(problem("name = 'x_s'\nof = 'goodput_bps'").contains("must end in _bps"));
        assert!(problem("name = 'x y_bps'\nof = 'goodput_bps'").contains("letters"));
        assert!(problem("name = 'x_bps'\nof = 'goodput_bps'\nflow = 'three'").contains("one, two"));
        assert!(
            problem("name = 'x_bps'\nof = 'goodput_bps'\nfrom = '2s'\nto = '1s'").contains("later")
        );
        assert!(problem("name = 'x_bps'\nof = 'goodput_bps'\nbin = '1ms'").contains("100ms"));
        assert!(problem("name = 'x_s'\nof = 'goodput_bps'\nstat = 'time_to'").contains("reaches"));
        assert!(
            problem("name = 'x_s'\nof = 'goodput_bps'\nstat = 'time_to'\nreaches = '9 stone'")
                .contains("share such as")
        );
        assert!(
            problem("name = 'x_ratio'\nof = 'srtt_us'\nstat = 'share_of_capacity'")
                .contains("no capacity")
        );
        let switch = "name = 'x_ratio'\nof = 'goodput_bps'\nstat = 'share_of_capacity'";
        let changing = |text: &str| {
            let mut scenario = scenario(switch);
            let at = toml::from_str::<toml::Table>(text).unwrap();
            scenario.links[0].options.extend(at);
            check(&scenario)
        };
        assert!(
            changing("at = ['30s: rate 10mbit']")
                .unwrap_err()
                .to_string()
                .contains("which capacity")
        );
        assert!(changing("at = ['30s: delay 10ms']").is_ok());
    }
}
