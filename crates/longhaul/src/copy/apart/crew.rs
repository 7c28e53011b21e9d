// SPDX-License-Identifier: MIT OR Apache-2.0
//! All shares of a copy, as they are shown together.

use super::teller::{Said, Told};
use crate::copy::{
    hearing::{Hearing, Listener},
    order::{Report, Role},
    standing::{Record, Standing},
};
use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

/// How often it is looked what there is to show.
const TICK: Duration = Duration::from_millis(500);

pub(super) struct Crew<'a> {
    hearing: &'a mut Hearing,
    /// Of each host.
    standings: Vec<Standing>,
}

impl<'a> Crew<'a> {
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

    /// Who hears the last pass over what a host has, in which all that was brought is found.
    pub(super) fn last_of(&mut self, host: usize) -> Last<'_, 'a> {
        self.standings[host].pass();
        Last { crew: self, host }
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

pub(super) struct Last<'c, 'a> {
    crew: &'c mut Crew<'a>,
    host: usize,
}

impl Last<'_, '_> {
    fn standing(&mut self) -> &mut Standing {
        &mut self.crew.standings[self.host]
    }
}

impl Listener for Last<'_, '_> {
    fn hear(&mut self, role: Role, report: Report) {
        match report {
            Report::Progress(progress) | Report::Over(progress) => {
                self.standing().hear(role, progress, Instant::now());
            }
            Report::Problem(problem) => self.note(&problem),
            _ => {}
        }
    }

    fn look(&mut self) {
        self.crew.show();
    }

    fn gained(&self) -> u64 {
        self.crew.standings[self.host].gained()
    }

    fn note(&self, said: &str) {
        self.crew.note(said);
    }

    fn again(&mut self) {
        self.standing().again();
    }
}
