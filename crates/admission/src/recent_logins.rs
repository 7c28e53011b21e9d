// SPDX-License-Identifier: MIT OR Apache-2.0
//! Logins that were accepted lately, by client address.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

/// The time for which an accepted login is remembered: people come back within a day.
const REMEMBERED_FOR: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of logins, about 60 bytes each. To make room for another, the oldest is removed.
const LOGINS_MAX: usize = 4096;

/// The logins of one listener, as hashes of user and password, with the times of their last acceptance.
#[derive(Debug, Default)]
pub(crate) struct RecentLogins(HashMap<(IpAddr, u64), Instant>);

impl RecentLogins {
    /// Whether this login was accepted lately from `client`.
    pub(crate) fn contains(&self, client: IpAddr, login: u64, now: Instant) -> bool {
        let accepted = self.0.get(&(client, login));
        accepted.is_some_and(|at| now.duration_since(*at) < REMEMBERED_FOR)
    }

    pub(crate) fn insert(&mut self, client: IpAddr, login: u64, now: Instant) {
        if self.0.len() >= LOGINS_MAX && !self.0.contains_key(&(client, login)) {
            self.remove_oldest();
        }
        self.0.insert((client, login), now);
    }

    pub(crate) fn remove(&mut self, client: IpAddr, login: u64) {
        self.0.remove(&(client, login));
    }

    fn remove_oldest(&mut self) {
        let oldest = self.0.iter().min_by_key(|(_, at)| **at);
        if let Some(key) = oldest.map(|(key, _)| *key) {
            self.0.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_a_login_after_a_day_or_a_failure() {
        let (mut logins, now) = (RecentLogins::default(), Instant::now());
        let client = IpAddr::from([192, 0, 2, 1]);
        logins.insert(client, 7, now);
        assert!(logins.contains(client, 7, now + REMEMBERED_FOR / 2));
        assert!(!logins.contains(client, 7, now + REMEMBERED_FOR));
        assert!(!logins.contains(client, 8, now));
        assert!(!logins.contains([192, 0, 2, 2].into(), 7, now));
        logins.remove(client, 7);
        assert!(!logins.contains(client, 7, now));
    }

    #[test]
    fn bounds_the_number_of_logins() {
        let (mut logins, now) = (RecentLogins::default(), Instant::now());
        let client = IpAddr::from([192, 0, 2, 1]);
        for login in 0..2 * LOGINS_MAX as u64 {
            logins.insert(client, login, now + Duration::from_millis(login));
        }
        assert_eq!(logins.0.len(), LOGINS_MAX);
        assert!(logins.contains(client, 2 * LOGINS_MAX as u64 - 1, now));
    }
}
