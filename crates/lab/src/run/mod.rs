// SPDX-License-Identifier: MIT OR Apache-2.0
//! Labs at work: what may begin, which run comes when, what is kept of each, and what a person sees meanwhile.

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
