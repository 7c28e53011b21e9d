// SPDX-License-Identifier: MIT OR Apache-2.0
//! Duration of calls with 100,000 tasks: `cargo test -p longhaul-leases --test board -- --ignored
//! --nocapture`.

use crate::ground::{Ground, LONG, after, extent, part_of, tokens};
use longhaul_leases::{Job, NewExtent};
use std::time::{Duration, Instant};

const EXTENTS: usize = 100_000;
const CALLS: usize = 50;

#[test]
#[ignore = "prints, and judges nothing"]
fn measures_a_hundred_thousand_tasks() {
    let free = |number: usize| extent(&number.to_string());
    measure("all free", free);
    measure("one group, one that waits for it", |number| match number {
        0 => after("all", "end"),
        _ => part_of("all", &number.to_string()),
    });
    measure("the first half waits for the second", |number| {
        let key = number.to_string();
        if number < EXTENTS / 2 {
            after("late", &key)
        } else {
            part_of("late", &key)
        }
    });
    measure("each second waits for the one before it", |number| {
        let group = (number / 2).to_string();
        let key = number.to_string();
        if number % 2 == 0 {
            part_of(&group, &key)
        } else {
            after(&group, &key)
        }
    });
}

fn measure(what: &str, make: impl Fn(usize) -> NewExtent) {
    let ground = Ground::new();
    let start = Instant::now();
    let job = ground.planned(&(0..EXTENTS).map(make).collect::<Vec<_>>());
    println!(
        "\n{what}: {EXTENTS} added in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    calls(&ground, job, "at once");
    ground.sql("UPDATE longhaul.extent SET state = 2 WHERE id % 10 <> 0 AND id < 95000");
    calls(&ground, job, "after nine of ten are done");
    ground.sql("VACUUM ANALYZE longhaul.extent");
    calls(&ground, job, "after VACUUM ANALYZE");
    let start = Instant::now();
    assert!(ground.board.forget(job).unwrap());
    println!("  forget: {:.1} s", start.elapsed().as_secs_f64());
}

fn calls(ground: &Ground, job: Job, when: &str) {
    println!("  {when}:");
    let board = &ground.board;
    let mut held = Vec::new();
    time("take 1 and done", || {
        let taken = board.take(job, "one", 1, LONG).unwrap();
        assert!(
            taken
                .iter()
                .all(|lease| board.done(lease.token, b"").unwrap())
        );
    });
    time("take 4", || {
        held.extend(tokens(&board.take(job, "one", 4, LONG).unwrap()));
    });
    time("renew 4", || {
        drop(board.renew(&held[..4.min(held.len())], LONG).unwrap());
    });
    let start = Instant::now();
    board.standing(job).unwrap();
    println!(
        "    standing: {:.0} ms",
        start.elapsed().as_secs_f64() * 1e3
    );
    board.give_back_unknown(job, "one", &[]).unwrap();
}

fn time(what: &str, mut call: impl FnMut()) {
    let mut times: Vec<Duration> = (0..CALLS)
        .map(|_| {
            let start = Instant::now();
            call();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    let ms = |part: usize| times[CALLS * part / 100].as_secs_f64() * 1e3;
    println!("    {what}: median {:.2} ms, 99 % {:.2} ms", ms(50), ms(99));
}
