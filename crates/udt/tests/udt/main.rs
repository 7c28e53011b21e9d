// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDT between endpoints: over simulated paths, over hours, over real sockets, with libudt, with hostile peers, and the fuzz corpora.

mod corpus;
mod endpoints;
mod fairness;
mod hostile;
mod hours;
mod interoperation;
mod path_mtu;
mod path_switch;
mod refusals;
mod reordering;
mod sockets;
mod testbed;
mod throughput;
mod transfer;
