// SPDX-License-Identifier: MIT OR Apache-2.0
//! Database for one test.

use longhaul_leases::{Job, JobStore, Lease, NewTask, Token};
use longhaul_testprograms::postgres::Server;
use std::time::Duration;

/// Lease longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(3600);
/// Lease that has expired at once.
pub(crate) const EXPIRED: Duration = Duration::ZERO;

pub(crate) struct TestDatabase {
    pub(crate) url: String,
    pub(crate) store: JobStore,
}

impl TestDatabase {
    pub(crate) fn new() -> Self {
        let url = Server::shared().create_database();
        let store = JobStore::open(&url).unwrap();
        Self { url, store }
    }

    /// Connection of another machine.
    pub(crate) fn new_store(&self) -> JobStore {
        JobStore::open(&self.url).unwrap()
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        Server::shared().run_sql(database_name(&self.url), sql)
    }

    /// Job with these tasks, whose planning is done.
    pub(crate) fn planned_job(&self, tasks: &[NewTask]) -> Job {
        planned_job(&self.store, tasks)
    }
}

pub(crate) fn database_name(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}

pub(crate) fn planned_job(store: &JobStore, tasks: &[NewTask]) -> Job {
    let job = store.join(b"job", b"spec", &task("plan")).unwrap();
    let planner = only(store.acquire(job, "planner", 1, LONG).unwrap());
    for some in tasks.chunks(1000) {
        let added = store.add_tasks(planner.token, some).unwrap();
        assert_eq!(added, Some(some.len() as u64));
    }
    assert!(store.complete(planner.token, b"planned").unwrap());
    job
}

pub(crate) fn task(key: &str) -> NewTask {
    NewTask {
        key: key.into(),
        body: format!("body of {key}").into(),
        bytes: 10,
        ..NewTask::default()
    }
}

pub(crate) fn part_of(group: &str, key: &str) -> NewTask {
    NewTask {
        group: Some(group.into()),
        ..task(key)
    }
}

pub(crate) fn after(group: &str, key: &str) -> NewTask {
    NewTask {
        after: Some(group.into()),
        ..task(key)
    }
}

/// Tasks with these keys.
pub(crate) fn tasks<const N: usize>(keys: [&str; N]) -> Vec<NewTask> {
    keys.map(task).into()
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
