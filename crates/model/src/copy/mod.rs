// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `longhaul copy` decides: which block goes next and on which stream ([`Work`]), and what must go again when a
//! stream breaks ([`Ledger`]).

mod ledger;
mod work;

pub use ledger::Ledger;
pub use work::{FILES_MAX, Missing, PARCEL_LEN, Parcel, Work};
