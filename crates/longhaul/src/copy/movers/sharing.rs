// SPDX-License-Identifier: MIT OR Apache-2.0
//! Targets on several hosts must be one: otherwise each would get some of the data, and none all of it.

use crate::{
    copy::{
        far::Far,
        job::Job,
        order::{Meeting, Report, Role, Task},
    },
    exit::Refusal,
};
use anyhow::{Result, bail};
use rustix::rand::GetRandomFlags;

/// Refuses a directory that the hosts do not share. A host that can't be reached now is not asked: its mover will not get
/// far either.
pub(super) fn check(job: &Job<'_>) -> Result<()> {
    if job.target.len() < 2 {
        return Ok(());
    }
    let mut random = [0; 16];
    rustix::rand::getrandom(&mut random, GetRandomFlags::empty())?;
    let number = u128::from_ne_bytes(random);
    let ask = |host: usize, task| answer(job.alone(job.pair(host), Role::Target, task));
    let hosts = 0..job.target.len();
    let Some((first, mut marking)) = hosts.clone().find_map(|host| {
        let (far, _) = ask(host, Task::Mark(number)).ok()?;
        Some((host, far))
    }) else {
        // Why not, the movers will say.
        return Ok(());
    };
    let blind = |host: &usize| matches!(ask(*host, Task::Seek(number)), Ok((_, false)));
    let blind = hosts.skip(first + 1).find(blind);
    marking.tell(&Meeting::Later)?;
    marking.report()?;
    match blind {
        None => Ok(()),
        Some(host) => Err(Refusal::usage(format!(
            "{} does not see what is in the target's directory on {}: movers need a file system that these hosts share",
            job.pair(host).target_name(),
            job.pair(first).target_name(),
        ))),
    }
}

fn answer(far: Result<Far>) -> Result<(Far, bool)> {
    let mut far = far?;
    match far.report()? {
        Some(Report::Marked(seen)) => Ok((far, seen)),
        Some(Report::Refused(why)) => Err(Refusal::usage(why)),
        _ => bail!("it went away"),
    }
}
