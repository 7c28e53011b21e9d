// SPDX-License-Identifier: MIT OR Apache-2.0
//! The TCP of a host: congestion controls ([`cc`]), profiles for programs ([`run`]), cooperation of parallel streams
//! ([`decp`]) and what limits throughput ([`doctor`]).
//!
//! # Tour
//!
//! | folder | subject |
//! |---|---|
//! | `cc` | `longhaul cc`: list, load, show, watch, unload |
//! | `run` | `longhaul run`: a profile for the TCP sockets of an unmodified program, by BPF at its cgroup |
//! | `decp` | `longhaul decp`: `decp/model` decides on window caps without I/O, `decp/cap_controller.rs` sets them |
//! | `doctor` | `longhaul doctor`: facts of a host, trials of its kernel, checks of both, fixes that can be undone |
//!
//! ```
//! use longhaul_tuning::decp::model::Settings;
//!
//! let settings = Settings::default();
//! assert!(!settings.keep_caps);
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod cc;
mod connection_filter;
pub mod decp;
pub mod doctor;
pub mod run;
