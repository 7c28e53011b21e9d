// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both halves of a connection: what it has still to send or to hear of, and what arrived.

pub(crate) mod estimate;
pub(crate) mod loss;
pub(crate) mod receive_buffer;
pub(crate) mod receiving;
mod repeat;
pub(crate) mod send_buffer;
pub(crate) mod sending;
mod slots;
