// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of all metrics that a scenario's runs can give, cell by cell. A typo in a check or a table
//! is found before the first run, not after the last.

use crate::{
    experiment::ExperimentPlan,
    measure::captures,
    network::{Topology, probe},
    scenario::{Flow, Program, Scenario, expression::Expression},
};
use longhaul_report::registry::{self, Producer, metrics_of};
use std::collections::BTreeSet;
use strsim::levenshtein;

/// Metrics that the runs of one scenario can give.
#[derive(Debug)]
pub(crate) struct AvailableMetrics {
    /// Name and metrics of each cell, in the order of the cells.
    cells: Vec<(String, BTreeSet<String>)>,
    /// Metrics of all cells together.
    all: BTreeSet<String>,
}

impl AvailableMetrics {
    pub(crate) fn of(experiment: &ExperimentPlan) -> Self {
        let cells = experiment.cells.iter();
        let cells: Vec<_> = cells
            .map(|cell| (cell.name(), scenario_metrics(&cell.scenario)))
            .collect();
        Self {
            all: cells.iter().flat_map(|(_, own)| own).cloned().collect(),
            cells,
        }
    }

    /// Refuses a metric that no run gives. The prefix `reference.` stands for the paper's figure of a
    /// metric.
    pub(crate) fn check(&self, name: &str) -> Result<(), String> {
        let bare = name.strip_prefix("reference.").unwrap_or(name);
        if self.all.contains(bare) {
            Ok(())
        } else {
            Err(format!(
                "no run gives a metric {bare:?}{}",
                self.suggestion(bare)
            ))
        }
    }

    /// Refuses a metric that no run of the cell at `index` gives.
    pub(crate) fn check_in(&self, index: usize, name: &str) -> Result<(), String> {
        self.check(name)?;
        let Some((cell, own)) = self.cells.get(index) else {
            return Ok(());
        };
        if name.starts_with("reference.") || own.contains(name) {
            Ok(())
        } else {
            Err(format!(
                "no run of the cell {cell:?} gives a metric {name:?}"
            ))
        }
    }

    /// Refuses an expression with a metric that no run gives.
    pub(crate) fn check_all(&self, expression: &Expression) -> Result<(), String> {
        expression
            .metrics()
            .into_iter()
            .try_for_each(|name| self.check(name))
    }

    /// Suggests the nearest name, or lists all names.
    fn suggestion(&self, name: &str) -> String {
        let distance = |candidate: &&String| levenshtein(candidate, name);
        let nearest = self.all.iter().min_by_key(distance);
        match nearest.filter(|candidate| distance(candidate) <= 3) {
            Some(nearest) => format!("; did you mean {nearest:?}?"),
            None => {
                let all: Vec<&str> = self.all.iter().map(String::as_str).collect();
                format!(" (there are: {})", all.join(", "))
            }
        }
    }
}

/// Metrics that a run of `scenario` can give. Metrics that depend on chance, such as losses or a
/// steady phase, are included.
fn scenario_metrics(scenario: &Scenario) -> BTreeSet<String> {
    let flows: Vec<&Flow> = scenario.flows.iter().filter(|flow| flow.enabled).collect();
    let mut names = transfer_metrics(scenario, &flows);
    let transfers = flows.iter().filter(|flow| flow.transfers()).count();
    let topology = Topology::of(scenario);
    let captured = captures::captured_flow_names(scenario);
    for flow in &flows {
        let alone = if flow.transfers() {
            transfers == 1
        } else {
            flows.len() == 1
        };
        let mut figures = flow_metrics(scenario, &topology, flow);
        if captured.contains(&flow.name) {
            figures.extend(metrics_of(Producer::Capture));
        }
        let own_name = |figure: &str| registry::metric_name(&flow.name, figure, alone);
        names.extend(figures.into_iter().map(own_name));
        names.extend(flow.figures.iter().map(|figure| own_name(figure)));
    }
    add_derived(scenario, &mut names);
    names
}

/// Metrics of a run of `scenario` without its own measures and derived metrics.
pub(crate) fn metrics_of_programs(scenario: &Scenario) -> BTreeSet<String> {
    let mut bare = scenario.clone();
    bare.measure.clear();
    bare.derived.clear();
    scenario_metrics(&bare)
}

/// Metrics of all transfers together, and the goodput of each.
fn transfer_metrics(scenario: &Scenario, flows: &[&Flow]) -> BTreeSet<String> {
    let transfers: Vec<&&Flow> = flows.iter().filter(|flow| flow.transfers()).collect();
    let mut names = BTreeSet::new();
    if transfers.is_empty() {
        return names;
    }
    names.extend(metrics_of(Producer::Transfers).map(str::to_owned));
    if scenario.simulated {
        names.extend(metrics_of(Producer::Simulation).map(str::to_owned));
    }
    names.extend(scenario.measure.iter().map(|spec| spec.name.clone()));
    if transfers.len() > 1 {
        let each = transfers.iter();
        names.extend(each.map(|flow| registry::metric_name(&flow.name, registry::GOODPUT, false)));
    }
    let one_path = transfers
        .windows(2)
        .all(|two| (&two[0].from, &two[0].to) == (&two[1].from, &two[1].to));
    let connections: u32 = transfers.iter().map(|flow| flow.streams).sum();
    if !one_path || connections < 2 {
        names.remove(registry::JAIN);
        names.remove(registry::SLOWEST);
    }
    names
}

/// Metrics that only the flow's program reports.
fn flow_metrics(scenario: &Scenario, topology: &Topology, flow: &Flow) -> Vec<&'static str> {
    match flow.program {
        Program::Curl | Program::Ftp => metrics_of(Producer::File).collect(),
        Program::Probe => metrics_of(Producer::OneWayDelayTest)
            .chain(probe::metric_names(scenario, topology, flow))
            .collect(),
        Program::Command => {
            let server = metrics_of(Producer::Server).filter(|_| !flow.server.is_empty());
            metrics_of(Producer::Command).chain(server).collect()
        }
        Program::Iperf3 | Program::Udt => Vec::new(),
    }
}

/// Adds the scenario's derived metrics whose parts are all available by then.
fn add_derived(scenario: &Scenario, names: &mut BTreeSet<String>) {
    for (name, text) in &scenario.derived {
        let parts = Expression::parse(text);
        let all_present =
            |all: &Expression| all.metrics().into_iter().all(|part| names.contains(part));
        if parts.is_ok_and(|all| all_present(&all)) {
            names.insert(name.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_report::unit::Unit;

    const LINK: &str = "title = 't'\nquestion = 'q'\n\
        derived = { dvd_s = '37.6e9 / goodput_bps', half_s = 'dvd_s / 2', late_s = 'later_s', later_s = 'dvd_s' }\n\
        [[links]]\nname = 'wan'\nendpoints = ['a', 'b']\nrate = '1gbit'\n";

    fn flow(name: &str, program: &str, keys: &str) -> String {
        format!("[[flows]]\nname = '{name}'\nprogram = '{program}'\nfrom = 'a'\nto = 'b'\n{keys}\n")
    }

    fn known(links: &str, flows: &[String]) -> AvailableMetrics {
        let text = [LINK, links, &flows.concat()].concat();
        let own = scenario_metrics(&toml::from_str(&text).unwrap());
        AvailableMetrics {
            all: own.clone(),
            cells: vec![("c".to_owned(), own)],
        }
    }

    #[test]
    fn metrics_have_the_flow_name_as_prefix_if_several_flows_transfer() {
        let one = known("", &[flow("get", "curl", "")]);
        for name in [
            "goodput_bps",
            "download_s",
            "retransmits",
            "dvd_s",
            "half_s",
        ] {
            assert_eq!(one.check(name), Ok(()), "{name}");
        }
        for name in [
            "get_goodput_bps",
            "get_download_s",
            "jain_ratio",
            "received",
        ] {
            assert!(one.check(name).is_err(), "{name}");
        }
        let two = known("", &[flow("a_b", "curl", ""), flow("put", "iperf3", "")]);
        for name in ["a_b_first_byte_s", "put_goodput_bps", "jain_ratio"] {
            assert_eq!(two.check(name), Ok(()), "{name}");
        }
        for name in ["first_byte_s", "put_first_byte_s", "put_retransmits"] {
            assert!(two.check(name).is_err(), "{name}");
        }
    }

    /// Regression: `upload_s`, `data_packets` and `acks` were accepted, so a check of them never
    /// held.
    #[test]
    fn refuses_metrics_that_no_flow_produces() {
        let captured = known("capture = true\n", &[flow("get", "curl", "")]);
        assert_eq!(captured.check("acked_peak_bps"), Ok(()));
        for name in ["upload_s", "data_packets", "acks"] {
            assert!(captured.check(name).is_err(), "{name}");
        }
        let uncaptured = known("", &[flow("get", "curl", "")]);
        assert!(uncaptured.check("acked_peak_bps").is_err());
        let udt = known("capture = true\n", &[flow("get", "udt", "")]);
        assert!(udt.check("acked_peak_bps").is_err());
        let off = known("", &[flow("get", "curl", "enabled = false")]);
        assert!(off.check("goodput_bps").is_err());
    }

    #[test]
    fn probe_metrics_depend_on_its_link() {
        let alone = known("loss = 0.01\n", &[flow("p", "probe", "count = 9")]);
        for name in ["received", "delay_error_p99_us", "losses_p", "gaps_p"] {
            assert_eq!(alone.check(name), Ok(()), "{name}");
        }
        for name in [
            "jitter_p",
            "bursts_p",
            "drain_bps",
            "goodput_bps",
            "p_received",
        ] {
            assert!(alone.check(name).is_err(), "{name}");
        }
        let beside = known(
            "",
            &[flow("p", "probe", "count = 9"), flow("get", "iperf3", "")],
        );
        assert_eq!(beside.check("p_delay_early_us"), Ok(()));
        assert!(beside.check("p_delay_error_p99_us").is_err());
        assert!(beside.check("p_losses_p").is_err());
        let crowd = known("", &[flow("p", "probe", "count = 16\ngso_segments = 8")]);
        assert_eq!(crowd.check("drain_error_ratio"), Ok(()));
    }

    /// A figure that is not registered is only in the probe's record.
    #[test]
    fn every_probe_metric_is_registered() {
        let cases = [
            ("loss = 0.01\n", "count = 9"),
            ("loss = 'gilbert:p=1%,r=30%'\n", "count = 9"),
            ("delay = '5ms'\njitter = '1ms,reorder'\n", "count = 9"),
            ("", "count = 16\ngso_segments = 8"),
        ];
        let probe_metrics = cases.map(|(link, keys)| known(link, &[flow("p", "probe", keys)]).all);
        let registered =
            metrics_of(Producer::OneWayDelayTest).chain(metrics_of(Producer::ConformanceTest));
        let registered: BTreeSet<String> = registered.map(str::to_owned).collect();
        assert_eq!(
            probe_metrics.into_iter().flatten().collect::<BTreeSet<_>>(),
            registered
        );
    }

    #[test]
    fn server_cpu_time_needs_a_server() {
        let served = known(
            "",
            &[flow("c", "command", "server = ['x']\nserver_port = 1")],
        );
        let alone = known("", &[flow("c", "command", "")]);
        for name in ["cpu_s", "peak_memory_bytes"] {
            assert_eq!(served.check(name), Ok(()), "{name}");
            assert_eq!(alone.check(name), Ok(()), "{name}");
        }
        assert_eq!(served.check("server_cpu_s"), Ok(()));
        assert!(alone.check("server_cpu_s").is_err());
    }

    /// The documentation explains every registered metric, and names no other.
    #[test]
    fn documentation_lists_the_registered_metrics() {
        const LAB: &str = include_str!("../../../../docs/lab.md");
        const LINK: &str = include_str!("../../../../docs/link.md");
        let words = |text: &'static str| text.split('`').skip(1).step_by(2);
        let listed: BTreeSet<&str> = words(LAB).chain(words(LINK)).collect();
        let missing = registry::METRICS
            .iter()
            .filter(|entry| !listed.contains(entry.name));
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&registry::Entry>::new());
        let from = LAB.find("Each run has the metrics").unwrap();
        let to = LAB.find("### Congestion controls").unwrap();
        let named = |word: &&str| word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let unknown = words(&LAB[from..to])
            .filter(named)
            .filter(|word| Unit::split(word).1 != Unit::Count)
            .filter(|word| registry::find(word).is_none());
        assert_eq!(unknown.collect::<Vec<_>>(), Vec::<&str>::new());
    }

    #[test]
    fn derived_metric_needs_all_its_parts() {
        let one = known("", &[flow("get", "curl", "")]);
        assert_eq!(one.check("half_s"), Ok(()));
        // It is defined before its part.
        assert!(one.check("late_s").is_err());
        let none = known("", &[flow("p", "probe", "count = 9")]);
        assert!(none.check("dvd_s").is_err());
    }

    #[test]
    fn suggests_a_name_for_an_unknown_metric() {
        let known = known("", &[flow("get", "curl", "")]);
        assert_eq!(known.check("reference.dvd_s"), Ok(()));
        let error = known.check("godput_bps").unwrap_err();
        assert!(error.contains("did you mean \"goodput_bps\"?"), "{error}");
        let error = known.check("speed").unwrap_err();
        assert!(error.contains("first_byte_s, "), "{error}");
    }

    #[test]
    fn refuses_a_metric_of_another_cell() {
        let mut known = known("", &[flow("get", "curl", "")]);
        known
            .cells
            .push(("bare".to_owned(), BTreeSet::from(["received".to_owned()])));
        assert_eq!(known.check_in(0, "goodput_bps"), Ok(()));
        assert_eq!(known.check_in(1, "reference.goodput_bps"), Ok(()));
        let error = known.check_in(1, "goodput_bps").unwrap_err();
        assert!(error.contains("of the cell \"bare\""), "{error}");
    }
}
