// SPDX-License-Identifier: MIT OR Apache-2.0
//! Execution of experiments: preparation, order of the runs, records, and the display of progress.

mod batch;
mod execution;
mod host_info;
mod live_table;
mod prepare;
mod progress;
mod record_dir;
mod resume;

pub(crate) use batch::Batch;
pub(crate) use host_info::{
    check_permissions, check_prerequisites, skip_missing_commands, unsupported,
};
pub(crate) use prepare::{PreparedExperiment, Request, validate};
