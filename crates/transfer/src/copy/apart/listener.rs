// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said of one share, told to who hears of all.

use crate::{
    copy::progress::{
        hearing::{Listener, Narrator},
        patience::Gain,
    },
    protocol::{
        control::Role,
        report::{Progress, Report},
    },
};
use anyhow::Result;
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

pub(super) struct ShareListener {
    host: usize,
    to: Sender<Told>,
    gain: Gain,
}

impl ShareListener {
    pub(super) fn new(host: usize, to: Sender<Told>) -> Self {
        Self {
            host,
            to,
            gain: Gain::default(),
        }
    }

    fn say(&self, said: Said) {
        let _nobody_hears = self.to.send((self.host, said));
    }
}

impl Listener for ShareListener {
    fn hear(&mut self, role: Role, report: Report) -> Result<()> {
        match report {
            Report::Progress(progress) | Report::Finished(progress) => {
                self.gain.hear(role, &progress);
                self.say(Said::Progress(role, Box::new(progress)));
            }
            Report::Problem(problem) => self.note(&problem),
            _ => {}
        }
        Ok(())
    }

    fn gained(&self) -> u64 {
        self.gain.so_far()
    }
}

impl Narrator for ShareListener {
    fn note(&self, said: &str) {
        self.say(Said::Note(said.to_owned()));
    }

    fn again(&mut self) {
        self.gain.again();
        self.say(Said::Again);
    }
}
