// SPDX-License-Identifier: MIT OR Apache-2.0
//! Database for one test.

use longhaul_leases::{Board, Job, Lease, NewExtent, Token};
use longhaul_testbed::postgres::Server;
use std::{
    thread::sleep,
    time::{Duration, Instant},
};

/// Lease longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(3600);
/// Lease that has expired at once.
pub(crate) const OVER: Duration = Duration::ZERO;

/// Limit after which a test counts as hung. Nothing else depends on it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until the condition is true.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "waited too long for {what}");
        sleep(Duration::from_millis(2));
    }
}

pub(crate) struct Ground {
    pub(crate) url: String,
    pub(crate) board: Board,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let url = Server::shared().database();
        let board = Board::open(&url).unwrap();
        Self { url, board }
    }

    /// Connection of another machine.
    pub(crate) fn board(&self) -> Board {
        Board::open(&self.url).unwrap()
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        Server::shared().run(database(&self.url), sql)
    }

    /// Job with these tasks, whose planning is done.
    pub(crate) fn planned(&self, extents: &[NewExtent]) -> Job {
        planned(&self.board, extents)
    }
}

pub(crate) fn database(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}

pub(crate) fn planned(board: &Board, extents: &[NewExtent]) -> Job {
    let job = board.join(b"job", b"spec", &extent("plan")).unwrap();
    let planner = only(board.take(job, "planner", 1, LONG).unwrap());
    for some in extents.chunks(1000) {
        let added = board.add(planner.token, some).unwrap();
        assert_eq!(added, Some(some.len() as u64));
    }
    assert!(board.done(planner.token, b"planned").unwrap());
    job
}

pub(crate) fn extent(key: &str) -> NewExtent {
    NewExtent {
        key: key.into(),
        body: format!("body of {key}").into(),
        bytes: 10,
        ..NewExtent::default()
    }
}

pub(crate) fn part_of(group: &str, key: &str) -> NewExtent {
    NewExtent {
        group: Some(group.into()),
        ..extent(key)
    }
}

pub(crate) fn after(group: &str, key: &str) -> NewExtent {
    NewExtent {
        after: Some(group.into()),
        ..extent(key)
    }
}

/// Tasks with these keys.
pub(crate) fn extents<const N: usize>(keys: [&str; N]) -> Vec<NewExtent> {
    keys.map(extent).into()
}

pub(crate) fn only(mut leases: Vec<Lease>) -> Lease {
    assert_eq!(leases.len(), 1, "{leases:?}");
    leases.remove(0)
}

pub(crate) fn keys(leases: &[Lease]) -> Vec<String> {
    let text = |lease: &Lease| String::from_utf8(lease.key.clone()).unwrap();
    leases.iter().map(text).collect()
}

pub(crate) fn tokens(leases: &[Lease]) -> Vec<Token> {
    leases.iter().map(|lease| lease.token).collect()
}
