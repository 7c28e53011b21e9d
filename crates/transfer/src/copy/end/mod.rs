// SPDX-License-Identifier: MIT OR Apache-2.0
//! Endpoint of a copy: a process that gets its task from the coordinator, connects to the other endpoint and
//! does its part.

mod gauges;
#[cfg(test)]
mod hostile;
mod limits;
pub(crate) mod location;
mod mark;
mod meeting;
pub(super) mod process;
mod reach;
mod receiver;
pub(super) mod reports;
mod source;
mod stopwatch;
mod survey;
