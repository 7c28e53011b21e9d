// SPDX-License-Identifier: MIT OR Apache-2.0
//! The congestion controls that can be simulated, by name.

use model::tcp::{congestion_control::CongestionControl, cubic::Cubic, reno::Reno};

/// A new one called `name`, for a connection that is `paced` or not.
pub(super) fn algorithm(name: &str, paced: bool) -> Option<Box<dyn CongestionControl>> {
    match name {
        "reno" => Some(Box::new(Reno)),
        "cubic" => Some(Box::new(Cubic::new(paced))),
        _ => None,
    }
}

/// All names, for a message.
pub(super) fn names() -> String {
    "reno, cubic".to_owned()
}
