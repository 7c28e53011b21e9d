// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is let in, and how much each may have: connections, descriptors, memory, lookups of names, passwords, rates.

pub(crate) mod accounts;
pub(crate) mod budget;
pub(crate) mod lookups;
pub(crate) mod memory;
pub(crate) mod penalties;
pub(crate) mod rate;
pub(crate) mod shortage;
pub(crate) mod victims;
