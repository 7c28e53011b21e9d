// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results to compare with predictions.

use std::path::PathBuf;

/// Validated configuration of `plan validate`.
#[derive(Debug)]
pub(crate) struct Config {
    /// Directories of runs, or their result files.
    pub(super) results: Vec<PathBuf>,
    /// Scenario that was run, if it is not the built-in scenario that the result names.
    pub(super) scenario: Option<String>,
    /// Parameters that the run was given.
    pub(super) settings: Vec<(String, String)>,
    pub(super) json: bool,
}
