// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a simulation interval by interval, with a record for each flow.

use super::{
    super::config::Simulate,
    record::{BackoffRecord, FlowRecord, Record, threshold},
    summary::{FlowSummary, Summary},
};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use longhaul_tcpsim::simulation::Simulation;
use longhaul_units::Time;
use std::{
    io::{BufWriter, IsTerminal, Write, stderr, stdout},
    time::Instant,
};

/// Runs a simulation for its duration, or until all flows have sent their bytes.
pub(in super::super) fn run(mut config: Simulate) -> Result<()> {
    let (settings, names): (Vec<_>, Vec<_>) = std::mem::take(&mut config.flows).into_iter().unzip();
    let mss = settings.iter().map(|flow| flow.sender.mss).collect();
    let mut run = Run {
        simulation: Simulation::new(config.path.clone(), settings),
        flows: names.into_iter().map(FlowSummary::new).collect(),
        mss,
        config: &config,
        full_at: None,
    };
    let mut out = BufWriter::new(stdout().lock());
    let begin = Instant::now();
    let progress = progress(&config);
    while run.simulation.now() < config.duration && !run.simulation.is_done() {
        run.interval(|record| {
            if config.json {
                Ok(writeln!(out, "{}", serde_json::to_string(&record)?)?)
            } else {
                Ok(())
            }
        })?;
        progress.set_position(run.simulation.now().as_nanos() / 1_000_000);
    }
    progress.finish_and_clear();
    let summary = run.summary(begin.elapsed().into());
    if config.json {
        writeln!(out, "{}", serde_json::to_string(&summary)?)?;
    } else {
        write!(out, "{summary}")?;
    }
    Ok(out.flush()?)
}

fn progress(config: &Simulate) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {percent} %, {eta} left");
    let bar = ProgressBar::new(config.duration.as_nanos() / 1_000_000);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

struct Run<'a> {
    simulation: Simulation,
    flows: Vec<FlowSummary>,
    mss: Vec<u32>,
    config: &'a Simulate,
    /// End of the first interval with nine tenths of the rate.
    full_at: Option<Time>,
}

impl Run<'_> {
    /// Simulates one interval; the last may be shorter.
    fn interval(&mut self, mut emit: impl FnMut(Record) -> Result<()>) -> Result<()> {
        let before = self.simulation.now();
        let end = (before + self.config.interval).min(self.config.duration);
        self.simulation.run_until(end);
        let queue_bytes = self.simulation.backlog_bytes();
        let span = end - before;
        let mut together = 0.0;
        for flow in 0..self.flows.len() {
            for backoff in self.simulation.sender(flow).take_backoffs() {
                emit(Record::Backoff(BackoffRecord::new(flow, &backoff)))?;
            }
            let record = self.flow(flow, span, queue_bytes);
            together += record.goodput_bps;
            emit(Record::Flow(record))?;
        }
        if together >= 0.9 * self.payload_rate() {
            self.full_at.get_or_insert(end);
        }
        Ok(())
    }

    fn flow(&mut self, flow: usize, span: Time, queue_bytes: u64) -> FlowRecord {
        let time_s = self.simulation.now().as_secs_f64();
        let mss = u64::from(self.mss[flow]);
        let sender = self.simulation.sender(flow);
        let window = *sender.window();
        let new = self.flows[flow].update(sender.acked() * mss, &sender.counters());
        FlowRecord {
            time_s,
            flow,
            cwnd_packets: window.cwnd,
            ssthresh_packets: threshold(window.ssthresh),
            goodput_bps: new.bytes as f64 * 8.0 / span.as_secs_f64(),
            srtt_s: sender.srtt().as_secs_f64(),
            in_flight_packets: sender.in_flight(),
            retransmitted_packets: new.retransmitted,
            queue_bytes,
        }
    }

    /// Returns the greatest payload rate of the bottleneck, for the largest packets.
    fn payload_rate(&self) -> f64 {
        let mss = f64::from(*self.mss.iter().max().unwrap_or(&1448));
        let overhead = f64::from(self.config.path.forward.overhead);
        self.config.rate.bits() as f64 * mss / (mss + 52.0 + overhead)
    }

    fn summary(self, wall: Time) -> Summary {
        let payload_rate = self.payload_rate();
        Summary::new(
            self.flows,
            &self.simulation,
            payload_rate,
            self.full_at,
            wall,
        )
    }
}
