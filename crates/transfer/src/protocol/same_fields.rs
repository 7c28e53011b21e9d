// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns a struct of the wire into one that other code works with, and back.

/// Converts two structs into each other, which have these fields. Does not compile once one of them has another field:
/// what that is to be on the wire, the protocol decides.
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

pub(super) use same_fields;
