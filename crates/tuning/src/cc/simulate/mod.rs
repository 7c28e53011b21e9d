// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul cc simulate`: TCP flows over a shared path under simulated time.

mod args;
mod check;
mod flow;
mod record;
mod run;
mod summary;

pub(super) use args::Args;
pub(super) use run::run;
