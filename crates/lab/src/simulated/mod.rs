// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs under simulated time: the same flows over the same link models, with `longhaul_tcpsim` in
//! place of the kernels. A run gives the metrics and records of a testbed run.

mod plan;
mod route;
mod samples;

pub(crate) use plan::Plan;

use crate::{
    measure::{Outcome, figures},
    network::schedule,
    scenario::{Flow, Scenario, config_error::ConfigError},
    source::ExperimentPlan,
};
use anyhow::{Result, anyhow, bail};
use longhaul_results::result::{Metrics, Run};
use longhaul_tcpsim::chain::Chain;
use longhaul_units::Time;
use samples::Samples;
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Checks that every cell to be simulated can be.
///
/// # Errors
/// A usage error with the unsupported key and its position.
pub(crate) fn check(experiment: &ExperimentPlan) -> Result<()> {
    for cell in &experiment.cells {
        for scenario in [&cell.scenario, &cell.quick_scenario] {
            let refuse = |error: ConfigError| {
                let what = match cell.name().as_str() {
                    "" => "this can't be simulated".to_owned(),
                    name => format!("the cell {name:?} can't be simulated"),
                };
                experiment.sources.refuse(&error.with_owner(what))
            };
            if scenario.simulated {
                Plan::of(scenario).map_err(refuse)?;
            }
        }
    }
    Ok(())
}

/// Runs every enabled flow of `scenario`. `delivered` counts payload bytes as they arrive. Random
/// decisions depend on `seed`.
pub(crate) async fn execute(
    scenario: &Scenario,
    seed: u64,
    directory: &Path,
    delivered: Arc<AtomicU64>,
) -> Result<Run> {
    let (scenario, directory) = (scenario.clone(), directory.to_owned());
    let work = move || simulate(&scenario, seed, &directory, &delivered);
    tokio::task::spawn_blocking(work).await?
}

fn simulate(
    scenario: &Scenario,
    seed: u64,
    directory: &Path,
    delivered: &AtomicU64,
) -> Result<Run> {
    let plan = Plan::of(scenario).map_err(|error| anyhow!("{error}"))?;
    let chain = Chain::new(plan.chain(seed).map_err(anyhow::Error::msg)?);
    let mut run = SimulatedRun::new(&plan, chain);
    let mut samples = Samples::create(&plan, &directory.join("tcp_info.jsonl"))?;
    while !run.is_over() {
        if run.now() > scenario.timeout {
            bail!(
                "a simulated flow took longer than the timeout of {}",
                scenario.timeout
            );
        }
        run.step();
        samples.sample(&mut run.chain)?;
        delivered.store(run.delivered(), Ordering::Relaxed);
    }
    let outcomes = run.outcomes();
    let recording = samples.finish()?;
    Ok(figures::summarize(
        scenario,
        &plan.topology,
        &plan.flows,
        &outcomes,
        &recording,
        schedule::events(scenario, &[]),
    ))
}

/// Sampling interval, as on a testbed.
const INTERVAL: Time = Time::from_millis(100);

/// Byte counters of one connection over the time that counts.
#[derive(Debug)]
struct CountedConnection {
    flow: usize,
    /// Time from which its bytes count.
    begin: Time,
    /// Time until which its bytes count, if it has no size.
    end: Option<Time>,
    counted_from: u64,
    counted_to: Option<u64>,
}

/// Running simulation, from the first SYN to the last byte.
struct SimulatedRun<'a> {
    plan: &'a Plan<'a>,
    chain: Chain,
    connections: Vec<CountedConnection>,
    mss: u64,
}

impl<'a> SimulatedRun<'a> {
    fn new(plan: &'a Plan<'a>, chain: Chain) -> Self {
        let connections = plan.connections(0).map(|connection| {
            let flow = plan.flows[connection.flow];
            let established = connection.start + connection.round_trip;
            let begin = established + flow.omit.unwrap_or_default();
            CountedConnection {
                flow: connection.flow,
                begin,
                end: flow.duration.map(|duration| begin + duration),
                counted_from: 0,
                counted_to: None,
            }
        });
        Self {
            connections: connections.collect(),
            mss: plan.mss().into(),
            plan,
            chain,
        }
    }

    fn now(&self) -> Time {
        self.chain.now()
    }

    fn is_over(&self) -> bool {
        let over = |(n, one): (usize, &CountedConnection)| {
            one.counted_to.is_some() || self.chain.finished_at(n).is_some()
        };
        self.connections.iter().enumerate().all(over)
    }

    /// Simulates one interval, and stops at each counter time in it.
    fn step(&mut self) {
        let next = self.now() + INTERVAL;
        for time in self.counter_times(next) {
            self.chain.run_until(time);
            self.record_counters(time);
        }
        self.chain.run_until(next);
    }

    fn counter_times(&self, next: Time) -> Vec<Time> {
        let times = self.connections.iter();
        let times = times.flat_map(|one| [Some(one.begin), one.end]).flatten();
        let mut counter_times: Vec<Time> =
            times.filter(|at| (self.now()..next).contains(at)).collect();
        counter_times.sort_unstable();
        counter_times.dedup();
        counter_times
    }

    fn record_counters(&mut self, now: Time) {
        let last = self.chain.legs() - 1;
        for (number, one) in self.connections.iter_mut().enumerate() {
            if one.begin == now {
                one.counted_from = self.chain.delivered(last, number);
            }
            if one.end == Some(now) {
                one.counted_to = Some(self.chain.delivered(last, number));
                self.chain.stop(number);
            }
        }
    }

    fn delivered(&mut self) -> u64 {
        let last = self.chain.legs() - 1;
        let packets = (0..self.connections.len()).map(|n| self.chain.delivered(last, n));
        packets.sum::<u64>() * self.mss
    }

    fn outcomes(&mut self) -> Vec<Outcome> {
        let flows: Vec<&Flow> = self.plan.flows.clone();
        let flows = flows.iter().enumerate();
        flows
            .map(|(number, flow)| self.outcome(number, flow))
            .collect()
    }

    /// Outcome of a flow over all its connections, which share its size.
    fn outcome(&mut self, number: usize, flow: &Flow) -> Outcome {
        let mut all = Vec::new();
        let mut retransmits = 0;
        for connection in 0..self.connections.len() {
            if self.connections[connection].flow == number {
                all.push(self.counted(connection));
                let legs = 0..self.chain.legs();
                let counters = legs.map(|leg| self.chain.sender(leg, connection).counters());
                retransmits += counters.map(|counters| counters.retransmitted).sum::<u64>();
            }
        }
        let seconds = all.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
        let bytes = all.iter().map(|(bytes, _)| bytes).sum();
        Outcome {
            bytes: flow.size.map_or(bytes, |size| bytes.min(size.get())),
            seconds,
            retransmits: Some(retransmits),
            connections_bps: all
                .iter()
                .map(|(bytes, seconds)| *bytes as f64 * 8.0 / seconds)
                .collect(),
            extra: Metrics::new(),
        }
    }

    /// Counted bytes and seconds of one connection.
    fn counted(&mut self, number: usize) -> (u64, f64) {
        let last = self.chain.legs() - 1;
        let one = &self.connections[number];
        let until = one.end.or(self.chain.finished_at(number));
        let until = until.unwrap_or(self.chain.now());
        let seconds = until.since(one.begin).as_secs_f64();
        let (from, to) = (one.counted_from, one.counted_to);
        let packets = to.unwrap_or_else(|| self.chain.delivered(last, number)) - from;
        (packets * self.mss, seconds)
    }
}
