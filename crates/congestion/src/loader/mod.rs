// SPDX-License-Identifier: MIT OR Apache-2.0
//! Brings congestion controls to the running kernel, and takes them away.
//!
//! A load is built in a directory of its own (`new-NAME`, `register.rs`) and gets its name when it is
//! complete, so that one that was cut short is known as such and is taken away by the next that comes
//! along. Sockets that use a congestion control hold its programs: taking it away (`withdraw.rs`) only
//! keeps new ones from choosing it. What is `tied.rs` to a process is pinned nowhere.

mod hold;
mod load;
mod loaded;
#[cfg(test)]
mod place;
mod prepare;
mod register;
mod replace;
mod tied;
mod withdraw;

pub use hold::{Hold, hold};
pub use load::{Outcome, load, permitted, unload};
pub use loaded::{Loaded, Program, Request, all_loaded, loaded};
pub(crate) use prepare::prepare;
pub(crate) use tied::tie_as;
pub use tied::{Tied, tie};
pub use withdraw::clean;
