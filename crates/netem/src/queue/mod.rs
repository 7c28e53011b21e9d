// SPDX-License-Identifier: MIT OR Apache-2.0
//! What waits for the transmitter: how much may (`limit`), and which rule drops it (`discipline`).

pub mod codel;
pub mod discipline;
pub(crate) mod limit;
pub mod red;
