// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other relays: their state, connections to them, checks of them, and pools of idle connections.

pub(crate) mod check;
pub(crate) mod connection;
pub(crate) mod current;
mod events;
mod health;
pub(crate) mod peer;
mod place;
pub(crate) mod pool;
mod state;
