// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul decp`: caps the windows of the fast ones among parallel connections of any program, so
//! that the slow ones catch up. The controller is in [`model`].

mod args;
mod cap_controller;
mod config;
mod display;
pub mod model;
mod sampler;
mod summary;

use crate::decp::model::Controller;
use anyhow::Result;
pub use args::Args;
use cap_controller::CapController;
use config::Config;
use display::Display;
use longhaul_command::exit::Refusal;
use longhaul_linux::{clock, netns::ENTER_HINT};
use longhaul_units::Time;
use sampler::Sampler;
use std::io;
use summary::{SampleRecord, Summarizer};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{MissedTickBehavior, interval},
};

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let config = args.config()?;
    if let Some(netns) = &config.netns {
        netns.enter().map_err(|error| netns_error(&error))?;
    }
    if !config.dry_run {
        cap_controller::check_permission(&config)?;
    }
    let mut sampler = Sampler::new(&config)?;
    if config.remove_caps {
        return cap_controller::lift_all(&sampler.connections()?);
    }
    let cap_controller = (!config.dry_run)
        .then(|| CapController::start(config.interval))
        .transpose()?;
    let mut control_loop = ControlLoop {
        sampler,
        controller: Controller::new(config.settings),
        cap_controller,
        summarizer: Summarizer::default(),
        display: Display::open(config.json),
        started_at: clock::now(),
    };
    let outcome =
        longhaul_command::event_loop::current_thread()?.block_on(control_loop.run(&config));
    let lifted = control_loop
        .cap_controller
        .take()
        .map_or(Ok(()), CapController::finish);
    let summary = control_loop
        .summarizer
        .summary(clock::now().since(control_loop.started_at));
    outcome
        .and(lifted)
        .and(control_loop.display.print_summary(&summary))
}

fn netns_error(error: &io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Refusal::unsupported(format!("--netns: {ENTER_HINT}")),
        _ => anyhow::anyhow!("--netns: {error}"),
    }
}

/// Validates arguments as the command would, without running it.
pub fn check(args: &Args) -> Result<()> {
    args.config().map(drop)
}

/// Control loop: samples, controls and reports until the run ends.
struct ControlLoop {
    sampler: Sampler,
    controller: Controller,
    cap_controller: Option<CapController>,
    summarizer: Summarizer,
    display: Display,
    started_at: Time,
}

impl ControlLoop {
    async fn run(&mut self, config: &Config) -> Result<()> {
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        let mut hung_up = signal(SignalKind::hangup())?;
        let mut ticks = interval(config.interval.into());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let deadline = tokio::time::sleep(config.duration.map_or(DURATION_MAX, Into::into));
        tokio::pin!(deadline);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.take_sample()?,
                () = &mut deadline => return Ok(()),
                _ = interrupted.recv() => return Ok(()),
                _ = terminated.recv() => return Ok(()),
                _ = hung_up.recv() => return Ok(()),
            }
        }
    }

    fn take_sample(&mut self) -> Result<()> {
        let now = clock::now().since(self.started_at);
        let cap_controller = self.cap_controller.as_mut();
        let sample = sample_once(
            now,
            &mut self.sampler,
            &mut self.controller,
            cap_controller,
            &mut self.summarizer,
        )?;
        self.display.show(&sample)
    }
}

/// Takes one sample and applies the changes that the controller returns.
fn sample_once(
    now: Time,
    sampler: &mut Sampler,
    controller: &mut Controller,
    mut cap_controller: Option<&mut CapController>,
    summarizer: &mut Summarizer,
) -> Result<SampleRecord> {
    let cap = |cookie| {
        cap_controller
            .as_ref()
            .and_then(|cap_controller| cap_controller.cap(cookie))
    };
    let mut samples = sampler.sample(now, cap)?;
    let observations: Vec<_> = samples.iter().map(|sample| sample.observation).collect();
    let changes = controller.on_sample(now, &observations);
    if let Some(cap_controller) = &mut cap_controller {
        cap_controller.apply(&changes)?;
        samples
            .iter_mut()
            .for_each(|sample| sample.observation.cap = cap_controller.cap(sample.observation.id));
        cap_controller.gc(&observations
            .iter()
            .map(|observation| observation.id)
            .collect());
    }
    Ok(summarizer.add(now, &samples, controller.estimate(), &changes))
}

/// Maximum duration that a tokio timer supports.
const DURATION_MAX: std::time::Duration = std::time::Duration::from_secs(30 * 365 * 24 * 3600);
