// SPDX-License-Identifier: MIT OR Apache-2.0
//! Brings congestion controls to the running kernel, and takes them away.
//!
//! A load is built in a directory of its own (`new-NAME`, `register.rs`) and gets its name when it is
//! complete, so that one that was cut short is known as such and is taken away by the next that comes
//! along. Sockets that use a congestion control hold its programs: taking it away (`withdraw.rs`) only
//! keeps new ones from choosing it. What is `transient.rs` to a process is pinned nowhere.

mod lease;
mod load;
mod loaded;
mod prepare;
mod register;
mod replace;
#[cfg(test)]
mod test_guard;
mod transient;
mod withdraw;

pub use lease::{Lease, acquire};
pub use load::{Outcome, load, permitted, unload};
pub use loaded::{Loaded, Program, Request, all_loaded, loaded};
pub(crate) use prepare::prepare;
pub(crate) use transient::register_transient_as;
pub use transient::{TransientCc, register_transient};
pub use withdraw::clean;
