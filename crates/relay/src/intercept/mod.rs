// SPDX-License-Identifier: MIT OR Apache-2.0
//! Taking connections in that were never meant for the relay: what is intercepted, the rules for
//! it, and the lease on which they hold.

mod claim;
pub(crate) mod flow;
pub(crate) mod keeper;
pub(crate) mod pulse;
mod rules;
pub(crate) mod target;
pub(crate) mod verify;

use target::Target;

/// The mark of the relay's own sockets, the same for all relays of a host: what carries it is not
/// intercepted. `"LO"` and zeroes.
pub(crate) const OWN_MARK: u32 = 0x4c4f_0000;

/// What a transparent listener intercepts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Intercept {
    /// Networks and ports, all of the listener's family; not empty.
    pub(crate) targets: Vec<Target>,
    /// This host's own connections too.
    pub(crate) local: bool,
    /// The client's SYN is answered once the destination has answered.
    pub(crate) verify: bool,
}
