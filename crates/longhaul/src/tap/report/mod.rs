// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `longhaul tap analyze -o` leaves: `result.json`, the data of the charts, and one HTML file that
//! needs no network.

mod course;
mod largest;
#[cfg(test)]
mod made_up;
mod output;
mod result;

pub(crate) use largest::Ranks;
pub(crate) use output::{Finished, Output, Plan, Sources, Writer};
pub(crate) use result::{Analysis, CaptureFile, DAMAGES_MAX, Damage, Others, VantagePoint};
