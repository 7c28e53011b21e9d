// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pure decisions: no clock, no socket, no file.
//!
//! `now` is always an argument and the next deadline is always a return value, so that the same
//! code runs behind real interfaces and under simulated time, deterministic for one seed.

pub mod decp;
