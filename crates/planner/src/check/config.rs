// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which results to hold predictions against.

use std::path::PathBuf;

/// A question, checked.
#[derive(Debug)]
pub(crate) struct Config {
    /// Directories that runs wrote, or the files in them.
    pub(super) results: Vec<PathBuf>,
    /// The scenario that was run, if it is not the built-in one of the result's name.
    pub(super) scenario: Option<String>,
    /// Parameters that the run was given.
    pub(super) settings: Vec<(String, String)>,
    pub(super) json: bool,
}
