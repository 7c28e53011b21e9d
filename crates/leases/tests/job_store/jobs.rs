// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs: concurrent joins, isolation, limits and deletion.

use crate::test_database::{LONG, TestDatabase, after, only, part_of, task, tasks};
use longhaul_leases::{
    ACQUIRE_COUNT_MAX, ADD_COUNT_MAX, BODY_LEN_MAX, Error, JobStore, KEY_LEN_MAX, NAME_LEN_MAX,
    NewTask, Position, TTL_MAX,
};
use longhaul_testprograms::postgres::Server;
use std::{sync::Barrier, thread, time::Duration};

/// The tables and the job are created by all of them at once.
#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn concurrent_joins_share_one_job() {
    let url = Server::shared().create_database();
    let barrier = Barrier::new(8);
    let join = || {
        barrier.wait();
        let store = JobStore::open(&url).unwrap();
        store.join(b"job", b"spec", &task("plan")).unwrap()
    };
    let jobs: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(join)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(jobs.iter().all(|job| *job == jobs[0]));
    let store = JobStore::open(&url).unwrap();
    assert_eq!(store.jobs().unwrap().len(), 1);
    assert_eq!(store.status(jobs[0]).unwrap().open.tasks, 1);
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn job_exists_until_deleted() {
    let database = TestDatabase::new();
    let job = database.store.join(b"job", b"spec", &task("plan")).unwrap();
    assert!(database.store.exists(job).unwrap());
    database.store.delete_job(job).unwrap();
    assert!(!database.new_store().exists(job).unwrap());
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn rejects_joining_with_another_spec() {
    let database = TestDatabase::new();
    let job = database.store.join(b"job", b"spec", &task("plan")).unwrap();
    let again = database.new_store().join(b"job", b"spec", &task("other"));
    assert_eq!(again.unwrap(), job);
    let error = database
        .store
        .join(b"job", b"other", &task("plan"))
        .unwrap_err();
    assert!(matches!(error, Error::SpecMismatch), "{error}");
    let other = database
        .store
        .join(b"another", b"other", &task("plan"))
        .unwrap();
    assert_ne!(other, job);
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn jobs_are_isolated() {
    let database = TestDatabase::new();
    let store = &database.store;
    let one = store.join(b"one", b"", &part_of("group", "plan")).unwrap();
    let two = store.join(b"two", b"", &after("group", "plan")).unwrap();
    assert_eq!(
        store.acquire(two, "x", 9, LONG).unwrap().len(),
        1,
        "the group is another job's"
    );
    let first = only(store.acquire(one, "x", 9, LONG).unwrap());
    assert_eq!(
        store.add_tasks(first.token, &tasks(["a"])).unwrap(),
        Some(1)
    );
    assert!(store.acquire(two, "x", 9, LONG).unwrap().is_empty());
    assert!(store.delete_job(two).unwrap());
    assert_eq!(store.status(one).unwrap().open.tasks, 1);
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn accepts_any_bytes() {
    let database = TestDatabase::new();
    let store = &database.store;
    let all: Vec<u8> = (0..=255).collect();
    let long: Vec<u8> = all.iter().copied().cycle().take(KEY_LEN_MAX).collect();
    let hostile = "'; DROP TABLE longhaul.job; --\0\u{202e}";
    let first = NewTask {
        key: long.clone(),
        body: vec![0; BODY_LEN_MAX],
        bytes: i64::MAX.cast_unsigned(),
        group: Some(long.clone()),
        after: None,
    };
    let name: Vec<u8> = all.iter().copied().cycle().take(NAME_LEN_MAX).collect();
    let job = store.join(&name, &all, &first).unwrap();
    let acquired = only(store.acquire(job, hostile, 1, LONG).unwrap());
    assert_eq!(
        (&acquired.key, &acquired.body, acquired.bytes),
        (&first.key, &first.body, first.bytes)
    );

    let mut near = long.clone();
    near[KEY_LEN_MAX - 1] ^= 1;
    let more = [
        NewTask {
            key: near,
            body: all.clone(),
            bytes: u64::MAX >> 1,
            group: None,
            after: Some(long),
        },
        NewTask {
            key: Vec::new(),
            group: Some(Vec::new()),
            ..NewTask::default()
        },
        NewTask {
            key: vec![0],
            after: Some(vec![0]),
            ..NewTask::default()
        },
    ];
    assert_eq!(store.add_tasks(acquired.token, &more).unwrap(), Some(3));
    assert!(store.complete(acquired.token, &all).unwrap());
    let rest = store.acquire(job, hostile, 9, LONG).unwrap();
    let found: Vec<_> = rest.iter().map(|lease| (&lease.key, &lease.body)).collect();
    assert_eq!(
        found,
        more.each_ref().map(|extent| (&extent.key, &extent.body))
    );
    assert!(store.fail(rest[0].token, hostile).unwrap());
    let status = store.status(job).unwrap();
    assert_eq!(status.holders[0].name, hostile);
    assert_eq!(status.failures[0].reason, hostile);
    assert_eq!(
        store.results(job, Position::default(), 9).unwrap()[0].result,
        all
    );
    let listed = &store.jobs().unwrap()[0];
    assert_eq!(
        (&listed.name, &listed.spec, listed.bytes),
        (&name, &all, i64::MAX.cast_unsigned())
    );
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn rejects_too_large_values_before_sending() {
    let database = TestDatabase::new();
    let store = &database.store;
    let refused = |error: Error| assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    let long = vec![0; KEY_LEN_MAX + 1];
    for extent in [
        NewTask {
            key: long.clone(),
            ..NewTask::default()
        },
        NewTask {
            body: vec![0; BODY_LEN_MAX + 1],
            ..NewTask::default()
        },
        NewTask {
            bytes: 1 << 63,
            ..NewTask::default()
        },
        NewTask {
            group: Some(long.clone()),
            ..NewTask::default()
        },
        NewTask {
            after: Some(long),
            ..NewTask::default()
        },
    ] {
        refused(store.join(b"job", b"", &extent).unwrap_err());
    }
    let job = store.join(b"job", b"", &task("plan")).unwrap();
    refused(
        store
            .acquire(job, "one", ACQUIRE_COUNT_MAX + 1, LONG)
            .unwrap_err(),
    );
    refused(
        store
            .acquire(job, "one", 1, TTL_MAX + Duration::from_nanos(1))
            .unwrap_err(),
    );
    let acquired = only(
        store
            .acquire(job, "one", ACQUIRE_COUNT_MAX, TTL_MAX)
            .unwrap(),
    );
    refused(
        store
            .add_tasks(acquired.token, &vec![task("a"); ADD_COUNT_MAX + 1])
            .unwrap_err(),
    );
    let large = NewTask {
        body: vec![0; BODY_LEN_MAX],
        ..NewTask::default()
    };
    refused(
        store
            .add_tasks(acquired.token, &vec![large; 17])
            .unwrap_err(),
    );
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn deleting_a_job_leaves_no_rows() {
    let database = TestDatabase::new();
    let store = &database.store;
    let job = database.planned_job(&[part_of("g", "a"), after("g", "b"), task("c")]);
    let acquired = store.acquire(job, "one", 9, LONG).unwrap();
    assert!(store.delete_job(job).unwrap());
    assert!(!store.delete_job(job).unwrap());
    let rows =
        "SELECT (SELECT count(*) FROM longhaul.job) + (SELECT count(*) FROM longhaul.extent)";
    assert_eq!(database.sql(rows), "0");

    assert!(matches!(store.status(job).unwrap_err(), Error::JobNotFound));
    assert!(store.acquire(job, "one", 9, LONG).unwrap().is_empty());
    assert!(!store.complete(acquired[0].token, b"").unwrap());
    assert!(
        store
            .renew(&[acquired[0].token], LONG)
            .unwrap()
            .tokens
            .is_empty()
    );
    assert_eq!(
        store.add_tasks(acquired[0].token, &tasks(["d"])).unwrap(),
        None
    );
    assert_ne!(store.join(b"job", b"spec", &task("plan")).unwrap(), job);
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn job_list_shows_age_and_idle_time() {
    let database = TestDatabase::new();
    let job = database.planned_job(&tasks(["a"]));
    database.sql("UPDATE longhaul.job SET made = made - interval '2 hours'");
    database.sql("UPDATE longhaul.extent SET changed = changed - interval '1 hour'");
    let listed = &database.store.jobs().unwrap()[0];
    assert_eq!(
        (listed.job, &*listed.name, &*listed.spec),
        (job, &b"job"[..], &b"spec"[..])
    );
    assert_eq!((listed.tasks, listed.bytes), (2, 20));
    let about = |time: Duration| time..time + Duration::from_secs(600);
    assert!(about(2 * LONG).contains(&listed.age) && about(LONG).contains(&listed.idle));
    database.store.acquire(job, "one", 1, LONG).unwrap();
    assert!(database.store.jobs().unwrap()[0].idle < LONG);
}
