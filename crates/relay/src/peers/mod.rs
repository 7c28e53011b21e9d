// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other relays: their state, connections to them, checks of them, and pools of idle connections.

mod address;
pub(crate) mod check;
pub(crate) mod connection;
pub(crate) mod current;
mod events;
mod health;
pub(crate) mod peer;
pub(crate) mod pool;
mod state;
