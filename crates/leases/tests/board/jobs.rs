// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs: concurrent joins, isolation, limits and deletion.

use crate::ground::{Ground, LONG, after, extent, extents, only, part_of};
use longhaul_leases::{
    ADD_COUNT_MAX, BODY_LEN_MAX, Board, Error, KEY_LEN_MAX, NAME_LEN_MAX, NewExtent, Position,
    TAKE_COUNT_MAX, TTL_MAX,
};
use longhaul_testbed::postgres::Server;
use std::{sync::Barrier, thread, time::Duration};

/// The tables and the job are created by all of them at once.
#[test]
fn concurrent_joins_share_one_job() {
    let url = Server::shared().database();
    let gate = Barrier::new(8);
    let join = || {
        gate.wait();
        let board = Board::open(&url).unwrap();
        board.join(b"job", b"spec", &extent("plan")).unwrap()
    };
    let jobs: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(join)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(jobs.iter().all(|job| *job == jobs[0]));
    let board = Board::open(&url).unwrap();
    assert_eq!(board.jobs().unwrap().len(), 1);
    assert_eq!(board.standing(jobs[0]).unwrap().open.extents, 1);
}

#[test]
fn job_exists_until_deleted() {
    let ground = Ground::new();
    let job = ground.board.join(b"job", b"spec", &extent("plan")).unwrap();
    assert!(ground.board.has(job).unwrap());
    ground.board.forget(job).unwrap();
    assert!(!ground.board().has(job).unwrap());
}

#[test]
fn rejects_joining_with_another_spec() {
    let ground = Ground::new();
    let job = ground.board.join(b"job", b"spec", &extent("plan")).unwrap();
    let again = ground.board().join(b"job", b"spec", &extent("other"));
    assert_eq!(again.unwrap(), job);
    let error = ground
        .board
        .join(b"job", b"other", &extent("plan"))
        .unwrap_err();
    assert!(matches!(error, Error::OtherSpec), "{error}");
    let other = ground
        .board
        .join(b"another", b"other", &extent("plan"))
        .unwrap();
    assert_ne!(other, job);
}

#[test]
fn jobs_are_isolated() {
    let ground = Ground::new();
    let board = &ground.board;
    let one = board.join(b"one", b"", &part_of("group", "plan")).unwrap();
    let two = board.join(b"two", b"", &after("group", "plan")).unwrap();
    assert_eq!(
        board.take(two, "x", 9, LONG).unwrap().len(),
        1,
        "the group is another job's"
    );
    let first = only(board.take(one, "x", 9, LONG).unwrap());
    assert_eq!(board.add(first.token, &extents(["a"])).unwrap(), Some(1));
    assert!(board.take(two, "x", 9, LONG).unwrap().is_empty());
    assert!(board.forget(two).unwrap());
    assert_eq!(board.standing(one).unwrap().open.extents, 1);
}

#[test]
fn accepts_any_bytes() {
    let ground = Ground::new();
    let board = &ground.board;
    let all: Vec<u8> = (0..=255).collect();
    let long: Vec<u8> = all.iter().copied().cycle().take(KEY_LEN_MAX).collect();
    let hostile = "'; DROP TABLE longhaul.job; --\0\u{202e}";
    let first = NewExtent {
        key: long.clone(),
        body: vec![0; BODY_LEN_MAX],
        bytes: i64::MAX.cast_unsigned(),
        group: Some(long.clone()),
        after: None,
    };
    let name: Vec<u8> = all.iter().copied().cycle().take(NAME_LEN_MAX).collect();
    let job = board.join(&name, &all, &first).unwrap();
    let taken = only(board.take(job, hostile, 1, LONG).unwrap());
    assert_eq!(
        (&taken.key, &taken.body, taken.bytes),
        (&first.key, &first.body, first.bytes)
    );

    let mut near = long.clone();
    near[KEY_LEN_MAX - 1] ^= 1;
    let more = [
        NewExtent {
            key: near,
            body: all.clone(),
            bytes: u64::MAX >> 1,
            group: None,
            after: Some(long),
        },
        NewExtent {
            key: Vec::new(),
            group: Some(Vec::new()),
            ..NewExtent::default()
        },
        NewExtent {
            key: vec![0],
            after: Some(vec![0]),
            ..NewExtent::default()
        },
    ];
    assert_eq!(board.add(taken.token, &more).unwrap(), Some(3));
    assert!(board.done(taken.token, &all).unwrap());
    let rest = board.take(job, hostile, 9, LONG).unwrap();
    let found: Vec<_> = rest.iter().map(|lease| (&lease.key, &lease.body)).collect();
    assert_eq!(
        found,
        more.each_ref().map(|extent| (&extent.key, &extent.body))
    );
    assert!(board.fail(rest[0].token, hostile).unwrap());
    let standing = board.standing(job).unwrap();
    assert_eq!(standing.holders[0].name, hostile);
    assert_eq!(standing.failures[0].why, hostile);
    assert_eq!(
        board.results(job, Position::default(), 9).unwrap()[0].result,
        all
    );
    let listed = &board.jobs().unwrap()[0];
    assert_eq!(
        (&listed.name, &listed.spec, listed.bytes),
        (&name, &all, i64::MAX.cast_unsigned())
    );
}

#[test]
fn rejects_too_large_values_before_sending() {
    let ground = Ground::new();
    let board = &ground.board;
    let refused = |error: Error| assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    let long = vec![0; KEY_LEN_MAX + 1];
    for extent in [
        NewExtent {
            key: long.clone(),
            ..NewExtent::default()
        },
        NewExtent {
            body: vec![0; BODY_LEN_MAX + 1],
            ..NewExtent::default()
        },
        NewExtent {
            bytes: 1 << 63,
            ..NewExtent::default()
        },
        NewExtent {
            group: Some(long.clone()),
            ..NewExtent::default()
        },
        NewExtent {
            after: Some(long),
            ..NewExtent::default()
        },
    ] {
        refused(board.join(b"job", b"", &extent).unwrap_err());
    }
    let job = board.join(b"job", b"", &extent("plan")).unwrap();
    refused(
        board
            .take(job, "one", TAKE_COUNT_MAX + 1, LONG)
            .unwrap_err(),
    );
    refused(
        board
            .take(job, "one", 1, TTL_MAX + Duration::from_nanos(1))
            .unwrap_err(),
    );
    let taken = only(board.take(job, "one", TAKE_COUNT_MAX, TTL_MAX).unwrap());
    refused(
        board
            .add(taken.token, &vec![extent("a"); ADD_COUNT_MAX + 1])
            .unwrap_err(),
    );
    let large = NewExtent {
        body: vec![0; BODY_LEN_MAX],
        ..NewExtent::default()
    };
    refused(board.add(taken.token, &vec![large; 17]).unwrap_err());
}

#[test]
fn deleting_a_job_leaves_no_rows() {
    let ground = Ground::new();
    let board = &ground.board;
    let job = ground.planned(&[part_of("g", "a"), after("g", "b"), extent("c")]);
    let taken = board.take(job, "one", 9, LONG).unwrap();
    assert!(board.forget(job).unwrap());
    assert!(!board.forget(job).unwrap());
    let rows =
        "SELECT (SELECT count(*) FROM longhaul.job) + (SELECT count(*) FROM longhaul.extent)";
    assert_eq!(ground.sql(rows), "0");

    assert!(matches!(board.standing(job).unwrap_err(), Error::NoJob));
    assert!(board.take(job, "one", 9, LONG).unwrap().is_empty());
    assert!(!board.done(taken[0].token, b"").unwrap());
    assert!(
        board
            .renew(&[taken[0].token], LONG)
            .unwrap()
            .tokens
            .is_empty()
    );
    assert_eq!(board.add(taken[0].token, &extents(["d"])).unwrap(), None);
    assert_ne!(board.join(b"job", b"spec", &extent("plan")).unwrap(), job);
}

#[test]
fn job_list_shows_age_and_idle_time() {
    let ground = Ground::new();
    let job = ground.planned(&extents(["a"]));
    ground.sql("UPDATE longhaul.job SET made = made - interval '2 hours'");
    ground.sql("UPDATE longhaul.extent SET changed = changed - interval '1 hour'");
    let listed = &ground.board.jobs().unwrap()[0];
    assert_eq!(
        (listed.job, &*listed.name, &*listed.spec),
        (job, &b"job"[..], &b"spec"[..])
    );
    assert_eq!((listed.extents, listed.bytes), (2, 20));
    let about = |time: Duration| time..time + Duration::from_secs(600);
    assert!(about(2 * LONG).contains(&listed.age) && about(LONG).contains(&listed.quiet));
    ground.board.take(job, "one", 1, LONG).unwrap();
    assert!(ground.board.jobs().unwrap()[0].quiet < LONG);
}
