// SPDX-License-Identifier: MIT OR Apache-2.0
//! Validated configuration of `plan path`, and checks shared with `plan split`.

use super::super::{estimate::Method, simulated::Span};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_tcpsim::formulas::{Control, Path};
use longhaul_units::{Bytes, Ratio, Time};

/// Validated configuration of `plan path`.
#[derive(Debug)]
pub(crate) struct Config {
    pub(super) path: Path,
    pub(super) controls: Vec<Control>,
    /// Number of streams; `None` means as many as fill the link.
    pub(super) streams: Option<u32>,
    pub(super) size: Option<Bytes>,
    pub(super) initial_window: u32,
    pub(super) method: Method,
    pub(super) span: Option<Span>,
    /// Whether the text has each formula, with its source and its range.
    pub(super) prints_formulas: bool,
    pub(super) json: bool,
}

/// Refuses impossible round-trip times: every formula divides by them.
pub(in super::super) fn check_rtt(what: &str, rtt: Time) -> Result<()> {
    if (Time::from_micros(1)..=Time::from_secs(100)).contains(&rtt) {
        Ok(())
    } else {
        Err(Refusal::usage(format!(
            "{what} {}: a round trip takes 1us to 100s",
            rtt.exact()
        )))
    }
}

/// Refuses loss rates at which TCP does not work.
pub(in super::super) fn check_loss(what: &str, loss: Ratio) -> Result<f64> {
    if loss.get() <= 0.5 {
        Ok(loss.get())
    } else {
        Err(Refusal::usage(format!(
            "{what} {}: TCP does not work where more than 50% are lost",
            loss.percent()
        )))
    }
}

/// Parses `all`, or names separated by commas.
pub(in super::super) fn parse_controls(text: &str) -> Result<Vec<Control>> {
    if text == "all" {
        return Ok(Control::ALL.to_vec());
    }
    let names = text.split(',').map(|name| name.trim().parse());
    names
        .collect::<Result<_, _>>()
        .map_err(|error| Refusal::usage(format!("--cc: {error}")))
}
