// SPDX-License-Identifier: MIT OR Apache-2.0
//! `report.html`, and what the page of `longhaul tap diff` has of it.

pub(super) mod between;
mod charts;
pub(super) mod direction;
mod flows;
mod histogram;
pub(super) mod html;
#[cfg(test)]
pub(crate) mod in_browser;
mod method;
pub(crate) mod paired;
mod quantity;
mod releases;
mod strip;
