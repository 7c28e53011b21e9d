// SPDX-License-Identifier: MIT OR Apache-2.0
//! Evaluation of the runs: checks, the paper's figures, tables, figures and the topology diagram.

pub(crate) mod claims;
pub(crate) mod topology_diagram;
pub(crate) mod view;
