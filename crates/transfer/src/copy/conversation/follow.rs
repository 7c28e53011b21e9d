// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversations of two ends, followed until they say that all is done, and begun again when they break.

use super::{
    far::Far,
    job::{Job, Pair},
    meeting::{Ending, Met},
};
use crate::{
    copy::progress::{
        hearing::{Listener, Narrator},
        patience::Patience,
    },
    protocol::{
        control::{Role, Task},
        report::Report,
    },
};
use anyhow::{Result, bail};
use longhaul_command::exit::Refusal;
use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

/// How long nothing is heard before it is looked what there is to show, or to do.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// How long the other end may take to say that all is done.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What an end says, and `None` when it is gone.
pub(crate) type Heard = (Role, Option<Report>);

/// Conversations until one comes to its end, each between the next pair.
pub(crate) fn converse<'a>(
    job: &Job<'a>,
    pair: impl Fn(usize) -> Pair<'a>,
    task: Task,
    listener: &mut impl Narrator,
) -> Result<()> {
    let mut patience = Patience::default();
    let mut reached = job.config.stays_here();
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
                let hosts = match job.config.pairs() {
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
        Met::Both {
            mut source,
            mut target,
        } => {
            let named = (job.config.pairs() > 1).then_some(pair);
            follow(listener, named, &reports(&mut source, &mut target)?)
        }
        Met::Early(ending) => Ok(ending),
    }
}

/// What both ends say from now on.
pub(crate) fn reports(source: &mut Far, target: &mut Far) -> Result<Receiver<Heard>> {
    let (to, from) = channel();
    source.report_to(Role::Source, to.clone())?;
    target.report_to(Role::Target, to)?;
    Ok(from)
}

/// Hears both ends until they say that all is done, or one of them is gone. With `hosts`, problems get the name of
/// their host.
pub(crate) fn follow(
    listener: &mut impl Listener,
    hosts: Option<Pair<'_>>,
    from: &Receiver<Heard>,
) -> Result<Ending> {
    let why = loop {
        if let Some(why) = listener.look()? {
            break why;
        }
        match from.recv_timeout(TICK) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break "both ends went away".to_owned(),
            Ok((role, Some(over @ Report::Finished(_)))) => {
                listener.hear(role, over)?;
                await_other(listener, role, hosts, from)?;
                return Ok(Ending::Over);
            }
            Ok((_, Some(Report::Refused(why)))) => return Err(Refusal::usage(why)),
            Ok((_, Some(Report::Broken(why)))) => break why,
            Ok((role, None)) => break format!("the {} went away", role.name()),
            Ok((role, Some(report))) => listener.hear(role, with_host(report, role, hosts))?,
        }
    };
    let gained = listener.gained();
    Ok(Ending::Broken { why, gained })
}

fn with_host(report: Report, role: Role, hosts: Option<Pair<'_>>) -> Report {
    match (report, hosts) {
        (Report::Problem(problem), Some(hosts)) => {
            Report::Problem(format!("{}: {problem}", hosts.name(role)))
        }
        (report, _) => report,
    }
}

/// One end has said that all is done; the other says so too, or was killed then.
fn await_other(
    listener: &mut impl Listener,
    first: Role,
    hosts: Option<Pair<'_>>,
    from: &Receiver<Heard>,
) -> Result<()> {
    let until = Instant::now() + LAST_WORDS;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match from.recv_timeout(left) {
            Ok((role, Some(over @ Report::Finished(_)))) => return listener.hear(role, over),
            Ok((role, None)) if role == first => {}
            // Whatever it is, all is done.
            Ok((role, Some(report))) => listener.hear(role, with_host(report, role, hosts))?,
            Ok((_, None)) | Err(_) => return Ok(()),
        }
    }
}
