// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue in front of the transmitter: its limit (`limit`) and its drop rule (`discipline`).

pub mod codel;
pub mod discipline;
pub(crate) mod limit;
pub mod red;
