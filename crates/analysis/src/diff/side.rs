// SPDX-License-Identifier: MIT OR Apache-2.0
//! One of both that are compared: the direction with more data of one flow.

use crate::{
    analyze,
    report::{Finished, Shown, direction_name},
    series::column,
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_flow::record::{Direction, Flow};
use std::path::Path;

/// A direction of a flow of a result.
pub(super) struct Side<'a> {
    /// Where it came from, as on the command line.
    pub(super) source: String,
    pub(super) finished: &'a Finished,
    pub(super) flow: &'a Flow,
    pub(super) upload: bool,
}

impl<'a> Side<'a> {
    /// The flow with this number, or the largest.
    ///
    /// # Errors
    /// A refusal if there is none.
    pub(super) fn of(path: &Path, finished: &'a Finished, number: Option<u64>) -> Result<Self> {
        let flows = &finished.analysis.flows;
        let found = match number {
            Some(number) => flows.iter().find(|flow| flow.number == number),
            None => flows.first(),
        };
        let flow = found.ok_or_else(|| no_flow(path, number))?;
        Ok(Self {
            source: path.display().to_string(),
            finished,
            flow,
            upload: flow.upload.data.unique_bytes >= flow.download.data.unique_bytes,
        })
    }

    pub(super) fn direction(&self) -> &'a Direction {
        self.flow.direction(self.upload)
    }

    /// What its charts are made of, if it is drawn.
    pub(super) fn course(&self) -> Option<Shown<'a>> {
        let direction = column::direction(self.upload);
        let courses = self.finished.courses.iter();
        let mut same = courses
            .filter(|course| course.flow == self.flow.number && course.direction == direction);
        Shown::of(&self.finished.analysis, same.next()?)
    }

    /// "out/reno: 10.0.0.1:40000 → 10.0.0.2:5201".
    pub(super) fn name(&self) -> String {
        let place = self.finished.analysis.place(self.flow.vantage);
        format!(
            "{}: {}",
            self.source,
            direction_name(self.flow, self.upload, place)
        )
    }
}

fn no_flow(path: &Path, number: Option<u64>) -> anyhow::Error {
    let path = path.display();
    match number {
        Some(number) => Refusal::usage(format!(
            "{path}: no flow {number} among those that result.json tells; its flows have their numbers there"
        )),
        None => Refusal::usage(format!("{path}: there is no TCP connection in it")),
    }
}

/// What an analysis left in a directory, or says of a capture now.
///
/// # Errors
/// A refusal if `path` is neither.
pub(super) fn open(path: &Path) -> Result<Finished> {
    match path.is_dir() {
        true => Finished::read(path),
        false => analyze::capture(path),
    }
}
