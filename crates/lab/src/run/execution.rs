// SPDX-License-Identifier: MIT OR Apache-2.0
//! Execution of an experiment: the order of its runs, every cell with its repetitions, and the result.

use super::{
    progress::Progress,
    record_dir::RecordDir,
    resume::{CompletedRun, Journal},
};
use crate::{
    evaluation::{claims, topology_diagram, view},
    experiment::{Cell, ExperimentPlan, text_pairs},
    measure::{
        captures,
        links::{self, TimingReports},
    },
    network::{Topology, link, topology::LINKS_MAX},
    scenario::{Link, LinkKind, Program, Scenario},
    simulated,
    testbed::{
        Testbed,
        controls::CongestionControls,
        payload::PayloadStore,
        transfers::{self, Sinks},
    },
};
use anyhow::{Context, Result};
use longhaul_command::exit::Refusal;
use longhaul_results::result::{self, About, Headline, Host, LabResult, Run};
use longhaul_units::Bytes;
use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::Path,
    sync::{Arc, atomic::AtomicU64},
    time::Instant,
};

/// Directory of the payloads inside the sandbox.
const PAYLOAD_DIR: &str = "/run/longhaul/files";

/// State of a running experiment.
struct Lab<'a> {
    experiment: &'a ExperimentPlan,
    /// Absent if all cells are simulated.
    store: Option<PayloadStore>,
    sinks: Sinks,
    timing_reports: TimingReports,
    controls: CongestionControls,
    cells: Vec<result::Cell>,
    records: RecordDir,
    /// Offload settings of the testbed built last.
    offloads: BTreeMap<String, String>,
    /// Runs that earlier sessions completed.
    done: BTreeSet<usize>,
    /// Time of all sessions, without the pauses between them, seconds.
    spent_s: f64,
}

/// Runs the experiment inside the sandbox, writes raw records below `out`, and returns the result.
/// Runs in `journal` are not repeated.
pub(crate) async fn run(
    experiment: &ExperimentPlan,
    out: &Path,
    host: Host,
    command: String,
    mut journal: Journal,
) -> Result<LabResult> {
    let session = Instant::now();
    let run_order = run_order(experiment);
    let mut progress = Progress::new(experiment, run_order.len());
    let mut lab = Lab::open(experiment, out, &run_order, &journal.done, &progress)?;
    for done in std::mem::take(&mut journal.done) {
        let planned = run_order[done.index];
        progress.add_completed(
            planned.cell,
            planned.repetition.is_some().then_some(&done.run),
        );
        lab.restore(out, planned, done);
    }
    let earlier_s = lab.spent_s;
    let mut queue: RunQueue = (0..run_order.len())
        .filter(|n| !lab.done.contains(n))
        .collect();
    while let Some(next) = queue.pop() {
        let planned = run_order[next.index];
        let pending: Vec<usize> = queue.pending().map(|n| run_order[n].cell).collect();
        let Some(run) = lab
            .execute_run(planned, next.retries, &mut progress, &pending)
            .await?
        else {
            queue.requeue(next);
            continue;
        };
        journal.add(CompletedRun {
            index: next.index,
            spent_s: earlier_s + session.elapsed().as_secs_f64(),
            offloads: lab.offloads.clone(),
            run: run.clone(),
        })?;
        lab.add_run(planned, run);
    }
    progress.close();
    lab.spent_s = earlier_s + session.elapsed().as_secs_f64();
    lab.finish(&journal, host, command)
}

impl<'a> Lab<'a> {
    fn open(
        experiment: &'a ExperimentPlan,
        out: &Path,
        run_order: &[PlannedRun],
        done: &[CompletedRun],
        progress: &Progress,
    ) -> Result<Self> {
        let downloads = downloads(experiment);
        let payloads: Bytes = downloads
            .values()
            .flatten()
            .copied()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .sum();
        let arriving: Bytes = downloads
            .values()
            .filter_map(|sizes| sizes.iter().max().copied())
            .sum();
        let mut store = if experiment.needs_testbed() {
            Some(PayloadStore::open(
                Path::new(PAYLOAD_DIR),
                out,
                payloads + arriving,
            )?)
        } else {
            None
        };
        let on_disk = store.as_ref().is_some_and(PayloadStore::on_disk);
        if on_disk && experiment.on_testbed().any(has_commands) {
            return Err(Refusal::unsupported(format!(
                "commands keep their files in memory, which has no room for {} and 1 GiB beside them; give a smaller size",
                payloads + arriving
            )));
        }
        // Last, after all refusals: it removes the records of an earlier experiment.
        let run_dirs = run_order
            .iter()
            .map(|planned| run_dir_name(experiment, *planned))
            .collect();
        let kept = done
            .iter()
            .map(|done| run_dir_name(experiment, run_order[done.index]));
        let records = RecordDir::open(out, &run_dirs, &kept.collect())?;
        let place = if on_disk {
            "on disk: memory is short, so the disk may limit the figures"
        } else {
            "in memory"
        };
        if payloads > Bytes::default() {
            progress.note(&format!(
                "Writing {payloads} of incompressible bytes, {place} …"
            ));
        }
        let mut sinks = Sinks::new();
        for (flow, sizes) in &downloads {
            let Some(store) = &mut store else { break };
            sizes
                .iter()
                .try_for_each(|size| store.add_payload(*size, experiment.scenario.seed))?;
            sinks.insert(flow.clone(), Arc::new(store.sink(flow)?));
        }
        let cells = experiment
            .cells
            .iter()
            .map(|cell| describe_cell(experiment, cell))
            .collect::<Result<_>>()?;
        Ok(Self {
            experiment,
            store,
            sinks,
            timing_reports: TimingReports::default(),
            controls: CongestionControls::provide(experiment)?,
            cells,
            records,
            offloads: BTreeMap::new(),
            done: BTreeSet::new(),
            spent_s: 0.0,
        })
    }

    /// Restores a run of an earlier session as if it had just ended.
    fn restore(&mut self, out: &Path, planned: PlannedRun, done: CompletedRun) {
        let directory = out.join("raw").join(run_dir_name(self.experiment, planned));
        self.add_timing_reports(scenario_of(self.experiment, planned), &directory);
        self.offloads = done.offloads;
        self.spent_s = done.spent_s;
        self.done.insert(done.index);
        self.add_run(planned, done.run);
    }

    /// Adds a run to its cell. A warm-up run is added only if it failed.
    fn add_run(&mut self, planned: PlannedRun, run: Run) {
        if planned.repetition.is_some() || run.failed.is_some() {
            self.cells[planned.cell].runs.push(run);
        }
    }

    /// Adds the links' timing reports of a run.
    fn add_timing_reports(&mut self, scenario: &Scenario, directory: &Path) {
        let emulated = |link: &&Link| link.kind == LinkKind::Emulated && !scenario.simulated;
        for link in scenario.links.iter().filter(emulated) {
            let counters = link::counters_file(link, directory);
            self.timing_reports.add(&link.name, &counters);
        }
    }

    /// Executes one run. Before and after it, the sandbox has no hosts and no links. An error inside
    /// the run is its result; an error of the clean-up ends the experiment. Returns `None` if the
    /// emulator was late and the run must be repeated.
    async fn execute_run(
        &mut self,
        planned: PlannedRun,
        retries: u32,
        progress: &mut Progress,
        pending: &[usize],
    ) -> Result<Option<Run>> {
        let scenario = scenario_of(self.experiment, planned);
        let cell = self.experiment.cells[planned.cell].name();
        let cell = if cell.is_empty() {
            self.experiment.name.clone()
        } else {
            cell
        };
        let name = match planned.repetition {
            Some(_) => cell,
            None => format!("{cell} (warm-up)"),
        };
        let delivered = Arc::new(AtomicU64::new(0));
        let active = progress.begin(planned.cell, &name, goal(scenario), &delivered, pending);
        let run_dir = run_dir_name(self.experiment, planned);
        let directory = self.records.begin(&run_dir)?;
        let run = self.attempt(planned, &directory, delivered).await;
        self.records.end(&run_dir)?;
        let run = run.unwrap_or_else(|error| Run {
            failed: Some(format!("{error:#}")),
            ..Run::default()
        });
        if let Some(why) = &run.overload
            && retries < self.max_retries(planned)
        {
            progress.discard(active, why);
            return Ok(None);
        }
        self.add_timing_reports(scenario, &directory);
        progress.end(active, &run, planned.repetition.is_some(), pending);
        Ok(Some(Run { retries, ..run }))
    }

    /// Most retries of a run. Warm-up and quick runs are not repeated.
    fn max_retries(&self, planned: PlannedRun) -> u32 {
        match planned.repetition {
            Some(_) if !self.experiment.quick => self.experiment.scenario.max_retries,
            _ => 0,
        }
    }

    /// Seed of the links' random decisions. It differs between repetitions, not between cells.
    fn seed(&self, planned: PlannedRun) -> u64 {
        let repetition = u64::from(planned.repetition.unwrap_or(0));
        self.experiment
            .scenario
            .seed
            .wrapping_add(repetition * LINKS_MAX as u64)
    }

    async fn attempt(
        &mut self,
        planned: PlannedRun,
        directory: &Path,
        delivered: Arc<AtomicU64>,
    ) -> Result<Run> {
        let (scenario, seed) = (scenario_of(self.experiment, planned), self.seed(planned));
        let mut run = if scenario.simulated {
            simulated::execute(scenario, seed, directory, delivered).await?
        } else {
            let resolved = self.controls.resolve(scenario);
            self.run_on_testbed(&resolved, seed, directory, delivered)
                .await?
        };
        claims::derive(scenario, &mut run.metrics);
        Ok(run)
    }

    /// Builds the testbed, runs the flows in it and removes it.
    async fn run_on_testbed(
        &mut self,
        scenario: &Scenario,
        seed: u64,
        directory: &Path,
        delivered: Arc<AtomicU64>,
    ) -> Result<Run> {
        let store = self.store.as_ref().context("there is no payload store")?;
        let mut testbed = Testbed::build(scenario, seed, directory).await?;
        self.offloads = testbed.offloads()?;
        let run = transfers::execute(
            scenario,
            &mut testbed,
            store,
            &self.sinks,
            directory,
            delivered,
        )
        .await;
        testbed.tear_down().await?;
        let mut run = run?;
        run.overload = links::late_link(scenario, directory);
        captures::add(scenario, directory, &mut run)?;
        Ok(run)
    }

    fn finish(mut self, journal: &Journal, host: Host, command: String) -> Result<LabResult> {
        self.cells.iter_mut().for_each(result::Cell::summarise);
        let scenario = &self.experiment.scenario;
        Ok(LabResult {
            scenario: self.experiment.name.clone(),
            longhaul: longhaul_command::version().to_owned(),
            started: journal.began,
            resumed_at: journal.resumed.clone(),
            duration_s: Some(self.spent_s),
            seed: scenario.seed,
            identity: None,
            quick: self.experiment.quick,
            about: Some(About {
                title: scenario.title.clone(),
                question: Some(scenario.question.clone()),
                source: scenario.source.clone(),
                command: Some(command),
                notes: collect_notes(self.experiment),
            }),
            headline: headline(self.experiment),
            host: Host {
                offloads: self.offloads,
                ..host
            },
            resolved: serde_json::to_value(scenario)?,
            testbed: Some(topology_diagram::testbed(
                &self
                    .experiment
                    .cells
                    .iter()
                    .map(|cell| &cell.scenario)
                    .collect::<Vec<_>>(),
            )),
            checks: claims::checks(self.experiment, &self.cells),
            tables: view::tables(self.experiment, &self.cells),
            figures: view::figures(self.experiment, &self.cells),
            links: self.timing_reports.result(),
            congestion_controls: self.controls.provided(),
            raw: self.records.files(),
            cells: self.cells,
        })
    }
}

/// Notes of the scenario, and which cells were simulated.
fn collect_notes(experiment: &ExperimentPlan) -> Vec<String> {
    let simulated = experiment
        .cells
        .iter()
        .filter(|cell| cell.scenario.simulated);
    let which = match simulated.clone().count() {
        0 => None,
        n if n == experiment.cells.len() => Some("All cells".to_owned()),
        _ => Some(simulated.map(Cell::name).collect::<Vec<_>>().join("; ")),
    };
    let note = |which| {
        format!(
            "Simulated, not run on sockets: {which}. Links are those of the emulator, TCP is a model of \
             Linux's; neither this machine's speed nor its settings had a part in it."
        )
    };
    let own = experiment.scenario.notes.iter().cloned();
    own.chain(which.map(note)).collect()
}

fn has_commands(scenario: &Scenario) -> bool {
    let mut flows = scenario.flows.iter().filter(|flow| flow.enabled);
    flows.any(|flow| flow.program == Program::Command)
}

/// Flows that transfer a file, each with its sizes in all cells, warm-up runs included.
fn downloads(experiment: &ExperimentPlan) -> BTreeMap<String, Vec<Bytes>> {
    let mut downloads: BTreeMap<String, Vec<Bytes>> = BTreeMap::new();
    let short = |cell: &'_ Cell| {
        (experiment.scenario.warmup_runs > 0).then(|| cell.quick_scenario.flows.clone())
    };
    for cell in &experiment.cells {
        let all = cell
            .scenario
            .flows
            .iter()
            .cloned()
            .chain(short(cell).into_iter().flatten());
        for flow in all.filter(|flow| flow.program.takes_a_file()) {
            downloads.entry(flow.name).or_default().extend(flow.size);
        }
    }
    downloads
}

/// Scenario of a planned run. Warm-up runs use the quick scenario.
fn scenario_of(experiment: &ExperimentPlan, planned: PlannedRun) -> &Scenario {
    let cell = &experiment.cells[planned.cell];
    match planned.repetition {
        Some(_) => &cell.scenario,
        None => &cell.quick_scenario,
    }
}

fn goal(scenario: &Scenario) -> Bytes {
    scenario
        .flows
        .iter()
        .filter(|flow| flow.enabled)
        .filter_map(|flow| flow.size)
        .sum()
}

/// Directory name for the records of a run: `CELL-REPETITION`.
fn run_dir_name(experiment: &ExperimentPlan, planned: PlannedRun) -> String {
    let cell = file_name(&experiment.cells[planned.cell].name());
    let repetition = planned
        .repetition
        .map_or("warmup".to_owned(), |n| n.to_string());
    format!("{:02}-{cell}-{repetition}", planned.cell + 1)
}

fn file_name(text: &str) -> String {
    let clean = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '=') {
            c
        } else {
            '-'
        }
    };
    text.chars().map(clean).take(60).collect()
}

fn describe_cell(experiment: &ExperimentPlan, cell: &Cell) -> Result<result::Cell> {
    let reference = claims::reference_of_cell(&experiment.scenario.reference, cell);
    let parameters = cell
        .values
        .iter()
        .map(|(key, value)| Ok((key.clone(), serde_json::to_value(value)?)));
    Ok(result::Cell {
        parameters: parameters.collect::<Result<_>>()?,
        label: cell.label.clone(),
        simulated: cell.scenario.simulated,
        relays: relays_on_path(&cell.scenario),
        reference: reference.values,
        reference_excluded: reference.excluded,
        ..result::Cell::default()
    })
}

/// Relaying hosts on the path of the first flow.
fn relays_on_path(scenario: &Scenario) -> Vec<String> {
    let mut path = path_of_first_flow(scenario);
    path.retain(|host| scenario.relays_on(host));
    path
}

fn path_of_first_flow(scenario: &Scenario) -> Vec<String> {
    let first = scenario.flows.iter().find(|flow| flow.enabled);
    first
        .and_then(|flow| Topology::of(scenario).path(&flow.from, &flow.to))
        .unwrap_or_default()
}

fn headline(experiment: &ExperimentPlan) -> Option<Headline> {
    let spec = experiment.scenario.headline.as_ref()?;
    Some(Headline {
        template: spec.template.clone(),
        metric: spec.metric.clone(),
        cell: experiment.find_cell(&text_pairs(&spec.cell)).ok()?,
        baseline: match &spec.baseline {
            Some(cell) => Some(experiment.find_cell(&text_pairs(cell)).ok()?),
            None => None,
        },
    })
}

/// Planned run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlannedRun {
    pub(crate) cell: usize,
    /// Repetition, from 1; `None` for a warm-up run.
    pub(crate) repetition: Option<u32>,
}

/// Returns all runs in order: warm-up rounds, then one round for each repetition. A round has every
/// cell once in its own random order, so that drift of the machine affects all cells alike.
pub(crate) fn run_order(experiment: &ExperimentPlan) -> Vec<PlannedRun> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(experiment.scenario.seed);
    let warmups = std::iter::repeat_n(None, experiment.scenario.warmup_runs as usize);
    let rounds = warmups.chain((1..=experiment.scenario.repetitions).map(Some));
    let mut run_order = Vec::new();
    for repetition in rounds {
        let mut round: Vec<PlannedRun> = (0..experiment.cells.len())
            .map(|cell| PlannedRun { cell, repetition })
            .collect();
        shuffle(&mut round, &mut random);
        run_order.extend(round);
    }
    run_order
}

/// Fisher–Yates shuffle. The bias of the remainder is below 2⁻⁵⁰ for any list that fits here.
fn shuffle<T>(list: &mut [T], random: &mut impl Rng) {
    for last in (1..list.len()).rev() {
        list.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
    }
}

/// Queue of the runs to execute.
#[derive(Debug)]
pub(crate) struct RunQueue(VecDeque<QueuedRun>);

/// Queued run, with its number of retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueuedRun {
    pub(crate) index: usize,
    pub(crate) retries: u32,
}

impl FromIterator<usize> for RunQueue {
    fn from_iter<T: IntoIterator<Item = usize>>(run_order: T) -> Self {
        let first = |index| QueuedRun { index, retries: 0 };
        Self(run_order.into_iter().map(first).collect())
    }
}

impl RunQueue {
    /// Returns the next run.
    pub(crate) fn pop(&mut self) -> Option<QueuedRun> {
        self.0.pop_front()
    }

    /// Queues a run again behind all others. By then the machine may be less busy.
    pub(crate) fn requeue(&mut self, done: QueuedRun) {
        self.0.push_back(QueuedRun {
            retries: done.retries + 1,
            ..done
        });
    }

    /// Indices of the queued runs in the order of all runs.
    pub(crate) fn pending(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|next| next.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requeued_run_comes_last() {
        let mut queue: RunQueue = [4, 7, 9].into_iter().collect();
        let first = queue.pop().unwrap();
        queue.requeue(first);
        assert_eq!(queue.pending().collect::<Vec<_>>(), [7, 9, 4]);
        let rest: Vec<(usize, u32)> = std::iter::from_fn(|| queue.pop())
            .map(|next| (next.index, next.retries))
            .collect();
        assert_eq!(rest, [(7, 0), (9, 0), (4, 1)]);
    }
}
