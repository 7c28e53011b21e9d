// SPDX-License-Identifier: MIT OR Apache-2.0
//! What both ends of a copy say while it goes on, and what is shown of it.

use super::{
    args::Args,
    display::Display,
    far::Far,
    plan::Plan,
    standing::{Brought, Record, Standing},
};
use crate::protocol::{
    order::Role,
    report::{Report, StreamFigures},
};
use anyhow::{Result, anyhow};
use longhaul_command::exit::Refusal;
use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

/// How often it is looked what there is to show.
const TICK: Duration = Duration::from_millis(500);

/// How long the other end may take to say that all is done.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(5);

/// How a conversation ended.
pub(super) enum Ending {
    Over,
    /// So many bytes or entries became durable before it broke.
    Broken {
        why: String,
        gained: u64,
    },
}

/// What is known of a copy over all its conversations.
pub(super) struct Hearing {
    standing: Standing,
    display: Display,
    /// What the streams of the last conversation carried.
    streams: Vec<StreamFigures>,
    /// With a dry run, what was said so far.
    plan: Option<Plan>,
}

impl Hearing {
    pub(super) fn new(args: &Args, began: Instant) -> Self {
        Self {
            standing: Standing::new(began),
            display: Display::of(args, began),
            streams: Vec::new(),
            plan: args.dry_run.then(Plan::default),
        }
    }

    /// Shows how it stands, if it is time to.
    pub(super) fn show(&mut self, record: impl FnOnce() -> Record, now: Instant) {
        self.display.show(record, now);
    }

    /// Movers brought something before the first conversation.
    pub(super) fn brought(&mut self, brought: Brought, record: &Record) {
        self.standing.brought(brought, record);
    }

    /// All is over, and nothing more is shown.
    pub(super) fn conclude(&mut self) -> Record {
        self.display.clear();
        let streams = std::mem::take(&mut self.streams);
        let record = self.standing.over(Instant::now(), streams);
        match &self.plan {
            Some(plan) => record.planned(plan.clone()),
            None => record,
        }
    }
}

/// Who hears what both ends of a conversation say.
pub(super) trait Listener {
    /// A report that neither ends the conversation nor breaks it.
    fn hear(&mut self, role: Role, report: Report);

    /// Time goes by.
    fn look(&mut self) {}

    /// What this conversation brought that those before it did not, in bytes and entries.
    fn gained(&self) -> u64;

    /// Says something beside what is shown.
    fn note(&self, said: &str);

    /// Another conversation begins.
    fn again(&mut self);
}

impl Listener for Hearing {
    fn hear(&mut self, role: Role, report: Report) {
        match report {
            Report::Progress(progress) | Report::Over(progress) => {
                self.standing.hear(role, progress, Instant::now());
            }
            Report::Problem(problem) => self.display.note(&problem),
            Report::Planned(planned) => {
                self.display.plan(&planned);
                self.plan.get_or_insert_default().add(&planned);
            }
            Report::Streams(figures) => self.streams = figures,
            _ => {}
        }
    }

    fn look(&mut self) {
        let now = Instant::now();
        self.display.show(|| self.standing.now(now), now);
    }

    fn gained(&self) -> u64 {
        self.standing.gained()
    }

    fn note(&self, said: &str) {
        self.display.note(said);
    }

    fn again(&mut self) {
        self.standing.again();
        self.plan = self.plan.as_ref().map(|_| Plan::default());
    }
}

/// Names of the hosts of both ends.
pub(super) struct HostNames {
    pub(super) source: String,
    pub(super) target: String,
}

impl HostNames {
    fn of(&self, role: Role) -> &str {
        match role {
            Role::Source => &self.source,
            Role::Target => &self.target,
        }
    }
}

/// Hears both ends until they say that all is done, or one of them is gone. With `hosts`, problems get the name of
/// their host.
pub(super) fn follow(
    listener: &mut impl Listener,
    hosts: Option<&HostNames>,
    mut source: Far,
    mut target: Far,
) -> Result<Ending> {
    let (to, from) = channel();
    source.report_to(Role::Source, to.clone())?;
    target.report_to(Role::Target, to)?;
    loop {
        listener.look();
        let why = match from.recv_timeout(TICK) {
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => "both ends went away".to_owned(),
            Ok((role, Some(over @ Report::Over(_)))) => {
                listener.hear(role, over);
                await_other(listener, role, hosts, &from);
                return Ok(Ending::Over);
            }
            Ok((_, Some(Report::Refused(why)))) => return Err(Refusal::usage(why)),
            Ok((_, Some(Report::Broken(why)))) => why,
            Ok((role, None)) => format!("the {} went away", role.name()),
            Ok((role, Some(report))) => {
                listener.hear(role, with_host(report, role, hosts));
                continue;
            }
        };
        let gained = listener.gained();
        return Ok(Ending::Broken { why, gained });
    }
}

fn with_host(report: Report, role: Role, hosts: Option<&HostNames>) -> Report {
    match (report, hosts) {
        (Report::Problem(problem), Some(hosts)) => {
            Report::Problem(format!("{}: {problem}", hosts.of(role)))
        }
        (report, _) => report,
    }
}

/// One end has said that all is done; the other says so too, or was killed then.
fn await_other(
    listener: &mut impl Listener,
    first: Role,
    hosts: Option<&HostNames>,
    from: &Receiver<(Role, Option<Report>)>,
) {
    let until = Instant::now() + LAST_WORDS;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match from.recv_timeout(left) {
            Ok((role, Some(over @ Report::Over(_)))) => return listener.hear(role, over),
            Ok((role, None)) if role == first => {}
            // Whatever it is, all is done.
            Ok((role, Some(report))) => listener.hear(role, with_host(report, role, hosts)),
            Ok((_, None)) | Err(_) => return,
        }
    }
}

impl Ending {
    /// An end that did not get as far as to begin.
    pub(super) fn early(report: Option<Report>) -> Result<Self> {
        match report {
            Some(Report::Refused(why)) => Err(Refusal::usage(why)),
            Some(Report::Occupied(why)) => Err(anyhow!(why)),
            Some(Report::Broken(why)) => Ok(Self::Broken { why, gained: 0 }),
            _ => Ok(Self::Broken {
                why: "an end of the copy went away".to_owned(),
                gained: 0,
            }),
        }
    }
}
