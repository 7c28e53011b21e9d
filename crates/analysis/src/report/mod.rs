// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `longhaul tap analyze -o` leaves: `result.json`, the data of the charts, and one HTML file that
//! needs no network.

mod between;
mod by_line;
mod charts;
mod course;
mod direction;
mod excerpts;
mod finished;
mod flows;
mod histogram;
mod html;
#[cfg(test)]
pub(crate) mod in_browser;
mod largest;
#[cfg(test)]
pub(crate) mod made_up;
mod method;
mod output;
pub(crate) mod paired;
mod quantity;
mod releases;
mod result;
mod strip;

pub(crate) use direction::{Shown, name as direction_name};
pub use finished::Finished;
pub(crate) use html::{STYLE, script};
pub(crate) use largest::Ranks;
pub(crate) use output::{Output, Plan, Sources, Writer};
pub(crate) use result::{Analysis, CaptureFile, DAMAGES_MAX, Damage, SCHEMA, VantagePoint};
