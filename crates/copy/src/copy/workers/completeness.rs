// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check whether the target has all file data. A job that is no longer in the database was either finished by another
//! command, or removed by a user. The target tells the two apart.

use crate::{
    copy::{
        config::Config,
        progress::monitor::ReportSink,
        session::{follow::run_session, job::Job, startup::SessionOutcome},
    },
    protocol::{
        control::{Role, Task},
        options::{Options, Streams},
        report::{Action, PlannedAction, Report},
    },
};
use anyhow::{Result, bail};

/// Receiver of the reports of a dry run, which ends at the first action that is left to do.
#[derive(Debug, Default)]
struct RemainingWork {
    is_any: bool,
}

/// Returns whether a copy would neither send data, nor create or remove an entry. Metadata and entries that cannot be
/// copied are left to the last session, which runs next and reports them. Fails if no pair of hosts can check it.
pub(super) fn is_complete(job: &Job<'_>) -> Result<bool> {
    let config = Config {
        options: Options {
            dry_run: true,
            streams: Streams::Exactly(1),
            ..job.config.options.clone()
        },
        ..job.config.clone()
    };
    let job = Job::new(&config)?;
    let mut failures = Vec::new();
    for number in 0..config.pair_count() {
        let mut remaining = RemainingWork::default();
        let outcome = run_session(&job, job.pair(number), Task::Whole, &mut remaining);
        if remaining.is_any {
            return Ok(false);
        }
        match outcome {
            Ok(SessionOutcome::Finished) => return Ok(true),
            Ok(SessionOutcome::Broken { why, .. }) => failures.push(why),
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    bail!("{}", failures.join("; "))
}

impl ReportSink for RemainingWork {
    fn receive(&mut self, _: Role, report: Report) -> Result<()> {
        if let Report::Planned(planned) = report {
            self.is_any |= is_left(&planned);
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<String>> {
        Ok(self.is_any.then(|| "the copy is not complete".to_owned()))
    }

    fn gained(&self) -> u64 {
        0
    }
}

fn is_left(planned: &PlannedAction) -> bool {
    !matches!(planned.action, Action::Change) || planned.bytes > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_change_of_metadata_is_no_remaining_work() {
        let planned = |action, bytes| PlannedAction {
            action,
            path: b"a".to_vec(),
            bytes,
        };
        assert!(!is_left(&planned(Action::Change, 0)));
        assert!(is_left(&planned(Action::Change, 1)));
        assert!(is_left(&planned(Action::Create, 0)));
        assert!(is_left(&planned(Action::Remove, 0)));
    }
}
