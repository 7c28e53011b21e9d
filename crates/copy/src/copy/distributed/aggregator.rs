// SPDX-License-Identifier: MIT OR Apache-2.0
//! Aggregator of the progress of all shares of a copy.

use super::channel_sink::{Event, ShareEvent};
use crate::copy::{
    progress::{
        copy_progress::CopyProgress,
        monitor::{CopyMonitor, SessionSink as _},
        record::Record,
    },
    session::follow::POLL_INTERVAL,
};
use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Instant,
};

/// Progress of all shares, displayed as one.
pub(super) struct ProgressAggregator<'a> {
    monitor: &'a mut CopyMonitor,
    /// Progress of each host's share.
    hosts: Vec<CopyProgress>,
}

impl<'a> ProgressAggregator<'a> {
    pub(super) fn new(monitor: &'a mut CopyMonitor, hosts: usize) -> Self {
        let started_at = Instant::now();
        Self {
            monitor,
            hosts: (0..hosts).map(|_| CopyProgress::new(started_at)).collect(),
        }
    }

    /// Receives events until all shares have ended.
    pub(super) fn follow(&mut self, from: &Receiver<ShareEvent>) {
        loop {
            self.show();
            match from.recv_timeout(POLL_INTERVAL) {
                Ok((host, event)) => self.receive(host, event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn receive(&mut self, host: usize, event: Event) {
        match event {
            Event::Progress(role, progress) => {
                self.hosts[host].receive(role, *progress, Instant::now());
            }
            Event::Note(text) => self.print_note(&text),
            Event::SessionStarted => self.hosts[host].start_session(),
        }
    }

    fn show(&mut self) {
        let (hosts, now) = (&self.hosts, Instant::now());
        let each = || hosts.iter().map(|progress| progress.snapshot(now));
        self.monitor.show(|| Record::sum(each().collect()), now);
    }

    pub(super) fn print_note(&self, text: &str) {
        self.monitor.print_note(text);
    }

    /// Starts another pass for a host.
    pub(super) fn start_pass(&mut self, host: usize) {
        self.hosts[host].start_pass();
    }

    /// Returns the final record. `missing` counts the entries that no host has.
    pub(super) fn finish(self, missing: u64) -> Record {
        self.monitor.finish();
        let now = Instant::now();
        let each = self.hosts.iter();
        let all = each.map(|progress| progress.finish(now, Vec::new()));
        let mut all = Record::sum(all.collect());
        all.failed += missing;
        all
    }
}
