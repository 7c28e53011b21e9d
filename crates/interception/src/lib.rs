// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes in TCP connections that were meant for others (TPROXY), and lets them pass when the taker is gone.
//!
//! [`target`] says what is intercepted. A [`rule_set::RuleSet`] is what the kernel gets for one listener: an nft table,
//! routing for what it diverts, and a lease on which the rules hold. [`thread::Interception`] renews the leases as long
//! as all threads that serve have a [`heartbeat`], and puts back what others remove. [`flow`] tells which connection a
//! held SYN is of, [`held`] decides which SYNs are held.
//!
//! ```
//! use longhaul_interception::target::Target;
//!
//! let target: Target = "10.0.0.0/8:80,443".parse().unwrap();
//! assert!(target.of_family(false).is_none());
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod flow;
pub mod heartbeat;
pub mod held;
pub mod rule_set;
mod rules;
pub mod target;
pub mod thread;
