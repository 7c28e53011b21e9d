// SPDX-License-Identifier: MIT OR Apache-2.0
//! Penalties for wrong passwords. After each, the next password for the same user from the same client address is
//! checked later, however many connections the client has. Other users of that address, which may be a whole site
//! behind address translation, do not wait.
//!
//! The number of guesses stays bounded: an address has a queue for each of its first `USERS_MAX` users with wrong
//! passwords, and one queue for all other user names. Whether a user exists makes no difference, or the waits would
//! reveal it. A login that was accepted lately never waits: it is no guess.

use crate::recent_logins::RecentLogins;
use parking_lot::Mutex;
use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher as _, RandomState},
    net::IpAddr,
    time::{Duration, Instant},
};

/// The wait after the first wrong password; it doubles with each further one.
pub const DELAY_MIN: Duration = Duration::from_millis(100);
/// The longest wait between two passwords of one queue. So a user gets at least seven attempts a minute.
pub const DELAY_MAX: Duration = Duration::from_secs(8);
/// The longest wait of one connection, shorter than the time allowed for a handshake. A connection that would wait
/// longer, behind others of its queue, is refused at once. More than [`DELAY_MAX`]: whoever is first in a queue is
/// always checked.
const WAIT_MAX: Duration = Duration::from_secs(9);
/// The time without a wrong password after which a queue is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// Maximum number of queues in the table, about 300 bytes each. To make room for another, the address that failed longest
/// ago is removed.
const QUEUES_MAX: usize = 4096;
/// Maximum number of users of one address with a queue of their own.
const USERS_MAX: usize = 8;
/// Wrong passwords that a queue remembers, so that it can tell a repetition from a new guess.
const WRONG_MAX: usize = 4;

/// The penalties of one listener.
#[derive(Debug, Default)]
pub struct Penalties {
    state: Mutex<State>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct State {
    clients: HashMap<IpAddr, Client>,
    accepted: RecentLogins,
}

/// A user name and password that a client sent, as hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Login {
    /// Hash of the user name.
    pub user: u64,
    /// Hash of user name and password.
    pub credentials: u64,
}

/// The queues of one address.
#[derive(Debug, Default)]
struct Client {
    /// By user, at most [`USERS_MAX`].
    users: HashMap<u64, Queue>,
    /// The queue of all other users.
    others: Option<Queue>,
}

/// Passwords that wait until they are checked.
#[derive(Debug)]
struct Queue {
    failures: u32,
    last_failure: Instant,
    /// The latest different wrong logins. A client with a stale password repeats it: that is no new guess, and must not
    /// delay new passwords as if it were.
    wrong: VecDeque<u64>,
    /// The time at which the next repetition of one of `wrong` is checked.
    next_repetition: Instant,
    /// The time at which the next other password is checked.
    next_new: Instant,
    /// The last login that was not one of `wrong`, and the time of its check. Equal ones are checked with it.
    waiting: Option<(u64, Instant)>,
}

impl Penalties {
    /// Returns the hashes of a login. `digest` is that of user and password.
    pub fn login(&self, user: &[u8], digest: &[u8; 32]) -> Login {
        Login {
            user: self.hasher.hash_one(user),
            credentials: self.hasher.hash_one(digest),
        }
    }

    /// Returns the time that `client` waits before its login is checked, and delays later checks by up to `delay_max`.
    /// `None` if the wait would be too long: the connection is refused.
    pub fn wait(
        &self,
        client: IpAddr,
        login: Login,
        delay_max: Duration,
        now: Instant,
    ) -> Option<Duration> {
        let mut state = self.state.lock();
        if delay_max.is_zero() || state.accepted.contains(client, login.credentials, now) {
            return Some(Duration::ZERO);
        }
        let queues = state.clients.get_mut(&client);
        match queues.and_then(|client| client.queue(login.user, now)) {
            Some(queue) => queue.wait(login.credentials, delay_max, now),
            None => Some(Duration::ZERO),
        }
    }

    /// Counts a wrong password of `client`. The login no longer passes without a wait, if it did.
    pub fn fail(&self, client: IpAddr, login: Login, delay_max: Duration, now: Instant) {
        let mut state = self.state.lock();
        state.accepted.remove(client, login.credentials);
        let queues = state.clients.get_mut(&client);
        if queues.is_none_or(|queues| queues.queue(login.user, now).is_none()) {
            make_room(&mut state.clients, client);
        }
        let queues = state.clients.entry(client).or_default();
        let queue = queues.queue_or_new(login.user, now);
        queue.fail(login.credentials, delay_max, now);
    }

    /// Clears the penalty of the user at `client` after a correct password. The queue of many users stays: otherwise a
    /// client with an account could try passwords of other users without a wait.
    pub fn succeed(&self, client: IpAddr, login: Login, now: Instant) {
        let mut state = self.state.lock();
        state.accepted.insert(client, login.credentials, now);
        if let Some(queues) = state.clients.get_mut(&client) {
            queues.users.remove(&login.user);
        }
    }

    /// Forgets all wrong passwords: those of new users may be right. Accepted logins stay: a login is verified each
    /// time.
    pub fn clear(&self) {
        self.state.lock().clients.clear();
    }
}

impl Client {
    /// Returns the queue in which `user` waits, if there is one.
    fn queue(&mut self, user: u64, now: Instant) -> Option<&mut Queue> {
        self.forget_old(now);
        if self.has_own_queue(user) {
            self.users.get_mut(&user)
        } else {
            self.others.as_mut()
        }
    }

    fn queue_or_new(&mut self, user: u64, now: Instant) -> &mut Queue {
        self.forget_old(now);
        if self.has_own_queue(user) {
            self.users.entry(user).or_insert_with(|| Queue::new(now))
        } else {
            self.others.get_or_insert_with(|| Queue::new(now))
        }
    }

    /// Whether `user` has a queue, or gets one at a wrong password.
    fn has_own_queue(&self, user: u64) -> bool {
        self.users.len() < USERS_MAX || self.users.contains_key(&user)
    }

    fn forget_old(&mut self, now: Instant) {
        self.users.retain(|_, queue| queue.is_recent(now));
        self.others.take_if(|queue| !queue.is_recent(now));
    }

    fn queue_count(&self) -> usize {
        self.users.len() + usize::from(self.others.is_some())
    }

    fn last_failure(&self) -> Option<Instant> {
        let queues = self.users.values().chain(&self.others);
        queues.map(|queue| queue.last_failure).max()
    }
}

impl Queue {
    fn new(now: Instant) -> Self {
        Self {
            failures: 0,
            last_failure: now,
            wrong: VecDeque::new(),
            next_repetition: now,
            next_new: now,
            waiting: None,
        }
    }

    fn is_recent(&self, now: Instant) -> bool {
        now.duration_since(self.last_failure) < FORGET_AFTER
    }

    fn wait(&mut self, credentials: u64, delay_max: Duration, now: Instant) -> Option<Duration> {
        let check_at = match self.waiting {
            Some((waiting, at)) if waiting == credentials && at >= now => return Some(at - now),
            _ => (*self.next_check(credentials)).max(now),
        };
        let wait = check_at - now;
        if wait > WAIT_MAX {
            return None;
        }
        *self.next_check(credentials) = check_at + delay(self.failures, delay_max);
        if !self.wrong.contains(&credentials) {
            self.waiting = Some((credentials, check_at));
        }
        Some(wait)
    }

    /// Returns the time of the next check of such a login.
    fn next_check(&mut self, credentials: u64) -> &mut Instant {
        if self.wrong.contains(&credentials) {
            &mut self.next_repetition
        } else {
            &mut self.next_new
        }
    }

    fn fail(&mut self, credentials: u64, delay_max: Duration, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.last_failure = now;
        let next = now + delay(self.failures, delay_max);
        self.next_new = self.next_new.max(next);
        self.next_repetition = self.next_repetition.max(next);
        self.waiting.take_if(|(waiting, _)| *waiting == credentials);
        self.remember(credentials);
    }

    fn remember(&mut self, credentials: u64) {
        if !self.wrong.contains(&credentials) {
            self.wrong.truncate(WRONG_MAX - 1);
            self.wrong.push_front(credentials);
        }
    }
}

/// Makes room for one queue more, for `client`.
fn make_room(clients: &mut HashMap<IpAddr, Client>, client: IpAddr) {
    if clients.values().map(Client::queue_count).sum::<usize>() < QUEUES_MAX {
        return;
    }
    let others = clients.iter().filter(|(address, _)| **address != client);
    let oldest = others.min_by_key(|(_, queues)| queues.last_failure());
    if let Some(address) = oldest.map(|(address, _)| *address) {
        clients.remove(&address);
    }
}

fn delay(failures: u32, delay_max: Duration) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    (DELAY_MIN * (1 << doublings)).min(delay_max)
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

    const fn login(user: u64, password: u64) -> Login {
        let credentials = user << 32 | password;
        Login { user, credentials }
    }

    /// The penalties of a listener at one time, and client 1.
    struct Setup {
        penalties: Penalties,
        now: Instant,
    }

    impl Setup {
        fn new() -> Self {
            let (penalties, now) = (Penalties::default(), Instant::now());
            Self { penalties, now }
        }

        fn wait(&self, login: Login) -> Option<Duration> {
            self.penalties.wait(client(1), login, DELAY_MAX, self.now)
        }

        /// Waits as `login` has to, and fails. Returns the wait.
        fn guess(&mut self, login: Login) -> Option<Duration> {
            let wait = self.wait(login)?;
            self.now += wait;
            self.penalties.fail(client(1), login, DELAY_MAX, self.now);
            Some(wait)
        }
    }

    #[test]
    fn doubles_the_wait_with_each_wrong_password() {
        for repeats in [true, false] {
            let mut setup = Setup::new();
            for (n, wait) in [0, 100, 200, 400, 800, 1600, 3200, 6400, 8000, 8000]
                .into_iter()
                .enumerate()
            {
                let password = if repeats { 0 } else { n as u64 };
                assert_eq!(setup.guess(login(1, password)), Some(ms(wait)));
            }
            let Setup { penalties, now } = setup;
            let wait = |n, now| penalties.wait(client(n), login(1, 99), DELAY_MAX, now);
            assert_eq!(wait(2, now), Some(ms(0)), "another address");
            assert_eq!(wait(1, now), Some(ms(8000)));
            assert_eq!(wait(1, now + FORGET_AFTER), Some(ms(0)));
        }
    }

    #[test]
    fn clears_the_penalty_after_a_correct_password() {
        let mut setup = Setup::new();
        setup.guess(login(1, 0));
        setup.penalties.succeed(client(1), login(1, 1), setup.now);
        assert_eq!(setup.wait(login(1, 2)), Some(ms(0)));
    }

    #[test]
    fn keeps_the_penalty_for_wrong_passwords_of_other_users() {
        let mut setup = Setup::new();
        setup.guess(login(2, 0));
        setup.penalties.succeed(client(1), login(1, 0), setup.now);
        assert_eq!(setup.wait(login(2, 1)), Some(ms(100)));
    }

    #[test]
    fn stale_password_of_one_user_does_not_delay_others() {
        let mut setup = Setup::new();
        (0..20).for_each(|_| {
            setup.guess(login(1, 0));
        });
        for user in 2..50 {
            assert_eq!(setup.wait(login(user, 0)), Some(ms(0)), "{user}");
        }
    }

    /// A client with a stale password may send it again as often as it likes.
    #[test]
    fn repeated_stale_password_does_not_shut_out_a_new_one() {
        let mut setup = Setup::new();
        (0..20).for_each(|_| {
            setup.guess(login(1, 0));
        });
        let unchecked = (0..50).filter(|_| setup.wait(login(1, 0)).is_none());
        assert!(unchecked.count() > 40, "repetitions are bounded");
        for connection in 0..6 {
            assert_eq!(setup.wait(login(1, 1)), Some(ms(8000)), "{connection}");
        }
        setup.now += ms(8000);
        setup.penalties.succeed(client(1), login(1, 1), setup.now);
        (0..20).for_each(|_| {
            setup.guess(login(1, 0));
        });
        assert_eq!(setup.wait(login(1, 1)), Some(ms(0)), "accepted lately");
    }

    /// Passwords change: what was accepted lately may be wrong now.
    #[test]
    fn login_that_became_wrong_waits() {
        let mut setup = Setup::new();
        setup.penalties.succeed(client(1), login(1, 0), setup.now);
        assert_eq!(setup.guess(login(1, 0)), Some(ms(0)));
        assert_eq!(setup.guess(login(1, 0)), Some(ms(100)));
        setup.penalties.clear();
        assert_eq!(setup.wait(login(1, 0)), Some(ms(0)));
    }

    #[test]
    fn many_user_names_share_one_queue() {
        let mut setup = Setup::new();
        let began = setup.now;
        let attempts = (0..1000).filter(|user| {
            setup.guess(login(*user, 0));
            setup.now - began < ms(60_000)
        });
        let attempts = attempts.count();
        assert!((10..30).contains(&attempts), "{attempts} in a minute");
    }

    /// Many concurrent connections get no more attempts than one connection.
    #[test]
    fn delays_all_connections_of_one_user() {
        let mut setup = Setup::new();
        (0..5).for_each(|password| {
            setup.guess(login(1, password));
        });
        let waits: Vec<_> = (10..110).map(|n| setup.wait(login(1, n))).collect();
        let served = waits.iter().flatten().count();
        assert_eq!(served, 5, "of 100 in nine seconds: {waits:?}");
        assert!(waits.iter().flatten().all(|wait| *wait <= WAIT_MAX));
    }

    #[test]
    fn no_delay_without_a_maximum() {
        let (penalties, now) = (Penalties::default(), Instant::now());
        for _ in 0..20 {
            let wait = penalties.wait(client(1), login(1, 0), Duration::ZERO, now);
            assert_eq!(wait, Some(ms(0)));
            penalties.fail(client(1), login(1, 0), Duration::ZERO, now);
        }
    }

    #[test]
    fn bounds_the_number_of_queues() {
        const NEWEST: u32 = QUEUES_MAX as u32 + 100;
        let (penalties, now) = (Penalties::default(), Instant::now());
        for n in 1..NEWEST + 1 {
            let (user, now) = (login(n.into(), 0), now + ms(n.into()));
            penalties.fail(client(n), user, DELAY_MAX, now);
            penalties.fail(client(0), user, DELAY_MAX, now);
        }
        let state = penalties.state.lock();
        let queues = state.clients.values().map(Client::queue_count);
        assert_eq!(queues.sum::<usize>(), QUEUES_MAX);
        assert_eq!(state.clients[&client(0)].queue_count(), USERS_MAX + 1);
        assert!(state.clients.contains_key(&client(NEWEST)));
    }
}
