// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end of a copy: a process that hears from the driver who it is, meets the other end and does its part.

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
