// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both halves of a connection: what it has still to send or to hear of, and what arrived.

pub(crate) mod estimators;
pub(crate) mod loss_list;
mod packet_ring;
pub(crate) mod receive_buffer;
pub(crate) mod receiver;
mod retransmit_timer;
pub(crate) mod send_buffer;
pub(crate) mod sender;
