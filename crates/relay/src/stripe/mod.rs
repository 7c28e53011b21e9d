// SPDX-License-Identifier: MIT OR Apache-2.0
//! Striping: one client's connection over several legs between two relays.
//! `longhaul_protocol::stripe` assigns the bytes to legs; this module moves them.
//!
//! The requesting relay makes a [`outgoing_group::OutgoingGroup`]: the first leg carries the
//! connection as any other. Once [`growth`] finds that it moves much, the others join. The accepting relay registers
//! the group's identifier in its [`incoming_groups::IncomingGroups`], where joining legs find the session,
//! whichever worker accepts them. At both ends the legs form a [`bundle::Bundle`]. Each sender uses as many of them as
//! its [`demand`] is. `transfer` moves the bytes of a tunnel; a library reads and writes a [`stream::GroupStream`].

pub(crate) mod bundle;
pub(crate) mod choice;
pub(crate) mod demand;
pub(crate) mod growth;
pub(crate) mod incoming_groups;
pub(crate) mod outgoing_group;
pub(crate) mod receiver;
pub(crate) mod sender;
pub(crate) mod stream;
