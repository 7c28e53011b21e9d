// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul decp`: holds the fast ones of parallel connections back, whatever program has them, so
//! that the slow ones catch up. The law is `crate::decp::model`'s.

mod account;
mod args;
mod config;
mod display;
mod enforcer;
pub mod model;
mod watch;

use crate::decp::model::Law;
use account::{Account, Look};
use anyhow::Result;
pub use args::Args;
use config::Config;
use display::Display;
use enforcer::Enforcer;
use longhaul_command::exit::Refusal;
use longhaul_linux::{clock, netns::ENTERING};
use longhaul_units::Time;
use std::io;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{MissedTickBehavior, interval},
};
use watch::Watch;

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let config = args.config()?;
    if let Some(netns) = &config.netns {
        netns.enter().map_err(|error| not_entered(&error))?;
    }
    if !config.dry_run {
        enforcer::permitted(&config)?;
    }
    let mut watch = Watch::new(&config)?;
    if config.lift {
        return enforcer::lift(&watch.connections()?);
    }
    let enforcer = (!config.dry_run)
        .then(|| Enforcer::start(config.interval))
        .transpose()?;
    let mut rounds = Rounds {
        watch,
        law: Law::new(config.settings),
        enforcer,
        account: Account::default(),
        display: Display::open(config.json),
        began: clock::now(),
    };
    let outcome = longhaul_command::event_loop::current_thread()?.block_on(rounds.go(&config));
    let lifted = rounds.enforcer.take().map_or(Ok(()), Enforcer::end);
    let summary = rounds.account.close(clock::now().since(rounds.began));
    outcome.and(lifted).and(rounds.display.conclude(&summary))
}

fn not_entered(error: &io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Refusal::unsupported(format!("--netns: {ENTERING}")),
        _ => anyhow::anyhow!("--netns: {error}"),
    }
}

/// The names of all options, as typed behind `--`.
pub fn options() -> Vec<String> {
    Args::options()
}

/// Refuses what the command would refuse. Nothing is done: for those who write such flags for others, as
/// `lab` does.
pub fn check(flags: &[String]) -> Result<()> {
    Args::parse(flags)?.config().map(drop)
}

/// Look after look.
struct Rounds {
    watch: Watch,
    law: Law,
    enforcer: Option<Enforcer>,
    account: Account,
    display: Display,
    began: Time,
}

impl Rounds {
    async fn go(&mut self, config: &Config) -> Result<()> {
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        let mut hung_up = signal(SignalKind::hangup())?;
        let mut ticks = interval(config.interval.into());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let over = tokio::time::sleep(config.duration.map_or(FOR_EVER, Into::into));
        tokio::pin!(over);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.look()?,
                () = &mut over => return Ok(()),
                _ = interrupted.recv() => return Ok(()),
                _ = terminated.recv() => return Ok(()),
                _ = hung_up.recv() => return Ok(()),
            }
        }
    }

    fn look(&mut self) -> Result<()> {
        let now = clock::now().since(self.began);
        let enforcer = self.enforcer.as_mut();
        let look = round(
            now,
            &mut self.watch,
            &mut self.law,
            enforcer,
            &mut self.account,
        )?;
        self.display.show(&look)
    }
}

/// Looks once, and does what the law says.
fn round(
    now: Time,
    watch: &mut Watch,
    law: &mut Law,
    mut enforcer: Option<&mut Enforcer>,
    account: &mut Account,
) -> Result<Look> {
    let cap = |cookie| enforcer.as_ref().and_then(|enforcer| enforcer.cap(cookie));
    let mut seen = watch.look(now, cap)?;
    let observations: Vec<_> = seen.iter().map(|one| one.observation).collect();
    let changes = law.look(now, &observations);
    if let Some(enforcer) = &mut enforcer {
        enforcer.obey(&changes)?;
        seen.iter_mut()
            .for_each(|one| one.observation.cap = enforcer.cap(one.observation.id));
        enforcer.tidy(&observations.iter().map(|seen| seen.id).collect());
    }
    Ok(account.enter(now, &seen, law.outlook(), &changes))
}

/// As long as a timer of tokio's can be.
const FOR_EVER: std::time::Duration = std::time::Duration::from_secs(30 * 365 * 24 * 3600);
