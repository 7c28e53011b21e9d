// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many holders at once, each with its own connection, in a random order from seeds.

use crate::test_database::{EXPIRED, LONG, TestDatabase, after, part_of};
use longhaul_leases::{Job, JobStore, Lease, NewTask, Token};
use longhaul_testprograms::wait::wait_until;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard},
    thread,
};

const WORKERS: u64 = 8;
const GROUPS: usize = 6;
const ROUNDS: usize = 12;
/// Members that each round adds to its group.
const MEMBERS: usize = 12;

/// Tasks of six groups, added in twelve rounds. Each round adds members to a group, and one task that
/// must wait for all members of that group, also for those of the later round.
fn plan() -> Vec<NewTask> {
    let mut tasks = Vec::new();
    for round in 0..ROUNDS {
        let group = round % GROUPS;
        let name = format!("group {group}");
        tasks.push(after(&name, &format!("after/{group}/{round}")));
        let member = |number| part_of(&name, &format!("member/{group}/{round}.{number}"));
        tasks.extend((0..MEMBERS).map(member));
    }
    tasks
}

/// Expected state, tracked outside the database.
#[derive(Default)]
struct Expected {
    held: HashSet<Vec<u8>>,
    done: HashSet<String>,
    /// Last token of each task.
    tokens: HashMap<Vec<u8>, Token>,
    acquisitions: HashSet<Token>,
}

fn group_of(key: &str) -> &str {
    key.split('/').nth(1).unwrap()
}

impl Expected {
    fn acquire(&mut self, lease: &Lease) {
        assert!(
            self.held.insert(lease.key.clone()),
            "{lease:?} is held by another"
        );
        let key = String::from_utf8(lease.key.clone()).unwrap();
        assert!(!self.done.contains(&key), "{key} is done");
        if key.starts_with("after/") {
            let group = group_of(&key);
            let members = self
                .done
                .iter()
                .filter(|done| done.starts_with("member/") && group_of(done) == group);
            assert_eq!(
                members.count(),
                MEMBERS * ROUNDS / GROUPS,
                "{key} came too early"
            );
        }
        assert!(
            self.acquisitions.insert(lease.token),
            "{lease:?} is not the first with its token"
        );
        let earlier = self.tokens.insert(lease.key.clone(), lease.token);
        assert!(
            earlier < Some(lease.token),
            "{lease:?} has a smaller token than before"
        );
    }

    fn release(&mut self, lease: &Lease) {
        assert!(self.held.remove(&lease.key));
    }
}

struct Worker<'a> {
    store: JobStore,
    job: Job,
    name: String,
    random: Xoshiro256PlusPlus,
    expected: &'a Mutex<Expected>,
}

impl Worker<'_> {
    fn expected(&self) -> MutexGuard<'_, Expected> {
        self.expected.lock().unwrap()
    }

    fn work(&mut self) {
        wait_until(|| {
            let has_ended = self.store.status(self.job).unwrap().has_ended();
            if !has_ended {
                self.acquire_and_end();
            }
            has_ended
        });
    }

    fn acquire_and_end(&mut self) {
        let count = self.random.random_range(1..5);
        let acquired = self
            .store
            .acquire(self.job, &self.name, count, LONG)
            .unwrap();
        for lease in &acquired {
            self.expected().acquire(lease);
        }
        for lease in acquired {
            self.end(&lease);
        }
    }

    /// Ends a lease. The expected state is updated first: from the moment of the call, others may
    /// act on it.
    fn end(&mut self, lease: &Lease) {
        let releases = self.random.random_bool(0.2);
        {
            let mut expected = self.expected();
            expected.release(lease);
            if !releases {
                expected
                    .done
                    .insert(String::from_utf8(lease.key.clone()).unwrap());
            }
        }
        let accepted = if releases {
            self.store.release(lease.token, "for now", EXPIRED)
        } else {
            self.store.complete(lease.token, b"")
        };
        assert!(accepted.unwrap());
    }
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn concurrent_holders_share_no_task_and_keep_group_order() {
    let database = TestDatabase::new();
    let job = database.planned_job(&plan());
    let expected = Mutex::new(Expected::default());
    thread::scope(|scope| {
        for seed in 0..WORKERS {
            let mut worker = Worker {
                store: database.new_store(),
                job,
                name: format!("worker {seed}"),
                random: Xoshiro256PlusPlus::seed_from_u64(seed),
                expected: &expected,
            };
            scope.spawn(move || worker.work());
        }
    });
    let expected = expected.into_inner().unwrap();
    assert_eq!(expected.done.len(), plan().len());
    assert!(database.store.status(job).unwrap().is_done());
    let acquisitions = "SELECT sum(tries) FROM longhaul.extent WHERE key <> 'plan'";
    assert_eq!(
        database.sql(acquisitions),
        expected.acquisitions.len().to_string()
    );
}
