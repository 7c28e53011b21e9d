// SPDX-License-Identifier: MIT OR Apache-2.0
//! Penalties for wrong passwords. After each, a client address waits longer before its next password is checked,
//! however many connections it has.

use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    net::IpAddr,
    time::{Duration, Instant},
};

/// The wait after the first wrong password; it doubles with each further one.
const DELAY_MIN: Duration = Duration::from_millis(100);
/// The longest wait between two passwords of one address. So an address gets at least seven attempts a minute.
pub const DELAY_MAX: Duration = Duration::from_secs(8);
/// The longest wait of one connection, shorter than the time allowed for a handshake. A connection that would wait
/// longer, behind others of its address, is refused at once.
const WAIT_MAX: Duration = Duration::from_secs(9);
/// The time without a wrong password after which an address is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// Maximum number of addresses in the table, about 100 bytes each. To make room for another, the address that failed
/// longest ago is removed.
const ADDRESSES_MAX: usize = 4096;

/// The penalties of one listener.
#[derive(Debug, Default)]
pub struct Penalties {
    table: Mutex<HashMap<IpAddr, Penalty>>,
    hasher: RandomState,
}

#[derive(Debug, Clone, Copy)]
struct Penalty {
    /// The hash of the user for whom the passwords were wrong; `None` if there were several users.
    user: Option<u64>,
    failures: u32,
    last_failure: Instant,
    /// The time at which the next password is checked.
    next_check: Instant,
}

impl Penalties {
    /// Returns the time that `client` waits before its password is checked, and delays its later checks. `None` if the
    /// wait would be too long: the connection is refused.
    pub fn wait(&self, client: IpAddr, now: Instant) -> Option<Duration> {
        let mut table = self.table();
        let Some(penalty) = table.get_mut(&client) else {
            return Some(Duration::ZERO);
        };
        if now.duration_since(penalty.last_failure) >= FORGET_AFTER {
            table.remove(&client);
            return Some(Duration::ZERO);
        }
        let check_at = penalty.next_check.max(now);
        let wait = check_at - now;
        if wait > WAIT_MAX {
            return None;
        }
        penalty.next_check = check_at + delay(penalty.failures);
        Some(wait)
    }

    /// Counts a wrong password of `client` for `user`.
    pub fn fail(&self, client: IpAddr, user: &[u8], now: Instant) {
        let user = self.hasher.hash_one(user);
        let mut table = self.table();
        make_room(&mut table, client);
        let penalty = table.entry(client).or_insert(Penalty {
            user: Some(user),
            failures: 0,
            last_failure: now,
            next_check: now,
        });
        penalty.user = penalty.user.filter(|before| *before == user);
        penalty.failures = penalty.failures.saturating_add(1);
        penalty.last_failure = now;
        penalty.next_check = penalty.next_check.max(now + delay(penalty.failures));
    }

    /// Clears the penalty of `client` after a correct password, if all its wrong ones were for the same user. Otherwise
    /// a client with an account could try passwords of other users without a wait.
    pub fn succeed(&self, client: IpAddr, user: &[u8]) {
        let user = Some(self.hasher.hash_one(user));
        let mut table = self.table();
        if table
            .get(&client)
            .is_some_and(|penalty| penalty.user == user)
        {
            table.remove(&client);
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<IpAddr, Penalty>> {
        self.table.lock()
    }
}

fn make_room(table: &mut HashMap<IpAddr, Penalty>, client: IpAddr) {
    if table.len() < ADDRESSES_MAX || table.contains_key(&client) {
        return;
    }
    let oldest = table.iter().min_by_key(|(_, penalty)| penalty.last_failure);
    if let Some(address) = oldest.map(|(address, _)| *address) {
        table.remove(&address);
    }
}

fn delay(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    (DELAY_MIN * (1 << doublings)).min(DELAY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn doubles_the_wait_with_each_wrong_password() {
        let (penalties, mut now) = (Penalties::default(), Instant::now());
        for wait in [0, 100, 200, 400, 800, 1600, 3200, 6400, 8000, 8000] {
            assert_eq!(penalties.wait(client(1), now), Some(ms(wait)));
            now += ms(wait);
            penalties.fail(client(1), b"me", now);
        }
        assert_eq!(
            penalties.wait(client(2), now),
            Some(ms(0)),
            "another address"
        );
        assert_eq!(penalties.wait(client(1), now + FORGET_AFTER), Some(ms(0)));
    }

    #[test]
    fn clears_the_penalty_after_a_correct_password() {
        let (penalties, now) = (Penalties::default(), Instant::now());
        penalties.fail(client(1), b"me", now);
        penalties.succeed(client(1), b"me");
        assert_eq!(penalties.wait(client(1), now), Some(ms(0)));
    }

    #[test]
    fn keeps_the_penalty_for_wrong_passwords_of_other_users() {
        let (penalties, now) = (Penalties::default(), Instant::now());
        for user in [&b"you"[..], b"me"] {
            penalties.fail(client(1), user, now);
            penalties.succeed(client(1), b"me");
        }
        assert_eq!(penalties.wait(client(1), now), Some(ms(200)));
    }

    /// Many concurrent connections get no more attempts than one connection.
    #[test]
    fn delays_all_connections_of_one_address() {
        let (penalties, now) = (Penalties::default(), Instant::now());
        (0..5).for_each(|_| penalties.fail(client(1), b"me", now));
        let waits: Vec<_> = (0..100).map(|_| penalties.wait(client(1), now)).collect();
        let served = waits.iter().flatten().count();
        assert_eq!(served, 5, "of 100 in nine seconds: {waits:?}");
        assert!(waits.iter().flatten().all(|wait| *wait <= WAIT_MAX));
    }

    #[test]
    fn bounds_the_number_of_addresses() {
        let (penalties, now) = (Penalties::default(), Instant::now());
        (0..2 * ADDRESSES_MAX as u32)
            .for_each(|n| penalties.fail(client(n), b"me", now + ms(n.into())));
        assert_eq!(penalties.table().len(), ADDRESSES_MAX);
        let newest = client(2 * ADDRESSES_MAX as u32 - 1);
        assert_ne!(penalties.wait(newest, now), Some(ms(0)));
    }
}
