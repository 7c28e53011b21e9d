// SPDX-License-Identifier: MIT OR Apache-2.0
//! One client's connection over several legs between two relays. `longhaul_protocol::stripe` decides who
//! carries what; here bytes move.
//!
//! The relay that wants it makes a [`group::Group`]: the first leg carries the request, the others join
//! once it is accepted. The relay that is asked enters the group's id into its [`groups::Groups`], where
//! those that join find the session, whichever worker accepts them. At both ends the legs are a
//! [`trunk::Trunk`].

pub(crate) mod gatherer;
pub(crate) mod group;
pub(crate) mod groups;
pub(crate) mod spreader;
pub(crate) mod trunk;
