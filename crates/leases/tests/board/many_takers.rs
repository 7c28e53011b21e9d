// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many holders at once, each with its own connection, in a random order from seeds.

use crate::ground::{Ground, LONG, OVER, after, part_of, wait_for};
use longhaul_leases::{Board, Job, Lease, NewExtent, Token};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard},
    thread,
};

const TAKERS: u64 = 8;
const GROUPS: usize = 12;
const MEMBERS: usize = 12;

/// Tasks in groups. The last task of each group comes after the others, and belongs to the group
/// that the next last task comes after.
fn plan() -> Vec<NewExtent> {
    let mut extents = Vec::new();
    for group in 0..GROUPS {
        let name = format!("group {}", group % 6);
        extents.push(after(&name, &format!("after/{}/{group}", group % 6)));
        let member = |number| part_of(&name, &format!("member/{}/{group}.{number}", group % 6));
        extents.extend((0..MEMBERS).map(member));
    }
    extents
}

/// Expected state, tracked outside the database.
#[derive(Default)]
struct Truth {
    held: HashSet<Vec<u8>>,
    done: HashSet<String>,
    /// Last token of each task.
    tokens: HashMap<Vec<u8>, Token>,
    takings: HashSet<Token>,
}

fn group_of(key: &str) -> &str {
    key.split('/').nth(1).unwrap()
}

impl Truth {
    fn take(&mut self, lease: &Lease) {
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
                MEMBERS * GROUPS / 6,
                "{key} came too early"
            );
        }
        assert!(
            self.takings.insert(lease.token),
            "{lease:?} is not the first with its token"
        );
        let earlier = self.tokens.insert(lease.key.clone(), lease.token);
        assert!(
            earlier < Some(lease.token),
            "{lease:?} has a smaller token than before"
        );
    }

    fn let_go(&mut self, lease: &Lease) {
        assert!(self.held.remove(&lease.key));
    }
}

struct Taker<'a> {
    board: Board,
    job: Job,
    name: String,
    random: Xoshiro256PlusPlus,
    truth: &'a Mutex<Truth>,
}

impl Taker<'_> {
    fn truth(&self) -> MutexGuard<'_, Truth> {
        self.truth.lock().unwrap()
    }

    fn work(&mut self) {
        wait_for("the end of the job", || {
            let over = self.board.standing(self.job).unwrap().is_over();
            if !over {
                self.take_and_end();
            }
            over
        });
    }

    fn take_and_end(&mut self) {
        let count = self.random.random_range(1..5);
        let taken = self.board.take(self.job, &self.name, count, LONG).unwrap();
        for lease in &taken {
            self.truth().take(lease);
        }
        for lease in taken {
            self.end(&lease);
        }
    }

    /// Ends a lease. The expected state is updated first: from the moment of the call, others may
    /// act on it.
    fn end(&mut self, lease: &Lease) {
        let gives_back = self.random.random_bool(0.2);
        {
            let mut truth = self.truth();
            truth.let_go(lease);
            if !gives_back {
                truth
                    .done
                    .insert(String::from_utf8(lease.key.clone()).unwrap());
            }
        }
        let heard = if gives_back {
            self.board.give_back(lease.token, "for now", OVER)
        } else {
            self.board.done(lease.token, b"")
        };
        assert!(heard.unwrap());
    }
}

#[test]
fn concurrent_holders_share_no_task_and_keep_group_order() {
    let ground = Ground::new();
    let job = ground.planned(&plan());
    let truth = Mutex::new(Truth::default());
    thread::scope(|scope| {
        for seed in 0..TAKERS {
            let mut taker = Taker {
                board: ground.board(),
                job,
                name: format!("taker {seed}"),
                random: Xoshiro256PlusPlus::seed_from_u64(seed),
                truth: &truth,
            };
            scope.spawn(move || taker.work());
        }
    });
    let truth = truth.into_inner().unwrap();
    assert_eq!(truth.done.len(), plan().len());
    assert!(ground.board.standing(job).unwrap().is_done());
    let takings = "SELECT sum(tries) FROM longhaul.extent WHERE key <> 'plan'";
    assert_eq!(ground.sql(takings), truth.takings.len().to_string());
}
