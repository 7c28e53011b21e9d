// SPDX-License-Identifier: MIT OR Apache-2.0
//! All shares of a copy, as they are shown together.

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

pub(super) struct ProgressAggregator<'a> {
    monitor: &'a mut CopyMonitor,
    /// Of each host.
    hosts: Vec<CopyProgress>,
}

impl<'a> ProgressAggregator<'a> {
    pub(super) fn new(hearing: &'a mut CopyMonitor, hosts: usize) -> Self {
        let began = Instant::now();
        Self {
            monitor: hearing,
            hosts: (0..hosts).map(|_| CopyProgress::new(began)).collect(),
        }
    }

    /// Until all have ended.
    pub(super) fn follow(&mut self, from: &Receiver<ShareEvent>) {
        loop {
            self.show();
            match from.recv_timeout(POLL_INTERVAL) {
                Ok((host, said)) => self.receive(host, said),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn receive(&mut self, host: usize, said: Event) {
        match said {
            Event::Progress(role, progress) => {
                self.hosts[host].receive(role, *progress, Instant::now());
            }
            Event::Note(said) => self.print_note(&said),
            Event::SessionStarted => self.hosts[host].start_session(),
        }
    }

    fn show(&mut self) {
        let (standings, now) = (&self.hosts, Instant::now());
        let each = || standings.iter().map(|standing| standing.snapshot(now));
        self.monitor.show(|| Record::sum(each().collect()), now);
    }

    pub(super) fn print_note(&self, said: &str) {
        self.monitor.print_note(said);
    }

    /// All that a host has was brought; another pass finds it.
    pub(super) fn start_pass(&mut self, host: usize) {
        self.hosts[host].start_pass();
    }

    /// How it stands at the end; so many things are known to be missing at all hosts.
    pub(super) fn finish(self, missing: u64) -> Record {
        self.monitor.finish();
        let now = Instant::now();
        let each = self.hosts.iter();
        let all = each.map(|standing| standing.finish(now, Vec::new()));
        let mut all = Record::sum(all.collect());
        all.failed += missing;
        all
    }
}
