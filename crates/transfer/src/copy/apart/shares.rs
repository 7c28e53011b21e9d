// SPDX-License-Identifier: MIT OR Apache-2.0
//! All shares of a copy, as they are shown together.

use super::listener::{Said, Told};
use crate::copy::{
    conversation::follow::TICK,
    progress::{
        hearing::{Hearing, Narrator as _},
        record::Record,
        standing::Standing,
    },
};
use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Instant,
};

pub(super) struct Shares<'a> {
    hearing: &'a mut Hearing,
    /// Of each host.
    standings: Vec<Standing>,
}

impl<'a> Shares<'a> {
    pub(super) fn new(hearing: &'a mut Hearing, hosts: usize) -> Self {
        let began = Instant::now();
        Self {
            hearing,
            standings: (0..hosts).map(|_| Standing::new(began)).collect(),
        }
    }

    /// Until all have ended.
    pub(super) fn follow(&mut self, from: &Receiver<Told>) {
        loop {
            self.show();
            match from.recv_timeout(TICK) {
                Ok((host, said)) => self.hear(host, said),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn hear(&mut self, host: usize, said: Said) {
        match said {
            Said::Progress(role, progress) => {
                self.standings[host].hear(role, *progress, Instant::now());
            }
            Said::Note(said) => self.note(&said),
            Said::Again => self.standings[host].again(),
        }
    }

    fn show(&mut self) {
        let (standings, now) = (&self.standings, Instant::now());
        let each = || standings.iter().map(|standing| standing.now(now));
        self.hearing.show(|| Record::sum(each().collect()), now);
    }

    pub(super) fn note(&self, said: &str) {
        self.hearing.note(said);
    }

    /// All that a host has was brought; another pass finds it.
    pub(super) fn pass(&mut self, host: usize) {
        self.standings[host].pass();
    }

    /// How it stands at the end; so many things are known to be missing at all hosts.
    pub(super) fn conclude(self, missing: u64) -> Record {
        self.hearing.conclude();
        let now = Instant::now();
        let each = self.standings.iter();
        let all = each.map(|standing| standing.over(now, Vec::new()));
        let mut all = Record::sum(all.collect());
        all.failed += missing;
        all
    }
}
