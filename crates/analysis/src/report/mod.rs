// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `longhaul tap analyze -o` leaves: `result.json`, the data of the charts, and one HTML file that
//! needs no network.

#[cfg(test)]
pub(crate) mod made_up;
mod output;
mod page;
mod result;

pub(crate) use output::{Output, Plan, Sources, Writer};
#[cfg(test)]
pub(crate) use page::in_browser;
pub(crate) use page::{
    direction::{Shown, name as direction_name},
    html::{STYLE, of_courses},
    paired,
};
pub use result::finished::Finished;
pub(crate) use result::finished::RESULT;
pub(crate) use result::largest::Ranks;
pub(crate) use result::{Analysis, CaptureFile, DAMAGES_MAX, Damage, SCHEMA, VantagePoint};
