// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other relays: what is known of them at this moment, how they are reached and checked, and connections to them that
//! stand ready.

pub(crate) mod check;
pub(crate) mod connection;
pub(crate) mod current;
mod events;
mod health;
pub(crate) mod peer;
mod place;
pub(crate) mod pool;
mod state;
