// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fencing: the current holder of a task, and calls of former holders.

use crate::test_database::{
    EXPIRED, LONG, TestDatabase, after, keys, only, part_of, task, tasks, tokens,
};
use longhaul_leases::{Position, TTL_MAX};
use std::time::{Duration, Instant};

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn tasks_are_acquired_in_order_and_once() {
    let database = TestDatabase::new();
    let job = database.planned_job(&tasks(["a", "b", "c", "d"]));
    let acquired = database.store.acquire(job, "one", 3, LONG).unwrap();
    assert_eq!(keys(&acquired), ["a", "b", "c"]);
    assert_eq!(acquired[1].body, b"body of b");
    assert_eq!((acquired[1].bytes, acquired[1].tries), (10, 1));
    assert_eq!(
        keys(&database.store.acquire(job, "one", 3, LONG).unwrap()),
        ["d"]
    );
    assert!(
        database
            .store
            .acquire(job, "one", 3, LONG)
            .unwrap()
            .is_empty()
    );
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn expired_lease_is_reassigned_and_first_holder_ignored() {
    let database = TestDatabase::new();
    let (one, two) = (&database.store, database.new_store());
    let job = database.planned_job(&tasks(["a"]));
    let first = only(one.acquire(job, "one", 1, EXPIRED).unwrap());
    let second = only(two.acquire(job, "two", 1, LONG).unwrap());
    assert!(second.token > first.token);
    assert_eq!((second.key.clone(), second.tries), (first.key, 2));

    assert!(one.renew(&[first.token], LONG).unwrap().tokens.is_empty());
    assert_eq!(one.add_tasks(first.token, &tasks(["x"])).unwrap(), None);
    assert!(!one.complete(first.token, b"stale").unwrap());
    assert!(!one.release(first.token, "stale", EXPIRED).unwrap());
    assert!(!one.fail(first.token, "stale").unwrap());

    assert!(two.complete(second.token, b"good").unwrap());
    let results = one.results(job, Position::default(), 10).unwrap();
    let results: Vec<_> = results.iter().map(|r| (&*r.key, &*r.result)).collect();
    assert_eq!(results, [(&b"plan"[..], &b"planned"[..]), (b"a", b"good")]);
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn expired_lease_is_valid_until_reassigned() {
    let database = TestDatabase::new();
    let store = &database.store;
    let job = database.planned_job(&tasks(["a", "b"]));
    let acquired = tokens(&store.acquire(job, "one", 2, EXPIRED).unwrap());
    assert!(store.complete(acquired[1], b"").unwrap());
    let renewed = store
        .renew(&[acquired[1], acquired[0], acquired[0]], LONG)
        .unwrap();
    assert_eq!(renewed.tokens, [acquired[0]]);
    assert!(
        database
            .new_store()
            .acquire(job, "two", 1, LONG)
            .unwrap()
            .is_empty()
    );
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn holder_deadline_is_not_after_server_deadline() {
    let database = TestDatabase::new();
    let job = database.planned_job(&tasks(["a"]));
    let before = Instant::now();
    let acquired = only(database.store.acquire(job, "one", 1, LONG).unwrap());
    let after = Instant::now();
    assert!(acquired.until >= before + LONG && acquired.until <= after + LONG);
    let has_full_ttl =
        "SELECT extract(epoch FROM expires - since) >= 3600 FROM longhaul.extent WHERE key = 'a'";
    assert_eq!(database.sql(has_full_ttl), "t");
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn ending_a_task_is_idempotent() {
    let database = TestDatabase::new();
    let store = &database.store;
    let job = database.planned_job(&tasks(["a", "b", "c"]));
    let acquired = tokens(&store.acquire(job, "one", 3, LONG).unwrap());
    assert!(
        store.complete(acquired[0], b"first").unwrap()
            && store.complete(acquired[0], b"second").unwrap()
    );
    assert!(
        store.fail(acquired[1], "first").unwrap() && store.fail(acquired[1], "second").unwrap()
    );
    assert!(store.release(acquired[2], "first", LONG).unwrap());
    assert!(store.release(acquired[2], "second", EXPIRED).unwrap());

    assert!(
        !store.fail(acquired[0], "no").unwrap()
            && !store.release(acquired[0], "no", EXPIRED).unwrap()
    );
    assert!(
        !store.complete(acquired[1], b"no").unwrap()
            && !store.complete(acquired[2], b"no").unwrap()
    );
    assert!(
        store.acquire(job, "one", 1, LONG).unwrap().is_empty(),
        "the released task is paused"
    );
    assert_eq!(
        store.results(job, Position::default(), 9).unwrap()[1].result,
        b"first"
    );
    assert_eq!(store.status(job).unwrap().failures[0].reason, "first");
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn released_task_goes_to_another_holder_first() {
    let database = TestDatabase::new();
    let store = &database.store;
    let job = database.planned_job(&tasks(["a", "b"]));
    let acquired = only(store.acquire(job, "one", 1, LONG).unwrap());
    assert!(store.release(acquired.token, "no space", TTL_MAX).unwrap());
    assert_eq!(keys(&store.acquire(job, "one", 2, LONG).unwrap()), ["b"]);
    let other = only(store.acquire(job, "two", 2, LONG).unwrap());
    assert_eq!((other.key, other.tries), (b"a".to_vec(), 2));
    assert!(store.release(other.token, "nor here", EXPIRED).unwrap());
    assert_eq!(only(store.acquire(job, "two", 1, LONG).unwrap()).tries, 3);
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn releases_leases_unknown_to_the_holder() {
    let database = TestDatabase::new();
    let store = &database.store;
    let job = database.planned_job(&tasks(["a", "b", "c", "d"]));
    let known = tokens(&store.acquire(job, "one", 1, LONG).unwrap());
    let lost = tokens(&store.acquire(job, "one", 2, LONG).unwrap());
    let others = tokens(&store.acquire(job, "two", 1, LONG).unwrap());
    assert_eq!(store.release_unknown(job, "one", &known).unwrap(), 2);
    let all = [&*known, &lost, &others].concat();
    assert_eq!(
        store.renew(&all, LONG).unwrap().tokens,
        [known, others].concat()
    );
    assert_eq!(
        keys(&store.acquire(job, "one", 9, LONG).unwrap()),
        ["b", "c"]
    );
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn second_planner_adds_no_task_twice() {
    let database = TestDatabase::new();
    let store = &database.store;
    let job = store.join(b"job", b"spec", &task("plan")).unwrap();
    let first = only(store.acquire(job, "one", 1, EXPIRED).unwrap());
    assert_eq!(
        store
            .add_tasks(first.token, &tasks(["a", "b", "a"]))
            .unwrap(),
        Some(2)
    );
    let second = only(store.acquire(job, "two", 1, LONG).unwrap());
    assert_eq!(second.key, b"plan", "added tasks come after the plan");
    assert_eq!(store.add_tasks(first.token, &tasks(["c"])).unwrap(), None);
    let plan = tasks(["plan", "a", "b", "c", "d"]);
    assert_eq!(store.add_tasks(second.token, &plan).unwrap(), Some(2));
    assert_eq!(store.add_tasks(second.token, &plan).unwrap(), Some(0));
    assert!(store.complete(second.token, b"").unwrap());
    assert_eq!(
        keys(&store.acquire(job, "two", 9, LONG).unwrap()),
        ["a", "b", "c", "d"]
    );
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn task_after_a_group_waits_for_the_whole_group() {
    let database = TestDatabase::new();
    let store = &database.store;
    let job = database.planned_job(&[
        after("file", "rename"),
        part_of("file", "a"),
        part_of("file", "b"),
        after("nothing", "free"),
    ]);
    let acquired = store.acquire(job, "one", 9, LONG).unwrap();
    assert_eq!(keys(&acquired), ["a", "b", "free"]);
    let status = store.status(job).unwrap();
    assert_eq!((status.waiting.tasks, status.open.tasks), (1, 0));
    assert!(store.complete(acquired[0].token, b"").unwrap());
    assert!(store.acquire(job, "one", 9, LONG).unwrap().is_empty());
    assert!(store.complete(acquired[1].token, b"").unwrap());
    assert_eq!(
        keys(&store.acquire(job, "one", 9, LONG).unwrap()),
        ["rename"]
    );
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn planner_in_the_group_delays_tasks_after_it() {
    let database = TestDatabase::new();
    let store = &database.store;
    let job = store
        .join(b"job", b"spec", &part_of("data", "plan"))
        .unwrap();
    let planner = only(store.acquire(job, "one", 1, LONG).unwrap());
    store
        .add_tasks(planner.token, &[after("data", "end")])
        .unwrap();
    assert!(store.acquire(job, "two", 9, LONG).unwrap().is_empty());
    store
        .add_tasks(planner.token, &[part_of("data", "a")])
        .unwrap();
    assert!(store.complete(planner.token, b"").unwrap());
    let data = only(store.acquire(job, "two", 9, LONG).unwrap());
    assert!(store.complete(data.token, b"").unwrap());
    assert_eq!(keys(&store.acquire(job, "two", 9, LONG).unwrap()), ["end"]);
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn job_ends_when_the_rest_waits_for_a_failed_task() {
    let database = TestDatabase::new();
    let store = &database.store;
    let mut chained = after("one", "second");
    chained.group = Some(b"two".to_vec());
    let job = database.planned_job(&[part_of("one", "first"), chained, after("two", "third")]);
    let acquired = only(store.acquire(job, "here", 9, LONG).unwrap());
    assert!(!store.status(job).unwrap().has_ended());
    assert!(store.fail(acquired.token, "bad sector").unwrap());
    let status = store.status(job).unwrap();
    assert!(status.has_ended() && !status.is_done());
    assert!(store.acquire(job, "there", 9, LONG).unwrap().is_empty());
    assert_eq!((status.waiting.tasks, status.failed.bytes), (2, 10));
    let failure = &status.failures[0];
    assert_eq!(
        (&*failure.reason, &*failure.holder, failure.tries),
        ("bad sector", "here", 1)
    );
    assert_eq!(failure.key, b"first");
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn status_lists_holders_and_their_leases() {
    let database = TestDatabase::new();
    let store = &database.store;
    let job = database.planned_job(&tasks(["a", "b", "c", "d"]));
    store.acquire(job, "one", 2, EXPIRED).unwrap();
    database.sql("UPDATE longhaul.extent SET since = since - interval '1 hour' WHERE key = 'a'");
    database
        .sql("UPDATE longhaul.extent SET expires = expires + interval '1 hour' WHERE key = 'b'");
    let status = store.status(job).unwrap();
    assert_eq!((status.open.tasks, status.leased.tasks), (2, 2));
    assert_eq!((status.done.tasks, status.done.bytes), (1, 10));
    let holder = &status.holders[0];
    assert_eq!(
        (&*holder.name, holder.leased.bytes, holder.expired),
        ("one", 20, 1)
    );
    assert!(holder.since >= LONG && holder.since < LONG + Duration::from_secs(600));
}
