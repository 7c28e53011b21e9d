// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs under simulated time: the same flows over the same link models, with `longhaul_tcpsim` in
//! place of the kernels. A run gives the metrics and records of a testbed run.

mod plan;
mod route;
mod samples;

pub(crate) use plan::Plan;

use crate::{
    experiment::ExperimentPlan,
    measure::{Outcome, figures},
    network::link,
    scenario::{Flow, Scenario, config_error::ConfigError},
};
use anyhow::{Result, anyhow, bail};
use longhaul_report::registry::{self, Producer};
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

/// Checks that every cell that is to be simulated can be simulated.
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
                experiment.file.refuse(&error.with_owner(what))
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
    let mut result = figures::summarize(
        scenario,
        &plan.topology,
        &plan.flows,
        &outcomes,
        &recording,
        link::events(scenario, &[]),
    );
    result.metrics.extend(run.counters());
    Ok(result)
}

/// Sampling interval, as on a testbed.
const INTERVAL: Time = Time::from_millis(100);

/// One connection, and how many packets it had delivered at the begin and end of its measured time.
#[derive(Debug)]
struct MeasuredConnection {
    /// Index of its flow.
    flow: usize,
    /// Begin of the measured time.
    begin: Time,
    /// End of the measured time; `None` if the connection ends when its size has arrived.
    end: Option<Time>,
    /// Packets delivered at `begin`.
    packets_at_begin: u64,
    /// Packets delivered at `end`, once that has passed.
    packets_at_end: Option<u64>,
}

/// Running simulation, from the first SYN to the last byte.
struct SimulatedRun<'a> {
    plan: &'a Plan<'a>,
    chain: Chain,
    connections: Vec<MeasuredConnection>,
    mss: u64,
}

impl<'a> SimulatedRun<'a> {
    fn new(plan: &'a Plan<'a>, chain: Chain) -> Self {
        let connections = plan.connections(0).map(|connection| {
            let flow = plan.flows[connection.flow];
            let established = connection.start + connection.round_trip;
            let begin = established + flow.omit.unwrap_or_default();
            MeasuredConnection {
                flow: connection.flow,
                begin,
                end: flow.duration.map(|duration| begin + duration),
                packets_at_begin: 0,
                packets_at_end: None,
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
        let is_over = |(number, connection): (usize, &MeasuredConnection)| {
            connection.packets_at_end.is_some() || self.chain.finished_at(number).is_some()
        };
        self.connections.iter().enumerate().all(is_over)
    }

    /// Simulates one interval, and records the counters at each begin and end of a measured time in it.
    fn step(&mut self) {
        let next = self.now() + INTERVAL;
        for time in self.counter_times(next) {
            self.chain.run_until(time);
            self.record_counters(time);
        }
        self.chain.run_until(next);
    }

    /// Returns the times before `next` at which a measured time begins or ends, in order.
    fn counter_times(&self, next: Time) -> Vec<Time> {
        let all = self.connections.iter();
        let all = all.flat_map(|connection| [Some(connection.begin), connection.end]);
        let interval = self.now()..next;
        let mut times: Vec<Time> = all.flatten().filter(|at| interval.contains(at)).collect();
        times.sort_unstable();
        times.dedup();
        times
    }

    fn record_counters(&mut self, now: Time) {
        let last_leg = self.chain.legs() - 1;
        for (number, connection) in self.connections.iter_mut().enumerate() {
            if connection.begin == now {
                connection.packets_at_begin = self.chain.delivered(last_leg, number);
            }
            if connection.end == Some(now) {
                connection.packets_at_end = Some(self.chain.delivered(last_leg, number));
                self.chain.stop(number);
            }
        }
    }

    /// Returns the payload bytes that have arrived over all connections.
    fn delivered(&mut self) -> u64 {
        let last_leg = self.chain.legs() - 1;
        let packets = (0..self.connections.len()).map(|n| self.chain.delivered(last_leg, n));
        packets.sum::<u64>() * self.mss
    }

    fn outcomes(&mut self) -> Vec<Outcome> {
        let flows: Vec<&Flow> = self.plan.flows.clone();
        let flows = flows.iter().enumerate();
        flows
            .map(|(number, flow)| self.outcome(number, flow))
            .collect()
    }

    /// Counters of all connections and legs, which only a simulation knows.
    fn counters(&mut self) -> Metrics {
        let mut sums = [0; 5];
        for leg in 0..self.chain.legs() {
            let drops = self.chain.drops(leg);
            let senders = (0..self.connections.len()).map(|n| self.chain.sender(leg, n).counters());
            let [backoffs, timeouts] = senders.fold([0; 2], |sum, one| {
                [sum[0] + one.backoffs, sum[1] + one.timeouts]
            });
            let own = [backoffs, timeouts, drops.loss, drops.overflow, drops.aqm];
            sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
        let names = registry::metrics_of(Producer::Simulation).map(str::to_owned);
        names.zip(sums.map(|sum| sum as f64)).collect()
    }

    /// Returns the outcome of a flow over all its connections, which share its size.
    fn outcome(&mut self, number: usize, flow: &Flow) -> Outcome {
        let mut all = Vec::new();
        let mut retransmits = 0;
        for connection in 0..self.connections.len() {
            if self.connections[connection].flow == number {
                all.push(self.measure_connection(connection));
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

    /// Returns the payload bytes that one connection delivered in its measured time, and that time in seconds.
    fn measure_connection(&mut self, number: usize) -> (u64, f64) {
        let last_leg = self.chain.legs() - 1;
        let connection = &self.connections[number];
        let end = connection.end.or(self.chain.finished_at(number));
        let end = end.unwrap_or(self.chain.now());
        let seconds = end.since(connection.begin).as_secs_f64();
        let (from, to) = (connection.packets_at_begin, connection.packets_at_end);
        let packets = to.unwrap_or_else(|| self.chain.delivered(last_leg, number)) - from;
        (packets * self.mss, seconds)
    }
}
