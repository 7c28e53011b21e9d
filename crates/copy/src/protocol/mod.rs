// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol between longhaul processes on different hosts. The modules `copy` and `site` use it.
//!
//! The coordinator sends an endpoint its instructions ([`control`]) and receives its reports ([`report`]). The two
//! endpoints of a copy exchange messages ([`message`]) and blocks ([`block`]). A client that connects to a site by its
//! [`address`] authenticates with a [`token`] first ([`auth`]).
//!
//! Messages have types of their own, which are converted into those of other crates on receipt: a change in another
//! crate does not change the protocol. Two types are the store's: a path, whose bytes are checked whenever one is read,
//! and the 32 bytes that identify the origin of a copy.

/// Implements the conversions between two structs with the same fields. Does not compile if one of them has a further
/// field: whether that field goes on the wire is a decision about the protocol. The macro precedes the modules that use
/// it.
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
pub mod auth;
pub mod block;
pub mod control;
pub mod entry;
#[cfg(test)]
mod golden;
pub mod hello;
mod measured;
pub mod message;
pub mod options;
pub mod preserve;
pub mod report;
pub mod sections;
pub mod sources;
pub mod spread;
pub mod token;

pub use hello::PROTOCOL_VERSION;
