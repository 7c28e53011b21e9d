// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refusals of a build without the feature `leases`, in the place of `workers`.

use super::{args::command::Jobs, progress::monitor::CopyMonitor, session::job::Job};
use anyhow::Result;
use longhaul_command::exit::Refusal;

/// Refuses to share a copy.
pub(super) fn copy_shared(
    _: &Job<'_>,
    _: &str,
    _: &mut CopyMonitor,
    _: impl FnOnce(usize, &mut CopyMonitor) -> Result<()>,
) -> Result<()> {
    Err(refusal())
}

/// Refuses to list or remove jobs.
pub(super) fn manage_jobs(_: &Jobs) -> Result<()> {
    Err(refusal())
}

fn refusal() -> anyhow::Error {
    Refusal::unsupported("--leases: this longhaul was built without PostgreSQL (feature leases)")
}

#[cfg(test)]
mod tests {
    use crate::copy::{Args, run};
    use clap::Parser;
    use longhaul_command::exit::report_outcome;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        copy: Args,
    }

    #[test]
    fn refuses_leases_as_unsupported() {
        for arguments in [
            &["copy", "jobs", "--leases", "postgresql://db/x"][..],
            &["copy", "--leases", "postgresql://db/x", "a", "b/"],
        ] {
            let outcome = run(&Cli::parse_from(arguments).copy);
            assert_eq!(report_outcome(&outcome), 3, "{outcome:?}");
        }
    }
}
