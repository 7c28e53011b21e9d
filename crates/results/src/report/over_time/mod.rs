// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the runs went over time, as charts that `chart.js` draws.

pub(super) mod ack_course;
pub(super) mod chart;
pub(super) mod events;
pub(super) mod goodput;
pub(super) mod legs;
