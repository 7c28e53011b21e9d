// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network namespaces, and their devices, addresses, routes, queueing disciplines, settings and packet rules.

pub mod ack_pacing;
pub mod diversion;
pub mod ethtool;
pub mod interface;
pub mod interface_list;
pub mod netfilter;
pub mod netns;
pub mod queueing;
mod route_dump;
pub mod routes;
pub mod sysctl;
pub mod tun;
