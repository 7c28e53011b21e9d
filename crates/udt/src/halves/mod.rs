// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sender and receiver of a connection, with their buffers, loss lists and estimators.

pub(crate) mod estimators;
mod gaps;
pub(crate) mod loss_list;
mod packet_ring;
pub(crate) mod receive_buffer;
pub(crate) mod receiver;
mod retransmit_timer;
pub(crate) mod send_buffer;
pub(crate) mod sender;
