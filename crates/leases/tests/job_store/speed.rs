// SPDX-License-Identifier: MIT OR Apache-2.0
//! Duration of calls with 100,000 tasks: `cargo test -p longhaul-leases --test job_store --
//! --ignored --nocapture`.

use crate::test_database::{LONG, TestDatabase, after, part_of, task, tokens};
use longhaul_leases::{Job, NewTask};
use std::time::{Duration, Instant};

const EXTENTS: usize = 100_000;
const CALLS: usize = 50;

#[test]
#[ignore = "prints, and judges nothing"]
fn measures_a_hundred_thousand_tasks() {
    let free = |number: usize| task(&number.to_string());
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

fn measure(what: &str, make: impl Fn(usize) -> NewTask) {
    let database = TestDatabase::new();
    let start = Instant::now();
    let job = database.planned_job(&(0..EXTENTS).map(make).collect::<Vec<_>>());
    println!(
        "\n{what}: {EXTENTS} added in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    measure_calls(&database, job, "at once");
    database.sql("UPDATE longhaul.extent SET state = 2 WHERE id % 10 <> 0 AND id < 95000");
    measure_calls(&database, job, "after nine of ten are done");
    database.sql("VACUUM ANALYZE longhaul.extent");
    measure_calls(&database, job, "after VACUUM ANALYZE");
    let start = Instant::now();
    assert!(database.store.delete_job(job).unwrap());
    println!("  delete: {:.1} s", start.elapsed().as_secs_f64());
}

fn measure_calls(database: &TestDatabase, job: Job, when: &str) {
    println!("  {when}:");
    let store = &database.store;
    let mut held = Vec::new();
    time("take 1 and done", || {
        let acquired = store.acquire(job, "one", 1, LONG).unwrap();
        assert!(
            acquired
                .iter()
                .all(|lease| store.complete(lease.token, b"").unwrap())
        );
    });
    time("take 4", || {
        held.extend(tokens(&store.acquire(job, "one", 4, LONG).unwrap()));
    });
    time("renew 4", || {
        drop(store.renew(&held[..4.min(held.len())], LONG).unwrap());
    });
    let start = Instant::now();
    store.status(job).unwrap();
    println!("    status: {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    store.release_unknown(job, "one", &[]).unwrap();
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
