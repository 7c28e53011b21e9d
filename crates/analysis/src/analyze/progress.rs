// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a person sees while an analysis takes its time: a bar on stderr, where that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

/// Whoever waits for less than this needs no bar.
const PATIENCE: Duration = Duration::from_secs(2);
/// Redraws a second.
const RATE: u8 = 4;

/// How far the files are read.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    began: Instant,
}

impl Progress {
    /// Of so many bytes, if it is known how many there are.
    pub(super) fn new(len: Option<u64>) -> Self {
        let bar = match std::io::stderr().is_terminal() {
            true => ProgressBar::with_draw_target(len, ProgressDrawTarget::hidden()),
            false => ProgressBar::hidden(),
        };
        let template = match len {
            Some(_) => "{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
            None => "{spinner} {bytes}, {bytes_per_sec}",
        };
        let style = ProgressStyle::with_template(template);
        Self {
            bar: bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())),
            began: Instant::now(),
        }
    }

    /// So many bytes are read.
    pub(super) fn is_at(&self, offset: u64) {
        if self.began.elapsed() > PATIENCE
            && self.bar.is_hidden()
            && std::io::stderr().is_terminal()
        {
            self.bar
                .set_draw_target(ProgressDrawTarget::stderr_with_hz(RATE));
        }
        self.bar.set_position(offset);
    }

    /// All is read.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
