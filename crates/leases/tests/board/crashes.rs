// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holders that die during a call, and a server that does.

use crate::ground::{Ground, LONG, OVER, database, extent, extents, keys, only, planned, wait_for};
use longhaul_leases::{Board, Error, Job, Token};
use longhaul_testbed::postgres::{Server, Setup};
use std::{collections::HashSet, sync::Mutex, thread};

/// Trigger that stops acquisitions by the holder "slow" within their statement, with their rows
/// locked, until the lock 42 is free.
const STOP: &str = "
CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NEW; END $$;
CREATE TRIGGER stop AFTER UPDATE ON longhaul.extent FOR EACH ROW
    WHEN (NEW.holder = 'slow' AND NEW.token <> OLD.token OR NEW.holder = 'slow' AND OLD.token IS NULL)
    EXECUTE FUNCTION stop();";
/// Holds the lock, and ends before a failed test has waited long for it.
const HOLD: &str = "SELECT pg_advisory_lock(42); SELECT pg_sleep(40)";
const END_SESSION: &str = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND datname = current_database()";

/// Runs `test` while acquisitions by the holder "slow" stop. `test` gets a function that lets them
/// continue.
fn with_slow_takings(ground: &Ground, test: impl FnOnce(&dyn Fn())) {
    ground.sql(STOP);
    thread::scope(|scope| {
        let holder = scope.spawn(|| ground.sql(HOLD));
        wait_until_one_waits(ground, WAITS_FOR_TIME);
        test(&|| {
            ground.sql(&format!("{END_SESSION} AND {WAITS_FOR_TIME}"));
        });
        assert!(holder.join().is_err(), "its session was ended");
    });
}

/// Conditions for a session of this test: it waits for the lock 42, sleeps, or waits for a row that
/// another session has locked.
const WAITS_FOR_NUMBER: &str = "wait_event = 'advisory'";
const WAITS_FOR_TIME: &str = "wait_event = 'PgSleep'";
const WAITS_FOR_ROW: &str = "wait_event IN ('transactionid', 'tuple')";

fn wait_until_one_waits(ground: &Ground, how: &str) {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND {how}"
    );
    wait_for(how, || ground.sql(&sql) != "0");
}

#[test]
fn dying_during_acquisition_leases_nothing() {
    let ground = Ground::new();
    let job = ground.planned(&extents(["a", "b"]));
    let slow = ground.board();
    with_slow_takings(&ground, |go_on| {
        thread::scope(|scope| {
            let taker = scope.spawn(|| slow.take(job, "slow", 1, LONG));
            wait_until_one_waits(&ground, WAITS_FOR_NUMBER);
            assert_eq!(
                keys(&ground.board.take(job, "other", 9, LONG).unwrap()),
                ["b"]
            );
            ground.sql(&format!("{END_SESSION} AND {WAITS_FOR_NUMBER}"));
            let error = taker.join().unwrap().unwrap_err();
            assert!(error.is_unreachable(), "{error:?}");
        });
        let taken = only(ground.board.take(job, "other", 9, LONG).unwrap());
        assert_eq!(
            (&*taken.key, taken.tries),
            (&b"a"[..], 1),
            "it was never taken"
        );
        go_on();
    });
    assert!(
        slow.take(job, "slow", 9, LONG).unwrap().is_empty(),
        "its board goes on"
    );
}

/// A call of the first holder while another acquires the task comes too late, and has no effect.
#[test]
fn ignores_calls_that_cross_an_acquisition() {
    type Word = fn(&Board, Token) -> bool;
    let words: [Word; 4] = [
        |board, token| board.add(token, &extents(["x"])).unwrap().is_some(),
        |board, token| board.done(token, b"").unwrap(),
        |board, token| !board.renew(&[token], LONG).unwrap().tokens.is_empty(),
        |board, token| board.give_back(token, "", OVER).unwrap(),
    ];
    for word in words {
        let ground = Ground::new();
        let job = ground.planned(&extents(["a"]));
        let first = only(ground.board.take(job, "first", 1, OVER).unwrap());
        let slow = ground.board();
        with_slow_takings(&ground, |go_on| {
            thread::scope(|scope| {
                let taker = scope.spawn(|| slow.take(job, "slow", 1, LONG));
                wait_until_one_waits(&ground, WAITS_FOR_NUMBER);
                let word = scope.spawn(|| word(&ground.board, first.token));
                wait_until_one_waits(&ground, WAITS_FOR_ROW);
                go_on();
                let taken = only(taker.join().unwrap().unwrap());
                assert!(taken.token > first.token);
                assert!(!word.join().unwrap());
            });
        });
        let all = ground.board.standing(job).unwrap();
        assert_eq!((all.leased.extents, all.open.extents), (1, 0));
    }
}

#[test]
fn reconnects_after_a_cut_connection() {
    let ground = Ground::new();
    let board = &ground.board;
    let job = ground.planned(&extents(["a"]));
    let cut = || {
        ground.sql("SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE application_name = 'longhaul' AND datname = current_database()")
    };
    cut();
    let taken = only(board.take(job, "one", 1, LONG).unwrap());
    cut();
    assert_eq!(
        board.renew(&[taken.token], LONG).unwrap().tokens,
        [taken.token]
    );
    cut();
    assert_eq!(board.add(taken.token, &extents(["b"])).unwrap(), Some(1));
    cut();
    assert!(board.done(taken.token, b"").unwrap());
    assert_eq!(cut(), "1");
    assert_eq!(board.standing(job).unwrap().done.extents, 2);
}

/// Workers that acquire and complete tasks, whatever happens to the server, and record the
/// acknowledged ones.
struct Crew {
    board: Board,
    job: Job,
    acknowledged: Mutex<HashSet<Vec<u8>>>,
}

impl Crew {
    fn work(&self, name: &str) {
        let board = self.board.another().unwrap();
        wait_for("the end of the job", || {
            let over = persist(|| board.standing(self.job)).is_over();
            if !over {
                self.take_and_do(&board, name);
            }
            over
        });
    }

    fn take_and_do(&self, board: &Board, name: &str) {
        let taken = board.take(self.job, name, 2, LONG).unwrap_or_else(|error| {
            assert!(error.is_unreachable(), "{error:?}");
            persist(|| board.give_back_unknown(self.job, name, &[]));
            Vec::new()
        });
        for lease in taken {
            assert!(persist(|| board.done(lease.token, b"")));
            self.acknowledged.lock().unwrap().insert(lease.key);
        }
    }

    fn acknowledged(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }
}

/// Repeats a call until the server is reachable.
fn persist<T>(mut call: impl FnMut() -> Result<T, Error>) -> T {
    let mut value = None;
    wait_for("the server", || {
        match call() {
            Ok(said) => value = Some(said),
            Err(error) => assert!(error.is_unreachable(), "{error:?}"),
        }
        value.is_some()
    });
    value.unwrap()
}

#[test]
fn killed_server_keeps_acknowledged_results() {
    let mut server = Setup::default().durable().start();
    let url = server.database();
    let board = Board::open(&url).unwrap();
    let all: Vec<_> = (0..400).map(|number| extent(&number.to_string())).collect();
    let job = planned(&board, &all);
    let acknowledged = Mutex::new(HashSet::new());
    let crew = Crew {
        board,
        job,
        acknowledged,
    };
    thread::scope(|scope| {
        for name in ["one", "two", "three", "four"] {
            let crew = &crew;
            scope.spawn(move || crew.work(name));
        }
        for kill in 1..4 {
            wait_for("work", || crew.acknowledged() >= kill * 80);
            server.kill();
            let before = crew.acknowledged.lock().unwrap().clone();
            server.start_again();
            assert_are_done(&server, &url, &before);
        }
    });
    assert_eq!(crew.acknowledged(), all.len());
    assert!(crew.board.standing(job).unwrap().is_done());
}

fn assert_are_done(server: &Server, url: &str, keys: &HashSet<Vec<u8>>) {
    let sql = "SELECT convert_from(key, 'UTF8') FROM longhaul.extent WHERE state = 2";
    let text = server.run(database(url), sql);
    let done: HashSet<&str> = text.lines().collect();
    for key in keys {
        let key = std::str::from_utf8(key).unwrap();
        assert!(done.contains(key), "{key} was acknowledged and is lost");
    }
}
