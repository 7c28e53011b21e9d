// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interception of TCP connections to other hosts (TPROXY). Connections bypass a relay that has ended.
//!
//! [`target`] names the connections to intercept. A [`rule_set::RuleSet`] is the kernel's configuration for one
//! listener: an nft table, routing for the packets that it diverts, and a lease. The rules divert nothing once the lease
//! has expired. [`thread::Interception`] renews the leases as long as every serving thread sends a [`heartbeat`], and
//! restores rules that other programs remove. [`flow`] identifies the connection of a held SYN, and [`held`] decides
//! which SYNs are held.
//!
//! ```
//! use longhaul_interception::target::Target;
//! use longhaul_linux::netfilter::Family;
//!
//! let target: Target = "10.0.0.0/8:80,443".parse().unwrap();
//! assert!(target.of_family(Family::Ip6).is_none());
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod arrivals;
pub mod flow;
pub mod heartbeat;
pub mod held;
pub mod rule_set;
mod rules;
pub mod target;
pub mod thread;
