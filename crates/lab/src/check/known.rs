// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of all metrics that a scenario's runs can give, cell by cell. A slip of the pen in a check or a table
//! is found before the first run, not after the last.

use crate::{
    measure::taps,
    network::{Topology, probe},
    scenario::{Flow, Program, Scenario, expression::Expression},
    source::Book,
};
use longhaul_report::registry::{self, Producer, told_by};
use std::collections::BTreeSet;
use strsim::levenshtein;

/// The metrics of one scenario.
#[derive(Debug)]
pub(crate) struct Known {
    /// What each cell of the book gives, by its place.
    cells: Vec<(String, BTreeSet<String>)>,
    /// What any of them gives.
    all: BTreeSet<String>,
}

impl Known {
    pub(crate) fn of(book: &Book) -> Self {
        let cells = book.cells.iter();
        let cells: Vec<_> = cells
            .map(|cell| (cell.name(), produced(&cell.scenario)))
            .collect();
        Self {
            all: cells.iter().flat_map(|(_, own)| own).cloned().collect(),
            cells,
        }
    }

    /// Refuses a name that no run gives; `paper.` before it means the paper's figure of that.
    pub(crate) fn check(&self, name: &str) -> Result<(), String> {
        let bare = name.strip_prefix("paper.").unwrap_or(name);
        match self.all.contains(bare) {
            true => Ok(()),
            false => Err(format!(
                "no run gives a metric {bare:?}{}",
                self.advice(bare)
            )),
        }
    }

    /// Refuses a name that no run of the cell at `index` gives.
    pub(crate) fn check_in(&self, index: usize, name: &str) -> Result<(), String> {
        self.check(name)?;
        let Some((cell, own)) = self.cells.get(index) else {
            return Ok(());
        };
        match name.starts_with("paper.") || own.contains(name) {
            true => Ok(()),
            false => Err(format!(
                "no run of the cell {cell:?} gives a metric {name:?}"
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

    /// The nearest name, or what there is.
    fn advice(&self, name: &str) -> String {
        let far = |known: &&String| levenshtein(known, name);
        let nearest = self.all.iter().min_by_key(far);
        match nearest.filter(|known| far(known) <= 3) {
            Some(nearest) => format!("; did you mean {nearest:?}?"),
            None => {
                let all: Vec<&str> = self.all.iter().map(String::as_str).collect();
                format!(" (there are: {})", all.join(", "))
            }
        }
    }
}

/// What a run of `scenario` can give. A figure that a run gives by chance only (what was lost, a steady phase) is one
/// of them.
fn produced(scenario: &Scenario) -> BTreeSet<String> {
    let flows: Vec<&Flow> = scenario.flows.iter().filter(|flow| flow.when).collect();
    let mut names = of_transfers(scenario, &flows);
    let transfers = flows.iter().filter(|flow| flow.program.transfers()).count();
    let topology = Topology::of(scenario);
    let tapped = taps::flows_seen(scenario);
    for flow in &flows {
        let alone = match flow.program.transfers() {
            true => transfers == 1,
            false => flows.len() == 1,
        };
        let mut figures = of_flow(scenario, &topology, flow);
        if tapped.contains(&flow.name) {
            figures.extend(told_by(Producer::Tap));
        }
        let figures = figures.into_iter();
        names.extend(figures.map(|figure| registry::name_of(&flow.name, figure, alone)));
    }
    derived(scenario, &mut names);
    names
}

/// What a run of `scenario` gives without its own measures and formulas.
pub(crate) fn unaided(scenario: &Scenario) -> BTreeSet<String> {
    let mut bare = scenario.clone();
    bare.measure.clear();
    bare.derived.clear();
    produced(&bare)
}

/// What all that move bytes give together, and the rate of each.
fn of_transfers(scenario: &Scenario, flows: &[&Flow]) -> BTreeSet<String> {
    let transfers: Vec<&&Flow> = flows
        .iter()
        .filter(|flow| flow.program.transfers())
        .collect();
    let mut names = BTreeSet::new();
    if transfers.is_empty() {
        return names;
    }
    names.extend(told_by(Producer::Transfers).map(str::to_owned));
    names.extend(scenario.measure.iter().map(|plan| plan.name.clone()));
    if transfers.len() > 1 {
        let each = transfers.iter();
        names.extend(each.map(|flow| registry::name_of(&flow.name, registry::GOODPUT, false)));
    }
    let one_path = transfers
        .windows(2)
        .all(|two| (&two[0].from, &two[0].to) == (&two[1].from, &two[1].to));
    let connections: u32 = transfers.iter().map(|flow| flow.parallel).sum();
    if !one_path || connections < 2 {
        names.remove(registry::JAIN);
    }
    names
}

/// What the flow's program tells.
fn of_flow(scenario: &Scenario, topology: &Topology, flow: &Flow) -> Vec<&'static str> {
    match flow.program {
        Program::Curl | Program::Ftp => told_by(Producer::File).collect(),
        Program::Probe => told_by(Producer::Probe)
            .chain(probe::figures(scenario, topology, flow))
            .collect(),
        Program::Command => {
            let server = told_by(Producer::Server).filter(|_| !flow.server.is_empty());
            told_by(Producer::Command).chain(server).collect()
        }
        Program::Iperf3 | Program::Udt => Vec::new(),
    }
}

/// The scenario's own formulas, as far as all their parts are there by then.
fn derived(scenario: &Scenario, names: &mut BTreeSet<String>) {
    for (name, text) in &scenario.derived {
        let parts = Expression::parse(text);
        let there = |all: &Expression| all.metrics().into_iter().all(|part| names.contains(part));
        if parts.is_ok_and(|all| there(&all)) {
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
        [[links]]\nname = 'wan'\nbetween = ['a', 'b']\nrate = '1gbit'\n";

    fn flow(name: &str, program: &str, keys: &str) -> String {
        format!("[[flows]]\nname = '{name}'\nprogram = '{program}'\nfrom = 'a'\nto = 'b'\n{keys}\n")
    }

    fn known(links: &str, flows: &[String]) -> Known {
        let text = [LINK, links, &flows.concat()].concat();
        let own = produced(&toml::from_str(&text).unwrap());
        Known {
            all: own.clone(),
            cells: vec![("c".to_owned(), own)],
        }
    }

    #[test]
    fn one_transfer_has_bare_names_and_several_their_own() {
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

    /// `upload_s`, `data_packets` and `acks` passed once: a check of them was never met.
    #[test]
    fn what_nothing_produces_is_no_metric() {
        let tapped = known("tap = true\n", &[flow("get", "curl", "")]);
        assert_eq!(tapped.check("acked_peak_bps"), Ok(()));
        for name in ["upload_s", "data_packets", "acks"] {
            assert!(tapped.check(name).is_err(), "{name}");
        }
        let untapped = known("", &[flow("get", "curl", "")]);
        assert!(untapped.check("acked_peak_bps").is_err());
        let udt = known("tap = true\n", &[flow("get", "udt", "")]);
        assert!(udt.check("acked_peak_bps").is_err());
        let off = known("", &[flow("get", "curl", "when = false")]);
        assert!(off.check("goodput_bps").is_err());
    }

    #[test]
    fn a_probe_gives_what_its_link_can_be_judged_by() {
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
        let crowd = known("", &[flow("p", "probe", "count = 16\nsegments = 8")]);
        assert_eq!(crowd.check("drain_error_ratio"), Ok(()));
    }

    /// What is not registered stays in a probe's record.
    #[test]
    fn all_that_a_probe_judges_is_registered() {
        let cases = [
            ("loss = 0.01\n", "count = 9"),
            ("loss = 'gilbert:p=1%,r=30%'\n", "count = 9"),
            ("delay = '5ms'\njitter = '1ms,reorder'\n", "count = 9"),
            ("", "count = 16\nsegments = 8"),
        ];
        let told = cases.map(|(link, keys)| known(link, &[flow("p", "probe", keys)]).all);
        let registered = told_by(Producer::Probe).chain(told_by(Producer::Judge));
        let registered: BTreeSet<String> = registered.map(str::to_owned).collect();
        assert_eq!(
            told.into_iter().flatten().collect::<BTreeSet<_>>(),
            registered
        );
    }

    #[test]
    fn a_server_has_figures_of_its_own() {
        let served = known("", &[flow("c", "command", "server = ['x']\nready = 1")]);
        let alone = known("", &[flow("c", "command", "")]);
        for name in ["cpu_s", "peak_memory_bytes"] {
            assert_eq!(served.check(name), Ok(()), "{name}");
            assert_eq!(alone.check(name), Ok(()), "{name}");
        }
        assert_eq!(served.check("server_cpu_s"), Ok(()));
        assert!(alone.check("server_cpu_s").is_err());
    }

    /// Every metric is explained, and every name there is a metric's.
    #[test]
    fn the_documentation_lists_what_is_registered() {
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
    fn a_formula_is_there_when_its_parts_are() {
        let one = known("", &[flow("get", "curl", "")]);
        assert_eq!(one.check("half_s"), Ok(()));
        // Its part comes behind it.
        assert!(one.check("late_s").is_err());
        let none = known("", &[flow("p", "probe", "count = 9")]);
        assert!(none.check("dvd_s").is_err());
    }

    #[test]
    fn what_is_unknown_has_an_advice() {
        let known = known("", &[flow("get", "curl", "")]);
        assert_eq!(known.check("paper.dvd_s"), Ok(()));
        let error = known.check("godput_bps").unwrap_err();
        assert!(error.contains("did you mean \"goodput_bps\"?"), "{error}");
        let error = known.check("speed").unwrap_err();
        assert!(error.contains("first_byte_s, "), "{error}");
    }

    #[test]
    fn a_metric_of_another_cell_is_none_of_this_one() {
        let mut known = known("", &[flow("get", "curl", "")]);
        known
            .cells
            .push(("bare".to_owned(), BTreeSet::from(["received".to_owned()])));
        assert_eq!(known.check_in(0, "goodput_bps"), Ok(()));
        assert_eq!(known.check_in(1, "paper.goodput_bps"), Ok(()));
        let error = known.check_in(1, "goodput_bps").unwrap_err();
        assert!(error.contains("of the cell \"bare\""), "{error}");
    }
}
