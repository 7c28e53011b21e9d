// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that was called: it lets movers share the bulk if it is asked to, then has two ends copy whatever is left,
//! and starts them again when the conversation breaks.

use super::{
    apart,
    args::Args,
    hearing::{Ending, Hearing, Listener, follow},
    interruption,
    job::{Job, Met, Pair},
    movers,
    patience::Patience,
    standing::Record,
};
use crate::protocol::order::Task;
use anyhow::{Result, bail};
use longhaul_command::exit::Refusal;
use longhaul_command::say;
use std::time::Instant;

pub(super) fn run(args: &Args) -> Result<()> {
    let job = Job::read(args)?;
    interruption::report()?;
    let mut hearing = Hearing::new(args, Instant::now());
    if let Some(side) = args.apart {
        return finish(args, &apart::run(&job, side, &mut hearing)?);
    }
    let shared = match &args.leases {
        Some(address) => Some(movers::run(&job, address, &mut hearing)?),
        None => None,
    };
    let first = shared.as_ref().map_or(0, |shared| shared.pair);
    let pair = |number| job.pair(first + number);
    converse(&job, pair, Task::Whole, &mut hearing)?;
    if let Some(shared) = shared {
        shared.forget();
    }
    finish(args, &hearing.conclude())
}

/// Conversations until one comes to its end, each between the next pair.
pub(super) fn converse<'a>(
    job: &Job<'a>,
    pair: impl Fn(usize) -> Pair<'a>,
    task: Task,
    listener: &mut impl Listener,
) -> Result<()> {
    let mut patience = Patience::default();
    let mut reached = !job.goes_abroad();
    for number in 0.. {
        let pair_now = pair(number);
        let ended = conversation(job, pair_now, task, listener);
        reached |= ended.is_ok();
        // Who can't be reached the first time will not be the next, unless another stands in.
        let goes_on = reached || pair(number + 1) != pair(0);
        let ended = match ended {
            Err(error) if goes_on && !error.is::<Refusal>() => Ending::Broken {
                why: format!("{error:#}"),
                gained: 0,
            },
            other => other?,
        };
        match ended {
            Ending::Over => break,
            Ending::Broken { why, gained } => {
                let Some(pause) = patience.lose(gained > 0, Instant::now()) else {
                    bail!("{why}; given up, the same command goes on from here");
                };
                let hosts = match job.pairs() {
                    1 => String::new(),
                    _ => format!("{pair_now}: "),
                };
                listener.note(&format!(
                    "{hosts}{why}; going on in {} s",
                    pause.as_secs_f32()
                ));
                std::thread::sleep(pause);
                listener.again();
            }
        }
    }
    Ok(())
}

fn conversation(
    job: &Job<'_>,
    pair: Pair<'_>,
    task: Task,
    listener: &mut impl Listener,
) -> Result<Ending> {
    match job.meet(pair, task)? {
        Met::Both { source, target } => {
            let names = (job.pairs() > 1).then(|| pair.names());
            follow(listener, names.as_ref(), source, target)
        }
        Met::Early(ending) => Ok(ending),
    }
}

fn finish(args: &Args, record: &Record) -> Result<()> {
    match (args.json, args.quiet) {
        (true, _) => say!("{}", serde_json::to_string(record)?),
        (false, false) => say!("{record}"),
        (false, true) => {}
    }
    match record.failed {
        0 => Ok(()),
        failed => bail!("{failed} could not be copied"),
    }
}
