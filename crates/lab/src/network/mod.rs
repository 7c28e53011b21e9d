// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network of a scenario, derived before anything is built: hosts and routes, configurations of
//! links, ports of servers and options of senders.

pub(crate) mod link;
pub(crate) mod probe;
pub(crate) mod relay_names;
pub(crate) mod sockets;
pub(crate) mod tcp_settings;
pub(crate) mod topology;

pub(crate) use sockets::SenderOptions;
pub(crate) use topology::{AddressedLink, Topology, loopback};
