// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network that a scenario describes, decided before anything is built: hosts and their routes, what links do,
//! where servers listen and how senders send.

pub(crate) mod hosts;
pub(crate) mod link;
pub(crate) mod ports;
pub(crate) mod probe;
pub(crate) mod schedule;
pub(crate) mod sending;
pub(crate) mod topology;

pub(crate) use sending::Sending;
pub(crate) use topology::{Topology, Wire};
