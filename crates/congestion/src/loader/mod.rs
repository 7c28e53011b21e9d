// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads congestion controls into the running kernel, and unloads them.
//!
//! A load is built in a draft directory (`new-NAME`, `register.rs`), which is renamed when it is complete.
//! So an interrupted load is recognized, and the next operation removes it. Sockets that use a congestion
//! control keep its programs: unloading (`withdraw.rs`) only prevents new sockets from choosing it. A
//! registration of `transient.rs` is not pinned, and ends with its process.

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

pub use crate::program::Program;
pub use lease::{Lease, acquire};
pub use load::{Outcome, load, permitted, unload};
pub use loaded::{Loaded, Request, all_loaded, loaded};
pub(crate) use prepare::prepare;
pub(crate) use transient::register_transient_as;
pub use transient::{TransientCc, register_transient};
pub use withdraw::clean;
