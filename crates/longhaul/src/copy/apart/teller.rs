// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said of one share, told to who hears of all.

use crate::copy::{
    hearing::Listener,
    order::{Progress, Report, Role},
};
use std::sync::mpsc::Sender;

/// Of which host, and what.
pub(super) type Told = (usize, Said);

pub(super) enum Said {
    Progress(Role, Box<Progress>),
    /// Beside what is shown.
    Note(String),
    /// Another conversation begins.
    Again,
}

pub(super) struct Teller {
    host: usize,
    to: Sender<Told>,
    gained: u64,
}

impl Teller {
    pub(super) fn new(host: usize, to: Sender<Told>) -> Self {
        Self {
            host,
            to,
            gained: 0,
        }
    }

    fn say(&self, said: Said) {
        let _nobody_hears = self.to.send((self.host, said));
    }
}

impl Listener for Teller {
    fn hear(&mut self, role: Role, report: Report) {
        match report {
            Report::Progress(progress) | Report::Over(progress) => {
                if role == Role::Target {
                    self.gained = progress.durable + progress.made;
                }
                self.say(Said::Progress(role, Box::new(progress)));
            }
            Report::Problem(problem) => self.note(&problem),
            _ => {}
        }
    }

    fn gained(&self) -> u64 {
        self.gained
    }

    fn note(&self, said: &str) {
        self.say(Said::Note(said.to_owned()));
    }

    fn again(&mut self) {
        self.gained = 0;
        self.say(Said::Again);
    }
}
