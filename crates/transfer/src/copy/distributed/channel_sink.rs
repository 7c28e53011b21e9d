// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said of one share, told to who hears of all.

use crate::{
    copy::progress::{
        monitor::{ReportSink, SessionSink},
        retry::SessionGain,
    },
    protocol::{
        control::Role,
        report::{Progress, Report},
    },
};
use anyhow::Result;
use std::sync::mpsc::Sender;

/// Of which host, and what.
pub(super) type ShareEvent = (usize, Event);

pub(super) enum Event {
    Progress(Role, Box<Progress>),
    /// Beside what is shown.
    Note(String),
    /// Another conversation begins.
    SessionStarted,
}

pub(super) struct ChannelSink {
    host: usize,
    events: Sender<ShareEvent>,
    gain: SessionGain,
}

impl ChannelSink {
    pub(super) fn new(host: usize, to: Sender<ShareEvent>) -> Self {
        Self {
            host,
            events: to,
            gain: SessionGain::default(),
        }
    }

    fn send(&self, said: Event) {
        let _nobody_hears = self.events.send((self.host, said));
    }
}

impl ReportSink for ChannelSink {
    fn receive(&mut self, role: Role, report: Report) -> Result<()> {
        match report {
            Report::Progress(progress) | Report::Finished(progress) => {
                self.gain.receive(role, &progress);
                self.send(Event::Progress(role, Box::new(progress)));
            }
            Report::Problem(problem) => self.print_note(&problem),
            _ => {}
        }
        Ok(())
    }

    fn gained(&self) -> u64 {
        self.gain.value()
    }
}

impl SessionSink for ChannelSink {
    fn print_note(&self, said: &str) {
        self.send(Event::Note(said.to_owned()));
    }

    fn start_session(&mut self) {
        self.gain.start_session();
        self.send(Event::SessionStarted);
    }
}
