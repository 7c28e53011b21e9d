// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress bar of an analysis on stderr, if that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

/// Time before the bar appears: a shorter analysis shows none.
const SHOW_AFTER: Duration = Duration::from_secs(2);
/// Redraws per second.
const REDRAW_HZ: u8 = 4;

/// Progress bar over the bytes of all files.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    started_at: Instant,
}

impl Progress {
    /// Creates a bar for `len` bytes, or a spinner if the length is not known.
    pub(super) fn new(len: Option<u64>) -> Self {
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::with_draw_target(len, ProgressDrawTarget::hidden())
        } else {
            ProgressBar::hidden()
        };
        let template = match len {
            Some(_) => "{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
            None => "{spinner} {bytes}, {bytes_per_sec}",
        };
        let style = ProgressStyle::with_template(template);
        Self {
            bar: bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())),
            started_at: Instant::now(),
        }
    }

    /// Sets the number of bytes read. Shows the bar once [`SHOW_AFTER`] has passed.
    pub(super) fn set_position(&self, bytes_read: u64) {
        if self.started_at.elapsed() > SHOW_AFTER
            && self.bar.is_hidden()
            && std::io::stderr().is_terminal()
        {
            self.bar
                .set_draw_target(ProgressDrawTarget::stderr_with_hz(REDRAW_HZ));
        }
        self.bar.set_position(bytes_read);
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
