// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of `[[measure]]`: a name that ends in its unit, a flow whose connections can be
//! identified, and a level that has a meaning.

use crate::{
    measure::{Flows, figures::MeasureContext},
    network::Topology,
    scenario::{
        MeasureSpec, Scenario,
        config_error::{CheckResult, check_each, ensure, list_names, locate_error},
        measure::{Level, Stat, TimeSeriesMetric, level},
    },
};
use longhaul_report::unit::Unit;
use longhaul_units::{BitRate, Time};
use toml::Value;

/// Refuses a measure of `scenario` that cannot be computed.
pub(crate) fn check(scenario: &Scenario) -> CheckResult {
    let topology = &Topology::of(scenario);
    let flows = Flows::of(scenario, topology);
    let context = MeasureContext {
        scenario,
        topology,
        flows,
    };
    locate_error(
        "measure",
        check_each(&scenario.measure, |spec| spec.check(&context)),
    )
}

impl MeasureSpec {
    fn check(&self, context: &MeasureContext<'_>) -> CheckResult {
        locate_error("name", self.check_name())?;
        self.check_times()?;
        if let Some(wanted) = &self.flow {
            locate_error(
                "flow",
                check_named_flow(context.scenario, &context.flows, wanted, self.metric),
            )?;
        }
        self.check_level(context)
    }

    fn check_name(&self) -> CheckResult {
        let name = &self.name;
        let clean = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let good = name.chars().all(clean) && name.starts_with(|c: char| c.is_ascii_alphabetic());
        ensure(good, || {
            format!("{name:?}: a metric's name is letters, digits and '_'")
        })?;
        let unit = self.unit();
        ensure(Unit::split(name).1 == unit, || {
            format!(
                "{name:?} must end in {}, the unit of what it measures",
                unit.suffix().unwrap_or("no unit")
            )
        })
    }

    fn unit(&self) -> Unit {
        match self.stat {
            Stat::SettlingTime => Unit::Seconds,
            _ => Unit::split(self.metric.name()).1,
        }
    }

    fn check_times(&self) -> CheckResult {
        let is_later = self.to.is_none_or(|to| to > self.from);
        locate_error("to", ensure(is_later, || "to must be later than from"))?;
        let wide_enough = ensure(
            self.bin >= Time::from_millis(100),
            || "bin must be at least 100ms, because there are ten samples a second",
        );
        locate_error("bin", wide_enough)
    }

    fn check_level(&self, context: &MeasureContext<'_>) -> CheckResult {
        let level = self.target.as_ref().map(|value| level(value, self.metric));
        match (self.stat, level) {
            (Stat::SettlingTime, None) => locate_error(
                "stat",
                Err("settling_time needs target, such as \"90 %\" of the capacity"),
            ),
            (Stat::SettlingTime, Some(None)) => locate_error("target", Err(self.level_problem())),
            (Stat::SettlingTime, Some(Some(Level::Value(_)))) => Ok(()),
            (Stat::SettlingTime, Some(Some(Level::Share(_)))) => self.check_share(context),
            (_, Some(_)) => {
                locate_error("target", Err("target is a key of stat = \"settling_time\""))
            }
            (_, None) => Ok(()),
        }
    }

    /// Explains why `target` is not a level.
    fn level_problem(&self) -> String {
        const EXPECTED: &str =
            "give a share such as \"90 %\", or a value with the unit of the measure";
        let text = self.target.as_ref().and_then(Value::as_str);
        match text.map(str::parse::<BitRate>) {
            Some(Err(error)) if self.metric == TimeSeriesMetric::GoodputBps => {
                format!("{error}; {EXPECTED}")
            }
            _ => format!("{}: {EXPECTED}", text.unwrap_or("this")),
        }
    }

    /// Checks a level that is a share: it needs a capacity that does not change.
    fn check_share(&self, context: &MeasureContext<'_>) -> CheckResult {
        let of_rate = ensure(self.metric == TimeSeriesMetric::GoodputBps, || {
            format!("{} has no capacity", self.metric.name())
        });
        locate_error("metric", of_rate)?;
        if self.flow_numbers(context).is_empty() {
            return Ok(());
        }
        let steady = ensure(
            !has_rate_change(context.scenario),
            || "a link changes its rate: give target as a rate",
        );
        locate_error("target", steady)?;
        let limited = ensure(
            self.capacity(context).is_some(),
            || "no link on the path has a rate: give target as a rate",
        );
        locate_error("target", limited)
    }
}

/// Checks that the flow `wanted` exists, and that ports distinguish its connections from those of all other flows.
pub(crate) fn check_named_flow(
    scenario: &Scenario,
    flows: &Flows<'_>,
    wanted: &String,
    metric: TimeSeriesMetric,
) -> CheckResult {
    let transfers: Vec<&str> = scenario
        .flows
        .iter()
        .filter(|flow| flow.transfers())
        .map(|flow| flow.name.as_str())
        .collect();
    ensure(transfers.contains(&wanted.as_str()), || {
        format!(
            "no flow that transfers data is called {wanted:?} ({})",
            list_names(&transfers)
        )
    })?;
    let endpoint = |number| {
        if metric.is_sampled_at_sender() {
            flows.sender(number)
        } else {
            flows.receiver(number)
        }
    };
    let all = &flows.all;
    let Some(number) = all.iter().position(|flow| flow.name == *wanted) else {
        return Ok(());
    };
    let mut others = (0..all.len()).filter(|other| *other != number && all[*other].transfers());
    let ambiguous = others.find(|other| endpoint(number).is_ambiguous_with(&endpoint(*other)));
    let problem = ambiguous.map(|other| {
        let other = &all[other].name;
        format!("the connections of {wanted:?} and {other:?} can't be told apart by their ports")
    });
    problem.map_or(Ok(()), |problem| Err(problem.into()))
}

/// Returns whether the schedule of some link changes its rate.
fn has_rate_change(scenario: &Scenario) -> bool {
    let schedules = scenario
        .links
        .iter()
        .filter_map(|link| link.options.get("at"));
    schedules
        .map(ToString::to_string)
        .any(|text| text.contains("rate"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::figures::measured_metrics;
    use crate::measure::time_series::tests::{SCENARIO, two_flows};

    fn scenario(measure: &str) -> Scenario {
        toml::from_str(&format!("{SCENARIO}[[measure]]\n{measure}")).unwrap()
    }

    /// Returns the measure of a run in which flow one receives 4 MB/s and flow two 1 MB/s, or the
    /// refusal.
    fn measured(measure: &str) -> Result<Option<f64>, String> {
        let scenario = scenario(measure);
        check(&scenario).map_err(|error| error.to_string())?;
        let recording = two_flows(3_000_000, 1_000_000);
        let metrics = measured_metrics(&scenario, &Topology::of(&scenario), &recording);
        Ok(metrics
            .first()
            .map(|(_, value)| (value * 1e4).round() / 1e4))
    }

    #[test]
    fn computes_measures_over_a_part_of_the_run() {
        let mean = "name = 'late_bps'\nmetric = 'goodput_bps'\nfrom = '4s'\nto = '8s'\n";
        assert_eq!(measured(mean), Ok(Some(40e6)));
        assert_eq!(measured(&format!("{mean}flow = 'two'")), Ok(Some(8e6)));
        let share = "name = 'x_s'\nmetric = 'goodput_bps'\nflow = 'one'\nstat = 'settling_time'\nfrom = '1s'\n";
        assert_eq!(measured(&format!("{share}target = '70 %'")), Ok(Some(1.0)));
        assert_eq!(measured(&format!("{share}target = '90 %'")), Ok(Some(9.0)));
        assert_eq!(
            measured("name = 'j_ratio'\nmetric = 'jain_ratio'\nflow = 'one'\nfrom = '1s'"),
            Ok(Some(0.8))
        );
        let beyond = "name = 'late_bps'\nmetric = 'goodput_bps'\nfrom = '20s'\n";
        assert_eq!(measured(beyond), Ok(None));
    }

    #[test]
    fn refuses_measures_that_cannot_be_computed() {
        let problem = |measure: &str| measured(measure).unwrap_err();
        assert!(problem("name = 'x_s'\nmetric = 'goodput_bps'").contains("must end in _bps"));
        let resent = "name = 'x_s'\nmetric = 'retransmits_per_s'";
        assert!(problem(resent).contains("must end in _per_s"));
        assert!(problem("name = 'x y_bps'\nmetric = 'goodput_bps'").contains("letters"));
        assert!(
            problem("name = 'x_bps'\nmetric = 'goodput_bps'\nflow = 'three'").contains("one, two")
        );
        assert!(
            problem("name = 'x_bps'\nmetric = 'goodput_bps'\nfrom = '2s'\nto = '1s'")
                .contains("later")
        );
        assert!(problem("name = 'x_bps'\nmetric = 'goodput_bps'\nbin = '1ms'").contains("100ms"));
        assert!(
            problem("name = 'x_s'\nmetric = 'goodput_bps'\nstat = 'settling_time'")
                .contains("target")
        );
        assert!(
            problem(
                "name = 'x_s'\nmetric = 'goodput_bps'\nstat = 'settling_time'\ntarget = '9 stone'"
            )
            .contains("share such as")
        );
        assert!(
            problem("name = 'x_s'\nmetric = 'srtt_us'\nstat = 'settling_time'\ntarget = '90 %'")
                .contains("no capacity")
        );
        let switch =
            "name = 'x_s'\nmetric = 'goodput_bps'\nstat = 'settling_time'\ntarget = '90 %'";
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
                .contains("changes its rate")
        );
        assert!(changing("at = ['30s: delay 10ms']").is_ok());
    }
}
