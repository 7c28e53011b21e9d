// SPDX-License-Identifier: MIT OR Apache-2.0
//! DECP among connections of this process's own, for as long as it has them.

use super::{account::Account, config::Config, enforcer::Enforcer, watch::Watch};
use anyhow::Result;
use longhaul_linux::clock;
use model::decp::{Law, Settings};
use std::{thread::sleep, time::Duration};
use units::Time;

/// Between two looks: an eighth of a round trip of 400 ms.
const INTERVAL: Time = Time::from_millis(50);

/// What holds caps, before there are connections.
pub(crate) struct Cooperation(Enforcer);

impl std::fmt::Debug for Cooperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cooperation")
    }
}

impl Cooperation {
    /// Must be called while this process has one thread. Exit code 3 if the rights for it are not there.
    pub(crate) fn prepare() -> Result<Self> {
        Enforcer::start(INTERVAL).map(Self)
    }

    /// Levels the connections that `filter` means, until it is over; caps are lifted then.
    pub(crate) fn level(mut self, filter: &str, is_over: impl Fn() -> bool) -> Result<()> {
        let config = Config::plain(filter, INTERVAL, Settings::default())?;
        let (mut watch, mut law) = (Watch::new(&config)?, Law::new(config.settings));
        let (mut account, began) = (Account::default(), clock::now());
        while !is_over() {
            let now = clock::now().since(began);
            super::round(now, &mut watch, &mut law, Some(&mut self.0), &mut account)?;
            sleep(Duration::from(INTERVAL));
        }
        self.0.end()
    }
}
