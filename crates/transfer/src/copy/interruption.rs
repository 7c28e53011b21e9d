// SPDX-License-Identifier: MIT OR Apache-2.0
//! A copy that the user interrupts says what becomes of it.

use super::threads;
use anyhow::{Context as _, Result};
use longhaul_command::note;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
    low_level::emulate_default_handler,
};

/// From now on SIGINT, SIGTERM and SIGHUP print a line on standard error before they end the process, as they would
/// without it: the caller sees the signal.
///
/// # Errors
/// No descriptors or threads are left.
pub(super) fn report() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signals")?;
    threads::begin(move || {
        for signal in signals.forever() {
            // The progress display leaves the cursor behind its last line.
            note!(
                "\nlonghaul: interrupted: what has arrived stays, and the same command copies the rest"
            );
            let _ended = emulate_default_handler(signal);
        }
    })?;
    Ok(())
}
