// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast TCP can be over a path: the papers' models and their successors, a formula a file.
//!
//! A formula is a pure function of loss, round trip and windows, with a [`Formula`] that names its
//! source and range; asked outside of that it says so. Windows are in packets, times in seconds,
//! rates in bits a second of payload. [`prediction`] puts the right ones together for a
//! congestion control on a [`Path`], [`slow_start`] says how long a transfer takes, and [`chain`] where
//! relays belong. `docs/plan.md` has what each was off by against simulated and real TCP.

pub mod chain;
pub mod control;
mod formula;
mod path;
pub mod prediction;
pub mod receive_buffer;
pub mod relays;
pub mod slow_start;
pub mod streams;
pub mod window_limit;

pub use control::Control;
pub use formula::{Answer, Formula};
pub use path::{HEADERS, Path};
