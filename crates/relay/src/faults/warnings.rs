// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines about clients that a listener turned away. Strangers cause them, so that their number is
//! bounded whatever comes.

use crate::faults::disagreement::Stranger;
use longhaul_command::note;
use longhaul_interception::held::CLIENT_MAX;
use longhaul_protocol::networks::network;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

/// After which time the same is said again.
const PAUSE: Duration = Duration::from_secs(600);
/// Lines of one listener in that time, one an address and cause; a further one says that there are
/// more. Memory: under 1 KiB a listener.
const LINES_MAX: usize = 16;

/// What one listener has said.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    said: HashMap<(IpAddr, u8), Instant>,
    /// When it was said that there are more.
    overflow: Option<Instant>,
}

/// What is to be said of a client.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    New,
    /// There are more than there is room for.
    More,
    Nothing,
}

impl Warnings {
    /// Says why `client` is not let in by `listener`, unless that was said of late.
    pub(crate) fn turned_away(&self, listener: &str, client: IpAddr, why: &Stranger) {
        let Some(words) = why.words() else {
            return;
        };
        let client = client.to_canonical();
        match self.line((network(client), why.kind()), Instant::now()) {
            Line::New => note!("longhaul relay: {listener}: {client} is turned away: {words}"),
            Line::More => note!(
                "longhaul relay: {listener}: more clients are turned away, and not named for some minutes"
            ),
            Line::Nothing => {}
        }
    }

    /// Says that what is to be intercepted passes by, unless that was said of late: because of `client`'s number, or of all
    /// clients'.
    pub(crate) fn pass_by(&self, listener: &str, client: Option<IpAddr>) {
        const KIND: u8 = u8::MAX;
        let all = IpAddr::from([0; 4]);
        let key = client.map_or(all, |client| network(client.to_canonical()));
        let Line::New = self.line((key, KIND), Instant::now()) else {
            return;
        };
        match client {
            Some(client) => note!(
                "longhaul relay: {listener}: {client} has {CLIENT_MAX} connections on their way, or all that it may have: its others pass by"
            ),
            None => note!(
                "longhaul relay: {listener}: there is no room for more connections on their way: others pass by"
            ),
        }
    }

    fn line(&self, key: (IpAddr, u8), now: Instant) -> Line {
        let mut state = self.0.lock();
        let fresh = |at: Instant| now.duration_since(at) < PAUSE;
        state.said.retain(|_, at| fresh(*at));
        if state.said.contains_key(&key) {
            return Line::Nothing;
        }
        if state.said.len() < LINES_MAX {
            state.said.insert(key, now);
            return Line::New;
        }
        match state.overflow.is_some_and(fresh) {
            true => Line::Nothing,
            false => {
                state.overflow = Some(now);
                Line::More
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(n: u8) -> (IpAddr, u8) {
        ([192, 0, 2, n].into(), 0)
    }

    #[test]
    fn says_each_cause_of_an_address_once_in_a_while() {
        let (warnings, now) = (Warnings::default(), Instant::now());
        assert_eq!(warnings.line(client(1), now), Line::New);
        assert_eq!(warnings.line(client(1), now), Line::Nothing);
        assert_eq!(warnings.line((client(1).0, 1), now), Line::New);
        assert_eq!(warnings.line(client(1), now + PAUSE), Line::New);
    }

    #[test]
    fn strangers_do_not_choose_how_much_is_said() {
        let (warnings, now) = (Warnings::default(), Instant::now());
        let lines: Vec<_> = (0..200).map(|n| warnings.line(client(n), now)).collect();
        assert!(lines[..LINES_MAX].iter().all(|line| *line == Line::New));
        assert_eq!(lines[LINES_MAX], Line::More);
        assert!(
            lines[LINES_MAX + 1..]
                .iter()
                .all(|line| *line == Line::Nothing)
        );
    }
}
