// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sink for the reports of one share, which passes them to the aggregator over a channel.

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

/// Event, with the index of its host.
pub(super) type ShareEvent = (usize, Event);

/// Event of the sessions of one share.
pub(super) enum Event {
    Progress(Role, Box<Progress>),
    /// Line to print beside the progress display.
    Note(String),
    /// A new session starts.
    SessionStarted,
}

/// Sink for the reports of one share.
pub(super) struct ChannelSink {
    host: usize,
    events: Sender<ShareEvent>,
    gain: SessionGain,
}

impl ChannelSink {
    pub(super) fn new(host: usize, events: Sender<ShareEvent>) -> Self {
        Self {
            host,
            events,
            gain: SessionGain::default(),
        }
    }

    fn send(&self, event: Event) {
        let _receiver_gone = self.events.send((self.host, event));
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
    fn print_note(&self, text: &str) {
        self.send(Event::Note(text.to_owned()));
    }

    fn start_session(&mut self) {
        self.gain.start_session();
        self.send(Event::SessionStarted);
    }
}
