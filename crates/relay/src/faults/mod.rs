// SPDX-License-Identifier: MIT OR Apache-2.0
//! Causes of failed connections, described for clients, for other relays and for the operator.

pub(crate) mod fault;
pub(crate) mod limited_leg;
pub(crate) mod misconfiguration;
pub(crate) mod warnings;
