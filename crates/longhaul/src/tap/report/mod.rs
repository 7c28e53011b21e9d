// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `longhaul tap analyze -o` leaves: `result.json`, the data of the charts, and one HTML file that
//! needs no network.

mod charts;
mod course;
mod direction;
mod flows;
mod histogram;
mod html;
#[cfg(test)]
mod in_browser;
mod largest;
#[cfg(test)]
mod made_up;
mod method;
mod output;
mod quantity;
mod result;
mod strip;

pub(crate) use largest::Ranks;
pub(crate) use output::{Finished, Output, Plan, Sources, Writer};
pub(crate) use result::{Analysis, CaptureFile, DAMAGES_MAX, Damage, Others, VantagePoint};
