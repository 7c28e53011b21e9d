// SPDX-License-Identifier: MIT OR Apache-2.0
//! Execution of experiments: preparation, order of the runs, records, and the display of progress.

mod batch;
mod board;
mod lab;
mod machine;
mod progress;
mod raw;
mod ready;
mod resume;
mod turns;

pub(crate) use batch::Batch;
pub(crate) use machine::{leave_out, prerequisites, rights, unsupported};
pub(crate) use ready::{Ready, Request, possible};
