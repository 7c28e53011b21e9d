// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters, histograms, samples and records of a relay.

mod common_log;
pub(crate) mod counters;
pub(crate) mod history;
pub(crate) mod journal;
pub(crate) mod reload_state;
pub(crate) mod sampling;
pub(crate) mod times;
