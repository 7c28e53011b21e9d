// SPDX-License-Identifier: MIT OR Apache-2.0
//! `report.html`, and its parts that the page of `longhaul tap diff` uses.

mod ack_clocking;
#[cfg(test)]
pub(crate) mod browser_tests;
mod charts;
pub(super) mod direction;
mod flows;
mod histogram;
pub(super) mod html;
mod method;
pub(crate) mod paired;
mod timeline;
pub(super) mod two_point;
mod udp_flows;
mod units;
