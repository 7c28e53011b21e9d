// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDT between endpoints: simulated hours and paths, real sockets, libudt, hostile peers, and the packets of fuzzing.

mod corpus;
mod endpoints;
mod fairness;
mod hostile;
mod hours;
mod interoperation;
mod path_mtu;
mod path_switch;
mod sockets;
mod testbed;
mod throughput;
mod transfer;
