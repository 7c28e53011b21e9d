// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the descriptors of an end are for, and how many it needs at least.

use crate::protocol::order::Role;
use anyhow::Result;
use longhaul_command::exit::Refusal;

/// A stream: its socket, once more to write to it and to end it, and the file that it carries.
pub(super) const STREAM: usize = 4;
/// A file of several blocks, and its journal.
pub(super) const LARGE: usize = 4;
/// A small file that is written and not yet durable; as many again are written while others become durable.
pub(super) const SMALL: usize = 2 * 2;
/// All else: directories, the manifest, both ends' messages.
pub(super) const OTHER: usize = 64;
/// With one of each the slowest copy there is goes on.
const LEAST: usize = OTHER + STREAM + LARGE + SMALL;

/// Raises the limit as far as it goes. Where even that is too little, nothing is begun with: whatever cannot be opened first
/// would be what ends the copy, or waits.
pub(super) fn raise_limit(role: Role) -> Result<()> {
    match longhaul_linux::descriptors::raise_limit() {
        Some(all) if all < LEAST as u64 => Err(Refusal::usage(format!(
            "the {} may have {all} descriptors and needs {LEAST}: raise the hard limit there (ulimit -Hn, LimitNOFILE= of a service)",
            role.name()
        ))),
        _ => Ok(()),
    }
}
