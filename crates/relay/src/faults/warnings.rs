// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log lines about clients that a listener refused. Strangers cause them, so their number is
//! bounded.

use crate::faults::disagreement::Stranger;
use longhaul_interception::held::CLIENT_MAX;
use longhaul_protocol::networks::network;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};
use tracing::warn;

/// Time after which the same line is logged again.
const PAUSE: Duration = Duration::from_secs(600);
/// Lines of one listener in that time, one for each address and cause; another line reports the
/// overflow. Memory: under 1 KiB a listener.
const LINES_MAX: usize = 16;

/// Recent log lines of one listener.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    said: HashMap<(IpAddr, u8), Instant>,
    /// Time of the last overflow line.
    overflow: Option<Instant>,
}

/// Decision whether to log a line about a client.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    New,
    /// Log that the limit is exceeded.
    More,
    Nothing,
}

impl Warnings {
    /// Logs the reason for which `listener` refused `client`, unless it was logged recently.
    pub(crate) fn turned_away(&self, listener: &str, client: IpAddr, why: &Stranger) {
        let Some(words) = why.words() else {
            return;
        };
        let client = client.to_canonical();
        match self.line((network(client), why.kind()), Instant::now()) {
            Line::New => warn!("{listener}: {client} is turned away: {words}"),
            Line::More => {
                warn!("{listener}: more clients are turned away, and not named for some minutes")
            }
            Line::Nothing => {}
        }
    }

    /// Logs that connections bypass interception, unless it was logged recently. The cause is the
    /// number of `client`'s connections, or, without a client, of all connections.
    pub(crate) fn pass_by(&self, listener: &str, client: Option<IpAddr>) {
        const KIND: u8 = u8::MAX;
        let all = IpAddr::from([0; 4]);
        let key = client.map_or(all, |client| network(client.to_canonical()));
        let Line::New = self.line((key, KIND), Instant::now()) else {
            return;
        };
        match client {
            Some(client) => warn!(
                "{listener}: {client} has {CLIENT_MAX} connections on their way, or all that it may have: its others pass by"
            ),
            None => warn!(
                "{listener}: there is no room for more connections on their way: others pass by"
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
    fn logs_each_cause_once_per_interval() {
        let (warnings, now) = (Warnings::default(), Instant::now());
        assert_eq!(warnings.line(client(1), now), Line::New);
        assert_eq!(warnings.line(client(1), now), Line::Nothing);
        assert_eq!(warnings.line((client(1).0, 1), now), Line::New);
        assert_eq!(warnings.line(client(1), now + PAUSE), Line::New);
    }

    #[test]
    fn bounds_lines_from_many_clients() {
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
