// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a connection failed, in words: for clients, for other relays, and for the operator.

pub(crate) mod disagreement;
pub(crate) mod fault;
pub(crate) mod warnings;
