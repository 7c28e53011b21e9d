// SPDX-License-Identifier: MIT OR Apache-2.0
//! Execution of an experiment: every cell with its repetitions in order, and the result.

use super::{
    progress::Progress,
    raw::Raw,
    resume::{Done, Journal},
    turns::{ToDo, Turn, turns},
};
use crate::{
    measure::{
        links::{self, Accounts},
        taps,
    },
    network::{Topology, link, topology::LINKS_MAX},
    scenario::{Link, LinkKind, Program, Scenario},
    simulated,
    source::{Book, Cell, pairs},
    testbed::{
        Testbed,
        controls::Controls,
        payload::Store,
        transfers::{self, Landings},
    },
    verdict::{checks, drawing, paper, view},
};
use anyhow::{Context, Result};
use longhaul_command::exit::Refusal;
use longhaul_results::result::{self, About, Answer, Host, LabResult, Run};
use longhaul_units::Bytes;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, atomic::AtomicU64},
    time::Instant,
};

/// Directory of the payloads inside the sandbox.
const FILES: &str = "/run/longhaul/files";

/// State of a running experiment.
struct Lab<'a> {
    book: &'a Book,
    /// Absent if all cells are simulated.
    store: Option<Store>,
    landings: Landings,
    accounts: Accounts,
    controls: Controls,
    cells: Vec<result::Cell>,
    raw: Raw,
    /// Offload settings of the testbed built last.
    offloads: BTreeMap<String, String>,
    /// Runs that earlier sessions completed.
    done: BTreeSet<usize>,
    /// Seconds of work without the pauses between sessions.
    spent_s: f64,
}

/// Runs the experiment inside the sandbox, writes raw records below `out`, and returns the result.
/// Runs in `journal` are not repeated.
pub(crate) async fn run(
    book: &Book,
    out: &Path,
    host: Host,
    command: String,
    mut journal: Journal,
) -> Result<LabResult> {
    let session = Instant::now();
    let turns = turns(book);
    let mut progress = Progress::new(book, turns.len());
    let mut lab = Lab::open(book, out, &turns, &journal.done, &progress)?;
    for done in std::mem::take(&mut journal.done) {
        let turn = turns[done.turn];
        progress.was_done(turn.cell, turn.repetition.is_some().then_some(&done.run));
        lab.go_on(out, turn, done);
    }
    let before = lab.spent_s;
    let mut to_do: ToDo = (0..turns.len()).filter(|n| !lab.done.contains(n)).collect();
    while let Some(next) = to_do.pop() {
        let turn = turns[next.turn];
        let ahead: Vec<usize> = to_do.ahead().map(|n| turns[n].cell).collect();
        let Some(run) = lab.take(turn, next.retaken, &mut progress, &ahead).await? else {
            to_do.again(next);
            continue;
        };
        journal.add(Done {
            turn: next.turn,
            spent_s: before + session.elapsed().as_secs_f64(),
            offloads: lab.offloads.clone(),
            run: run.clone(),
        })?;
        lab.keep(turn, run);
    }
    progress.close();
    lab.spent_s = before + session.elapsed().as_secs_f64();
    lab.finish(&journal, host, command)
}

impl<'a> Lab<'a> {
    fn open(
        book: &'a Book,
        out: &Path,
        turns: &[Turn],
        done: &[Done],
        progress: &Progress,
    ) -> Result<Self> {
        let downloads = downloads(book);
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
        let mut store = match book.needs_testbed() {
            true => Some(Store::open(Path::new(FILES), out, payloads + arriving)?),
            false => None,
        };
        let on_disk = store.as_ref().is_some_and(Store::on_disk);
        if on_disk && book.on_testbed().any(has_commands) {
            return Err(Refusal::unsupported(format!(
                "commands keep their files in memory, which has no room for {} and 1 GiB beside them; give a smaller size",
                payloads + arriving
            )));
        }
        // Last, after all refusals: it removes the records of an earlier experiment.
        let folders = turns.iter().map(|turn| folder(book, *turn)).collect();
        let kept = done.iter().map(|done| folder(book, turns[done.turn]));
        let raw = Raw::open(out, &folders, &kept.collect())?;
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
        let mut landings = Landings::new();
        for (flow, sizes) in &downloads {
            let Some(store) = &mut store else { break };
            sizes
                .iter()
                .try_for_each(|size| store.add_payload(*size, book.base.seed))?;
            landings.insert(flow.clone(), Arc::new(store.landing(flow)?));
        }
        let cells = book
            .cells
            .iter()
            .map(|cell| describe_cell(book, cell))
            .collect::<Result<_>>()?;
        Ok(Self {
            book,
            store,
            landings,
            accounts: Accounts::default(),
            controls: Controls::provide(book)?,
            cells,
            raw,
            offloads: BTreeMap::new(),
            done: BTreeSet::new(),
            spent_s: 0.0,
        })
    }

    /// Restores a run of an earlier session as if it had just ended.
    fn go_on(&mut self, out: &Path, turn: Turn, done: Done) {
        let directory = out.join("raw").join(folder(self.book, turn));
        self.account_for(scenario_of(self.book, turn), &directory);
        self.offloads = done.offloads;
        self.spent_s = done.spent_s;
        self.done.insert(done.turn);
        self.keep(turn, done.run);
    }

    /// Adds a run to its cell. A warm-up run is added only if it failed.
    fn keep(&mut self, turn: Turn, run: Run) {
        if turn.repetition.is_some() || run.failed.is_some() {
            self.cells[turn.cell].runs.push(run);
        }
    }

    /// Adds the links' timing reports of a run.
    fn account_for(&mut self, scenario: &Scenario, directory: &Path) {
        let emulated = |link: &&Link| link.kind == LinkKind::Emulated && !scenario.simulate;
        for link in scenario.links.iter().filter(emulated) {
            let counters = link::counters(link, directory);
            self.accounts.add(&link.name, &counters);
        }
    }

    /// Executes one run, from an empty machine to an empty machine. An error inside it is the
    /// result of the run; only a machine that cannot be cleaned up ends the experiment. `None`: the
    /// machine was too busy, and the run is to be repeated.
    async fn take(
        &mut self,
        turn: Turn,
        retaken: u32,
        progress: &mut Progress,
        ahead: &[usize],
    ) -> Result<Option<Run>> {
        let scenario = scenario_of(self.book, turn);
        let cell = self.book.cells[turn.cell].name();
        let cell = if cell.is_empty() {
            self.book.name.clone()
        } else {
            cell
        };
        let name = match turn.repetition {
            Some(_) => cell,
            None => format!("{cell} (warm-up)"),
        };
        let delivered = Arc::new(AtomicU64::new(0));
        let running = progress.begin(turn.cell, &name, goal(scenario), &delivered, ahead);
        let folder = folder(self.book, turn);
        let directory = self.raw.begin(&folder)?;
        let run = self.attempt(turn, &directory, delivered).await;
        self.raw.end(&folder)?;
        let run = run.unwrap_or_else(|error| Run {
            failed: Some(format!("{error:#}")),
            ..Run::default()
        });
        if let Some(why) = &run.disturbed
            && retaken < self.retakes(turn)
        {
            progress.again(running, why);
            return Ok(None);
        }
        self.account_for(scenario, &directory);
        progress.end(running, &run, turn.repetition.is_some(), ahead);
        Ok(Some(Run { retaken, ..run }))
    }

    /// Most retries of a run. Warm-up and quick runs are not repeated.
    fn retakes(&self, turn: Turn) -> u32 {
        match turn.repetition {
            Some(_) if !self.book.quick => self.book.base.retakes,
            _ => 0,
        }
    }

    /// Seed of the links' random decisions. It differs between repetitions, not between cells.
    fn seed(&self, turn: Turn) -> u64 {
        let repetition = u64::from(turn.repetition.unwrap_or(0));
        self.book
            .base
            .seed
            .wrapping_add(repetition * LINKS_MAX as u64)
    }

    async fn attempt(
        &mut self,
        turn: Turn,
        directory: &Path,
        delivered: Arc<AtomicU64>,
    ) -> Result<Run> {
        let (scenario, seed) = (scenario_of(self.book, turn), self.seed(turn));
        let mut run = match scenario.simulate {
            true => simulated::execute(scenario, seed, directory, delivered).await?,
            false => {
                let resolved = self.controls.resolve(scenario);
                self.on_testbed(&resolved, seed, directory, delivered)
                    .await?
            }
        };
        checks::derive(scenario, &mut run.metrics);
        Ok(run)
    }

    async fn on_testbed(
        &mut self,
        scenario: &Scenario,
        seed: u64,
        directory: &Path,
        delivered: Arc<AtomicU64>,
    ) -> Result<Run> {
        let store = self.store.as_ref().context("there are no files")?;
        let mut testbed = Testbed::build(scenario, seed, directory).await?;
        self.offloads = testbed.offloads()?;
        let run = transfers::execute(
            scenario,
            &mut testbed,
            store,
            &self.landings,
            directory,
            delivered,
        )
        .await;
        testbed.take_down().await?;
        let mut run = run?;
        run.disturbed = links::late(scenario, directory);
        taps::add(scenario, directory, &mut run)?;
        Ok(run)
    }

    fn finish(mut self, journal: &Journal, host: Host, command: String) -> Result<LabResult> {
        self.cells.iter_mut().for_each(result::Cell::summarise);
        let base = &self.book.base;
        Ok(LabResult {
            scenario: self.book.name.clone(),
            longhaul: longhaul_command::version().to_owned(),
            started: journal.began,
            resumed: journal.resumed.clone(),
            took_s: Some(self.spent_s),
            seed: base.seed,
            identity: None,
            quick: self.book.quick,
            about: Some(About {
                title: base.title.clone(),
                question: Some(base.question.clone()),
                paper: base.source.clone(),
                command: Some(command),
                notes: notes(self.book),
            }),
            answer: answer(self.book),
            host: Host {
                offloads: self.offloads,
                ..host
            },
            resolved: serde_json::to_value(base)?,
            testbed: Some(drawing::testbed(
                &self
                    .book
                    .cells
                    .iter()
                    .map(|cell| &cell.scenario)
                    .collect::<Vec<_>>(),
            )),
            checks: checks::checks(self.book, &self.cells),
            tables: view::tables(self.book, &self.cells),
            figures: view::figures(self.book, &self.cells),
            links: self.accounts.result(),
            congestion_controls: self.controls.provided(),
            raw: self.raw.files(),
            cells: self.cells,
        })
    }
}

/// Notes of the scenario, and which cells were simulated.
fn notes(book: &Book) -> Vec<String> {
    let simulated = book.cells.iter().filter(|cell| cell.scenario.simulate);
    let which = match simulated.clone().count() {
        0 => None,
        n if n == book.cells.len() => Some("All cells".to_owned()),
        _ => Some(simulated.map(Cell::name).collect::<Vec<_>>().join("; ")),
    };
    let note = |which| {
        format!(
            "Simulated, not run on sockets: {which}. Links are those of the emulator, TCP is a model of \
             Linux's; neither this machine's speed nor its settings had a part in it."
        )
    };
    let own = book.base.notes.iter().cloned();
    own.chain(which.map(note)).collect()
}

fn has_commands(scenario: &Scenario) -> bool {
    let mut flows = scenario.flows.iter().filter(|flow| flow.when);
    flows.any(|flow| flow.program == Program::Command)
}

/// Flows that transfer a file, each with its sizes in all cells, warm-up runs included.
fn downloads(book: &Book) -> BTreeMap<String, Vec<Bytes>> {
    let mut downloads: BTreeMap<String, Vec<Bytes>> = BTreeMap::new();
    let short = |cell: &'_ Cell| (book.base.warmup > 0).then(|| cell.short.flows.clone());
    for cell in &book.cells {
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
fn scenario_of(book: &Book, turn: Turn) -> &Scenario {
    let cell = &book.cells[turn.cell];
    match turn.repetition {
        Some(_) => &cell.scenario,
        None => &cell.short,
    }
}

fn goal(scenario: &Scenario) -> Bytes {
    scenario
        .flows
        .iter()
        .filter(|flow| flow.when)
        .filter_map(|flow| flow.size)
        .sum()
}

/// Directory name for the records of a run: `CELL-REPETITION`.
fn folder(book: &Book, turn: Turn) -> String {
    let cell = file_name(&book.cells[turn.cell].name());
    let repetition = turn
        .repetition
        .map_or("warmup".to_owned(), |n| n.to_string());
    format!("{:02}-{cell}-{repetition}", turn.cell + 1)
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

fn describe_cell(book: &Book, cell: &Cell) -> Result<result::Cell> {
    let printed = paper::printed(&book.base.paper, cell);
    let vary = cell
        .vary
        .iter()
        .map(|(key, value)| Ok((key.clone(), serde_json::to_value(value)?)));
    Ok(result::Cell {
        vary: vary.collect::<Result<_>>()?,
        label: cell.label.clone(),
        simulated: cell.scenario.simulate,
        relays: relays_on_path(&cell.scenario),
        paper: printed.figures,
        paper_suspect: printed.suspect,
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
    let first = scenario.flows.iter().find(|flow| flow.when);
    first
        .and_then(|flow| Topology::of(scenario).path(&flow.from, &flow.to))
        .unwrap_or_default()
}

fn answer(book: &Book) -> Option<Answer> {
    let plan = book.base.answer.as_ref()?;
    Some(Answer {
        sentence: plan.sentence.clone(),
        metric: plan.metric.clone(),
        cell: book.one_cell(&pairs(&plan.cell)).ok()?,
        baseline: match &plan.baseline {
            Some(cell) => Some(book.one_cell(&pairs(cell)).ok()?),
            None => None,
        },
    })
}
