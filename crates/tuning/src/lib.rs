// SPDX-License-Identifier: MIT OR Apache-2.0
//! The TCP of a host: congestion controls ([`cc`]), profiles for programs ([`run`]), cooperation of parallel streams
//! ([`decp`]) and what limits throughput ([`doctor`]).
//!
//! ```
//! use longhaul_tuning::decp::model::Settings;
//!
//! let settings = Settings::default();
//! assert!(!settings.hold);
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod cc;
mod connection_filter;
pub mod decp;
pub mod doctor;
pub mod run;
