// SPDX-License-Identifier: MIT OR Apache-2.0
//! The congestion controls that can be simulated, by name.

use model::tcp::{congestion_control::CongestionControl, cubic::Cubic, reno::Reno};

/// Makes a congestion control for a connection that is `paced` or not.
pub(super) type Make = fn(paced: bool) -> Box<dyn CongestionControl>;

const ALL: [(&str, Make); 2] = [
    ("reno", |_| Box::new(Reno)),
    ("cubic", |paced| Box::new(Cubic::new(paced))),
];

/// The one called `name`.
pub(super) fn algorithm(name: &str) -> Option<Make> {
    ALL.iter()
        .find_map(|(known, make)| (*known == name).then_some(*make))
}

/// All names, for a message.
pub(super) fn names() -> String {
    ALL.map(|(name, _)| name).join(", ")
}
