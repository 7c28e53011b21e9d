// SPDX-License-Identifier: MIT OR Apache-2.0
//! What runs give: samples over time, the figures that are made of them and of what programs, links and taps told.

pub(crate) mod connections;
pub(crate) mod course;
pub(crate) mod figures;
pub(crate) mod legs;
pub(crate) mod links;
pub(crate) mod recording;
pub(crate) mod statistic;
pub(crate) mod taps;

pub(crate) use connections::Flows;
pub(crate) use figures::Outcome;
pub(crate) use recording::{Recording, Sample};
