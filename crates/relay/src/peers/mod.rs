// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other relays: how they are reached and checked, and connections to them that stand ready.

pub(crate) mod check;
pub(crate) mod connection;
mod events;
pub(crate) mod pool;
