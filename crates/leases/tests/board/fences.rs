// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fencing: the current holder of a task, and calls of former holders.

use crate::ground::{Ground, LONG, OVER, after, extent, extents, keys, only, part_of, tokens};
use longhaul_leases::{Position, TTL_MAX};
use std::time::{Duration, Instant};

#[test]
fn tasks_are_acquired_in_order_and_once() {
    let ground = Ground::new();
    let job = ground.planned(&extents(["a", "b", "c", "d"]));
    let taken = ground.board.take(job, "one", 3, LONG).unwrap();
    assert_eq!(keys(&taken), ["a", "b", "c"]);
    assert_eq!(taken[1].body, b"body of b");
    assert_eq!((taken[1].bytes, taken[1].tries), (10, 1));
    assert_eq!(
        keys(&ground.board.take(job, "one", 3, LONG).unwrap()),
        ["d"]
    );
    assert!(ground.board.take(job, "one", 3, LONG).unwrap().is_empty());
}

#[test]
fn expired_lease_is_reassigned_and_first_holder_ignored() {
    let ground = Ground::new();
    let (one, two) = (&ground.board, ground.board());
    let job = ground.planned(&extents(["a"]));
    let first = only(one.take(job, "one", 1, OVER).unwrap());
    let second = only(two.take(job, "two", 1, LONG).unwrap());
    assert!(second.token > first.token);
    assert_eq!((second.key.clone(), second.tries), (first.key, 2));

    assert!(one.renew(&[first.token], LONG).unwrap().tokens.is_empty());
    assert_eq!(one.add(first.token, &extents(["x"])).unwrap(), None);
    assert!(!one.done(first.token, b"stale").unwrap());
    assert!(!one.give_back(first.token, "stale", OVER).unwrap());
    assert!(!one.fail(first.token, "stale").unwrap());

    assert!(two.done(second.token, b"good").unwrap());
    let results = one.results(job, Position::default(), 10).unwrap();
    let results: Vec<_> = results.iter().map(|r| (&*r.key, &*r.result)).collect();
    assert_eq!(results, [(&b"plan"[..], &b"planned"[..]), (b"a", b"good")]);
}

#[test]
fn expired_lease_is_valid_until_reassigned() {
    let ground = Ground::new();
    let board = &ground.board;
    let job = ground.planned(&extents(["a", "b"]));
    let taken = tokens(&board.take(job, "one", 2, OVER).unwrap());
    assert!(board.done(taken[1], b"").unwrap());
    let renewed = board.renew(&[taken[1], taken[0], taken[0]], LONG).unwrap();
    assert_eq!(renewed.tokens, [taken[0]]);
    assert!(ground.board().take(job, "two", 1, LONG).unwrap().is_empty());
}

#[test]
fn holder_deadline_is_not_after_server_deadline() {
    let ground = Ground::new();
    let job = ground.planned(&extents(["a"]));
    let before = Instant::now();
    let taken = only(ground.board.take(job, "one", 1, LONG).unwrap());
    let after = Instant::now();
    assert!(taken.until >= before + LONG && taken.until <= after + LONG);
    let left =
        "SELECT extract(epoch FROM expires - since) >= 3600 FROM longhaul.extent WHERE key = 'a'";
    assert_eq!(ground.sql(left), "t");
}

#[test]
fn ending_a_task_is_idempotent() {
    let ground = Ground::new();
    let board = &ground.board;
    let job = ground.planned(&extents(["a", "b", "c"]));
    let taken = tokens(&board.take(job, "one", 3, LONG).unwrap());
    assert!(board.done(taken[0], b"first").unwrap() && board.done(taken[0], b"second").unwrap());
    assert!(board.fail(taken[1], "first").unwrap() && board.fail(taken[1], "second").unwrap());
    assert!(board.give_back(taken[2], "first", LONG).unwrap());
    assert!(board.give_back(taken[2], "second", OVER).unwrap());

    assert!(
        !board.fail(taken[0], "no").unwrap() && !board.give_back(taken[0], "no", OVER).unwrap()
    );
    assert!(!board.done(taken[1], b"no").unwrap() && !board.done(taken[2], b"no").unwrap());
    assert!(
        board.take(job, "one", 1, LONG).unwrap().is_empty(),
        "its pause lasts"
    );
    assert_eq!(
        board.results(job, Position::default(), 9).unwrap()[1].result,
        b"first"
    );
    assert_eq!(board.standing(job).unwrap().failures[0].why, "first");
}

#[test]
fn released_task_goes_to_another_holder_first() {
    let ground = Ground::new();
    let board = &ground.board;
    let job = ground.planned(&extents(["a", "b"]));
    let taken = only(board.take(job, "one", 1, LONG).unwrap());
    assert!(board.give_back(taken.token, "no space", TTL_MAX).unwrap());
    assert_eq!(keys(&board.take(job, "one", 2, LONG).unwrap()), ["b"]);
    let other = only(board.take(job, "two", 2, LONG).unwrap());
    assert_eq!((other.key, other.tries), (b"a".to_vec(), 2));
    assert!(board.give_back(other.token, "nor here", OVER).unwrap());
    assert_eq!(only(board.take(job, "two", 1, LONG).unwrap()).tries, 3);
}

#[test]
fn releases_leases_unknown_to_the_holder() {
    let ground = Ground::new();
    let board = &ground.board;
    let job = ground.planned(&extents(["a", "b", "c", "d"]));
    let known = tokens(&board.take(job, "one", 1, LONG).unwrap());
    let lost = tokens(&board.take(job, "one", 2, LONG).unwrap());
    let others = tokens(&board.take(job, "two", 1, LONG).unwrap());
    assert_eq!(board.give_back_unknown(job, "one", &known).unwrap(), 2);
    let all = [&*known, &lost, &others].concat();
    assert_eq!(
        board.renew(&all, LONG).unwrap().tokens,
        [known, others].concat()
    );
    assert_eq!(keys(&board.take(job, "one", 9, LONG).unwrap()), ["b", "c"]);
}

#[test]
fn second_planner_adds_no_task_twice() {
    let ground = Ground::new();
    let board = &ground.board;
    let job = board.join(b"job", b"spec", &extent("plan")).unwrap();
    let first = only(board.take(job, "one", 1, OVER).unwrap());
    assert_eq!(
        board.add(first.token, &extents(["a", "b", "a"])).unwrap(),
        Some(2)
    );
    let second = only(board.take(job, "two", 1, LONG).unwrap());
    assert_eq!(second.key, b"plan", "what was added comes after it");
    assert_eq!(board.add(first.token, &extents(["c"])).unwrap(), None);
    let plan = extents(["plan", "a", "b", "c", "d"]);
    assert_eq!(board.add(second.token, &plan).unwrap(), Some(2));
    assert_eq!(board.add(second.token, &plan).unwrap(), Some(0));
    assert!(board.done(second.token, b"").unwrap());
    assert_eq!(
        keys(&board.take(job, "two", 9, LONG).unwrap()),
        ["a", "b", "c", "d"]
    );
}

#[test]
fn task_after_a_group_waits_for_the_whole_group() {
    let ground = Ground::new();
    let board = &ground.board;
    let job = ground.planned(&[
        after("file", "rename"),
        part_of("file", "a"),
        part_of("file", "b"),
        after("nothing", "free"),
    ]);
    let taken = board.take(job, "one", 9, LONG).unwrap();
    assert_eq!(keys(&taken), ["a", "b", "free"]);
    let standing = board.standing(job).unwrap();
    assert_eq!((standing.waiting.extents, standing.open.extents), (1, 0));
    assert!(board.done(taken[0].token, b"").unwrap());
    assert!(board.take(job, "one", 9, LONG).unwrap().is_empty());
    assert!(board.done(taken[1].token, b"").unwrap());
    assert_eq!(keys(&board.take(job, "one", 9, LONG).unwrap()), ["rename"]);
}

#[test]
fn planner_in_the_group_delays_tasks_after_it() {
    let ground = Ground::new();
    let board = &ground.board;
    let job = board
        .join(b"job", b"spec", &part_of("data", "plan"))
        .unwrap();
    let planner = only(board.take(job, "one", 1, LONG).unwrap());
    board.add(planner.token, &[after("data", "end")]).unwrap();
    assert!(board.take(job, "two", 9, LONG).unwrap().is_empty());
    board.add(planner.token, &[part_of("data", "a")]).unwrap();
    assert!(board.done(planner.token, b"").unwrap());
    let data = only(board.take(job, "two", 9, LONG).unwrap());
    assert!(board.done(data.token, b"").unwrap());
    assert_eq!(keys(&board.take(job, "two", 9, LONG).unwrap()), ["end"]);
}

#[test]
fn job_ends_when_the_rest_waits_for_a_failed_task() {
    let ground = Ground::new();
    let board = &ground.board;
    let mut chained = after("one", "second");
    chained.group = Some(b"two".to_vec());
    let job = ground.planned(&[part_of("one", "first"), chained, after("two", "third")]);
    let taken = only(board.take(job, "here", 9, LONG).unwrap());
    assert!(!board.standing(job).unwrap().is_over());
    assert!(board.fail(taken.token, "bad sector").unwrap());
    let standing = board.standing(job).unwrap();
    assert!(standing.is_over() && !standing.is_done());
    assert!(board.take(job, "there", 9, LONG).unwrap().is_empty());
    assert_eq!((standing.waiting.extents, standing.failed.bytes), (2, 10));
    let failure = &standing.failures[0];
    assert_eq!(
        (&*failure.why, &*failure.holder, failure.tries),
        ("bad sector", "here", 1)
    );
    assert_eq!(failure.key, b"first");
}

#[test]
fn status_lists_holders_and_their_leases() {
    let ground = Ground::new();
    let board = &ground.board;
    let job = ground.planned(&extents(["a", "b", "c", "d"]));
    board.take(job, "one", 2, OVER).unwrap();
    ground.sql("UPDATE longhaul.extent SET since = since - interval '1 hour' WHERE key = 'a'");
    ground.sql("UPDATE longhaul.extent SET expires = expires + interval '1 hour' WHERE key = 'b'");
    let standing = board.standing(job).unwrap();
    assert_eq!((standing.open.extents, standing.leased.extents), (2, 2));
    assert_eq!((standing.done.extents, standing.done.bytes), (1, 10));
    let holder = &standing.holders[0];
    assert_eq!(
        (&*holder.name, holder.has.bytes, holder.over),
        ("one", 20, 1)
    );
    assert!(holder.since >= LONG && holder.since < LONG + Duration::from_secs(600));
}
