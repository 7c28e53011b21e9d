// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a result says of the runs: checks, the paper's figures, tables and figures, and the testbed as it is drawn.

pub(crate) mod checks;
pub(crate) mod drawing;
pub(crate) mod paper;
pub(crate) mod view;
