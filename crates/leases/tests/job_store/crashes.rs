// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holders that die during a call, and a server that does.

use crate::test_database::{
    EXPIRED, LONG, TestDatabase, database_name, keys, only, planned_job, task, tasks,
};
use longhaul_leases::{Error, Job, JobStore, Token};
use longhaul_testprograms::{
    postgres::{Server, Setup},
    wait::wait_until,
};
use std::{collections::HashSet, sync::Mutex, thread};

/// Trigger that stops acquisitions by the holder "slow" within their statement, with their rows
/// locked, until the lock 42 is free.
const STOP_TRIGGER: &str = "
CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NEW; END $$;
CREATE TRIGGER stop AFTER UPDATE ON longhaul.extent FOR EACH ROW
    WHEN (NEW.holder = 'slow' AND NEW.token <> OLD.token OR NEW.holder = 'slow' AND OLD.token IS NULL)
    EXECUTE FUNCTION stop();";
/// Holds the lock, and ends before a failed test has waited long for it.
const HOLD_LOCK: &str = "SELECT pg_advisory_lock(42); SELECT pg_sleep(40)";
const END_SESSION: &str = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND datname = current_database()";

/// Runs `test` while acquisitions by the holder "slow" stop. `test` gets a function that lets them
/// continue.
fn with_stopped_acquisitions(database: &TestDatabase, test: impl FnOnce(&dyn Fn())) {
    database.sql(STOP_TRIGGER);
    thread::scope(|scope| {
        let holder = scope.spawn(|| database.sql(HOLD_LOCK));
        wait_for_session(database, SLEEPS);
        test(&|| {
            database.sql(&format!("{END_SESSION} AND {SLEEPS}"));
        });
        assert!(holder.join().is_err(), "its session was ended");
    });
}

/// Conditions for a session of this test: it waits for the lock 42, sleeps, or waits for a row that
/// another session has locked.
const WAITS_FOR_LOCK: &str = "wait_event = 'advisory'";
const SLEEPS: &str = "wait_event = 'PgSleep'";
const WAITS_FOR_ROW: &str = "wait_event IN ('transactionid', 'tuple')";

fn wait_for_session(database: &TestDatabase, how: &str) {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND {how}"
    );
    wait_until(|| database.sql(&sql) != "0");
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn dying_during_acquisition_leases_nothing() {
    let database = TestDatabase::new();
    let job = database.planned_job(&tasks(["a", "b"]));
    let slow = database.new_store();
    with_stopped_acquisitions(&database, |let_continue| {
        thread::scope(|scope| {
            let worker = scope.spawn(|| slow.acquire(job, "slow", 1, LONG));
            wait_for_session(&database, WAITS_FOR_LOCK);
            assert_eq!(
                keys(&database.store.acquire(job, "other", 9, LONG).unwrap()),
                ["b"]
            );
            database.sql(&format!("{END_SESSION} AND {WAITS_FOR_LOCK}"));
            let error = worker.join().unwrap().unwrap_err();
            assert!(error.is_unreachable(), "{error:?}");
        });
        let acquired = only(database.store.acquire(job, "other", 9, LONG).unwrap());
        assert_eq!(
            (&*acquired.key, acquired.tries),
            (&b"a"[..], 1),
            "it was never acquired"
        );
        let_continue();
    });
    assert!(
        slow.acquire(job, "slow", 9, LONG).unwrap().is_empty(),
        "its store continues"
    );
}

/// A call of the first holder while another acquires the task comes too late, and has no effect.
#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn ignores_calls_that_cross_an_acquisition() {
    type Call = fn(&JobStore, Token) -> bool;
    let calls: [Call; 4] = [
        |store, token| store.add_tasks(token, &tasks(["x"])).unwrap().is_some(),
        |store, token| store.complete(token, b"").unwrap(),
        |store, token| !store.renew(&[token], LONG).unwrap().tokens.is_empty(),
        |store, token| store.release(token, "", EXPIRED).unwrap(),
    ];
    for call in calls {
        let database = TestDatabase::new();
        let job = database.planned_job(&tasks(["a"]));
        let first = only(database.store.acquire(job, "first", 1, EXPIRED).unwrap());
        let slow = database.new_store();
        with_stopped_acquisitions(&database, |let_continue| {
            thread::scope(|scope| {
                let worker = scope.spawn(|| slow.acquire(job, "slow", 1, LONG));
                wait_for_session(&database, WAITS_FOR_LOCK);
                let call = scope.spawn(|| call(&database.store, first.token));
                wait_for_session(&database, WAITS_FOR_ROW);
                let_continue();
                let acquired = only(worker.join().unwrap().unwrap());
                assert!(acquired.token > first.token);
                assert!(!call.join().unwrap());
            });
        });
        let all = database.store.status(job).unwrap();
        assert_eq!((all.leased.tasks, all.open.tasks), (1, 0));
    }
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn reconnects_after_a_cut_connection() {
    let database = TestDatabase::new();
    let store = &database.store;
    let job = database.planned_job(&tasks(["a"]));
    let cut = || {
        database.sql("SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE application_name = 'longhaul' AND datname = current_database()")
    };
    cut();
    let acquired = only(store.acquire(job, "one", 1, LONG).unwrap());
    cut();
    assert_eq!(
        store.renew(&[acquired.token], LONG).unwrap().tokens,
        [acquired.token]
    );
    cut();
    assert_eq!(
        store.add_tasks(acquired.token, &tasks(["b"])).unwrap(),
        Some(1)
    );
    cut();
    assert!(store.complete(acquired.token, b"").unwrap());
    assert_eq!(cut(), "1");
    assert_eq!(store.status(job).unwrap().done.tasks, 2);
}

/// Workers that acquire and complete tasks, whatever happens to the server, and record the
/// acknowledged ones.
struct Workers {
    store: JobStore,
    job: Job,
    acknowledged: Mutex<HashSet<Vec<u8>>>,
}

impl Workers {
    fn work(&self, name: &str) {
        let store = self.store.new_connection().unwrap();
        wait_until(|| {
            let has_ended = repeat_until_reachable(|| store.status(self.job)).has_ended();
            if !has_ended {
                self.acquire_and_complete(&store, name);
            }
            has_ended
        });
    }

    fn acquire_and_complete(&self, store: &JobStore, name: &str) {
        let acquired = store
            .acquire(self.job, name, 2, LONG)
            .unwrap_or_else(|error| {
                assert!(error.is_unreachable(), "{error:?}");
                repeat_until_reachable(|| store.release_unknown(self.job, name, &[]));
                Vec::new()
            });
        for lease in acquired {
            assert!(repeat_until_reachable(|| store.complete(lease.token, b"")));
            self.acknowledged.lock().unwrap().insert(lease.key);
        }
    }

    fn acknowledged(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }
}

/// Repeats a call until the server is reachable.
fn repeat_until_reachable<T>(mut call: impl FnMut() -> Result<T, Error>) -> T {
    let mut value = None;
    wait_until(|| {
        match call() {
            Ok(reply) => value = Some(reply),
            Err(error) => assert!(error.is_unreachable(), "{error:?}"),
        }
        value.is_some()
    });
    value.unwrap()
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn killed_server_keeps_acknowledged_results() {
    let mut server = Setup::default().durable().start();
    let url = server.create_database();
    let store = JobStore::open(&url).unwrap();
    let all: Vec<_> = (0..400).map(|number| task(&number.to_string())).collect();
    let job = planned_job(&store, &all);
    let acknowledged = Mutex::new(HashSet::new());
    let workers = Workers {
        store,
        job,
        acknowledged,
    };
    thread::scope(|scope| {
        for name in ["one", "two", "three", "four"] {
            let workers = &workers;
            scope.spawn(move || workers.work(name));
        }
        for kill in 1..4 {
            wait_until(|| workers.acknowledged() >= kill * 80);
            server.kill();
            let before = workers.acknowledged.lock().unwrap().clone();
            server.restart();
            assert_done(&server, &url, &before);
        }
    });
    assert_eq!(workers.acknowledged(), all.len());
    assert!(workers.store.status(job).unwrap().is_done());
}

fn assert_done(server: &Server, url: &str, keys: &HashSet<Vec<u8>>) {
    let sql = "SELECT convert_from(key, 'UTF8') FROM longhaul.extent WHERE state = 2";
    let text = server.run_sql(database_name(url), sql);
    let done: HashSet<&str> = text.lines().collect();
    for key in keys {
        let key = std::str::from_utf8(key).unwrap();
        assert!(done.contains(key), "{key} was acknowledged and is lost");
    }
}
