// SPDX-License-Identifier: MIT OR Apache-2.0
//! Termination signals of a command that must clean up.

use anyhow::{Context as _, Result};
use std::{future::poll_fn, task::Poll};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Handlers of SIGINT, SIGTERM and SIGHUP, so that these signals do not end the process at once. SIGINT is handled even
/// if the process started with it ignored, because shells ignore it for background processes. SIGHUP stays ignored if
/// it was, because then the user asked for it (nohup(1)).
pub(super) struct TerminationSignals(Vec<Signal>);

impl TerminationSignals {
    pub(super) fn listen() -> Result<Self> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate()].into_iter();
        let hangup = SignalKind::hangup();
        let kinds = kinds.chain((!is_ignored(hangup)).then_some(hangup));
        let signals = kinds.map(signal).collect::<std::io::Result<_>>();
        Ok(Self(signals.context("cannot listen for signals")?))
    }

    /// Waits for one of the signals; without handlers (`None`), waits forever.
    pub(super) async fn wait(this: &mut Option<Self>) {
        poll_fn(|context| {
            let signals = this.iter_mut().flat_map(|this| &mut this.0);
            if signals
                .into_iter()
                .any(|signal| signal.poll_recv(context).is_ready())
            {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// Returns whether the process ignores the signal (proc(5), `SigIgn`).
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.unwrap_or(0) >> (kind.as_raw_value() - 1) & 1 == 1
}
