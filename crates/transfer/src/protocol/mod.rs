// SPDX-License-Identifier: MIT OR Apache-2.0
//! What longhauls on two hosts say to each other, and what both know of it: below `copy` and `site`, which speak it.
//!
//! A driver tells an end what to do (`order`) and hears from it (`report`); the two ends of a copy exchange messages
//! ([`message`]) and blocks ([`block`]). Who comes to a site by its `address` shows a `token` before that
//! (`admission`).
//!
//! What is said has types of its own here, and becomes those of other crates where an end hears it: a change there does not
//! change the protocol. Two are the store's: a path, whose bytes are checked whenever one
//! is read, and the 32 bytes that name where a copy comes from.

/// Converts two structs into each other, which have these fields. Does not compile once one of them has another field:
/// what that is to be on the wire, the protocol decides. It stands above the modules that use it.
macro_rules! same_fields {
    ($wire:path, $own:path { $($field:ident),+ }) => {
        impl From<$own> for $wire {
            fn from(own: $own) -> Self {
                let $own { $($field),+ } = own;
                Self { $($field: $field.into()),+ }
            }
        }

        impl From<$wire> for $own {
            fn from(wire: $wire) -> Self {
                let $wire { $($field),+ } = wire;
                Self { $($field: $field.into()),+ }
            }
        }
    };
}

pub mod address;
pub mod admission;
pub mod block;
pub mod entry;
#[cfg(test)]
mod golden;
pub mod hello;
mod measured;
pub mod message;
pub mod options;
pub mod order;
pub mod preserve;
pub mod report;
pub mod sources;
pub mod spread;
pub mod token;

pub use hello::PROTOCOL_VERSION;
