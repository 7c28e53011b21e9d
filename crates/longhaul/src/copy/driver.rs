// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that was called: it lets movers share the bulk if it is asked to, then has two ends copy whatever is left,
//! and starts them again when the conversation breaks.

use super::{
    args::Args,
    hearing::{Ending, Hearing},
    job::{Job, Met},
    movers,
    order::Task,
    patience::Patience,
};
use crate::exit::Refusal;
use anyhow::{Result, bail};
use std::time::Instant;

pub(super) fn run(args: &Args) -> Result<()> {
    let job = Job::read(args)?;
    let began = Instant::now();
    let mut hearing = Hearing::new(args, began);
    let shared = match &args.leases {
        Some(address) => Some(movers::run(&job, address, &mut hearing)?),
        None => None,
    };
    converse(
        &job,
        shared.as_ref().map_or(0, |shared| shared.pair),
        &mut hearing,
    )?;
    if let Some(shared) = shared {
        shared.forget();
    }
    finish(args, &mut hearing)
}

/// Conversations until one comes to its end, the first between this pair.
fn converse(job: &Job<'_>, first: usize, hearing: &mut Hearing) -> Result<()> {
    let mut patience = Patience::new();
    for number in 0.. {
        match conversation(job, first, number, hearing)? {
            Ending::Over => break,
            Ending::Broken { why, gained } => {
                let Some(pause) = patience.lose(gained > 0) else {
                    bail!("{why}; given up, the same command goes on from here");
                };
                hearing.note(&format!("{why}; going on in {} s", pause.as_secs_f32()));
                std::thread::sleep(pause);
                hearing.again();
            }
        }
    }
    Ok(())
}

/// What goes wrong in a conversation ends it, and another may follow. But a host that can't be reached the first
/// time will not be the next.
fn conversation(
    job: &Job<'_>,
    first: usize,
    number: usize,
    hearing: &mut Hearing,
) -> Result<Ending> {
    let first_abroad = number == 0 && job.goes_abroad() && job.pairs() == 1;
    let met = job.meet(job.pair(first + number), Task::Whole);
    let ending = met.and_then(|met| match met {
        Met::Both { source, target } => hearing.follow(source, target),
        Met::Early(ending) => Ok(ending),
    });
    match ending {
        Err(error) if !first_abroad && !error.is::<Refusal>() => Ok(Ending::Broken {
            why: format!("{error:#}"),
            gained: 0,
        }),
        other => other,
    }
}

fn finish(args: &Args, hearing: &mut Hearing) -> Result<()> {
    let record = hearing.conclude();
    match (args.json, args.quiet) {
        (true, _) => println!("{}", serde_json::to_string(&record)?),
        (false, false) => println!("{record}"),
        (false, true) => {}
    }
    match record.failed {
        0 => Ok(()),
        failed => bail!("{failed} could not be copied"),
    }
}
