// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random histories of several holders, compared with a sequential model.

use crate::test_database::{EXPIRED, LONG, TestDatabase, task};
use longhaul_leases::{Job, JobStatus, Lease, NewTask, TTL_MAX, Token};
use proptest::{collection::vec, prelude::*};

const HOLDERS: [&str; 3] = ["one", "two", "three"];
const KEYS: usize = 8;
const GROUPS: [&str; 2] = ["left", "right"];

/// Call of a history. A token is given by its index, counted back from the last token that was issued.
#[derive(Clone, Debug)]
enum Operation {
    Acquire {
        holder: usize,
        count: u32,
        expired: bool,
    },
    Renew {
        tokens: Vec<usize>,
        expired: bool,
    },
    Add {
        token: usize,
        tasks: Vec<TaskPlan>,
    },
    Complete {
        token: usize,
    },
    Release {
        token: usize,
        pause: bool,
    },
    Fail {
        token: usize,
    },
    ReleaseUnknown {
        holder: usize,
        known: Vec<usize>,
    },
}

/// Task to add: an index of its key, and indices of [`GROUPS`].
#[derive(Clone, Debug)]
struct TaskPlan {
    key: usize,
    group: Option<usize>,
    after: Option<usize>,
}

fn task_plan() -> impl Strategy<Value = TaskPlan> {
    let group = || prop::option::of(0..GROUPS.len());
    (0..KEYS, group(), group()).prop_map(|(key, group, after)| TaskPlan { key, group, after })
}

fn operation() -> impl Strategy<Value = Operation> {
    let token = || 0..6_usize;
    let holder = || 0..HOLDERS.len();
    prop_oneof![
        6 => (holder(), 0..4_u32, any::<bool>())
            .prop_map(|(holder, count, expired)| Operation::Acquire { holder, count, expired }),
        2 => (vec(token(), 0..4), any::<bool>())
            .prop_map(|(tokens, expired)| Operation::Renew { tokens, expired }),
        3 => (token(), vec(task_plan(), 0..4)).prop_map(|(token, tasks)| Operation::Add { token, tasks }),
        4 => token().prop_map(|token| Operation::Complete { token }),
        2 => (token(), any::<bool>()).prop_map(|(token, pause)| Operation::Release { token, pause }),
        1 => token().prop_map(|token| Operation::Fail { token }),
        1 => (holder(), vec(token(), 0..3))
            .prop_map(|(holder, known)| Operation::ReleaseUnknown { holder, known }),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open { paused: bool },
    Leased { expired: bool },
    Done,
    Failed,
}

#[derive(Debug)]
struct ModelTask {
    new: NewTask,
    state: State,
    token: Option<Token>,
    holder: usize,
    tries: u32,
}

impl ModelTask {
    fn new(new: NewTask) -> Self {
        let state = State::Open { paused: false };
        Self {
            new,
            state,
            token: None,
            holder: 0,
            tries: 0,
        }
    }
}

/// Model of a job: its tasks in the order in which they were added, and the tokens that were issued.
struct Model {
    tasks: Vec<ModelTask>,
    tokens: Vec<Token>,
}

impl Model {
    fn token(&self, back: usize) -> Option<Token> {
        let index = self.tokens.len().checked_sub(back + 1)?;
        Some(self.tokens[index])
    }

    fn is_waiting(&self, task: &ModelTask) -> bool {
        let unfinished = |other: &ModelTask| {
            other.new.group.is_some()
                && other.new.group == task.new.after
                && other.state != State::Done
        };
        self.tasks.iter().any(unfinished)
    }

    fn may_acquire(&self, task: &ModelTask, holder: usize) -> bool {
        let free = match task.state {
            State::Open { paused } => !paused || task.holder != holder,
            State::Leased { expired } => expired,
            State::Done | State::Failed => false,
        };
        free && !self.is_waiting(task)
    }

    fn acquire(&mut self, holder: usize, count: u32, expired: bool, acquired: &[Lease]) {
        let is_available = |index: &usize| self.may_acquire(&self.tasks[*index], holder);
        let chosen = (0..self.tasks.len())
            .filter(is_available)
            .take(count as usize);
        let chosen: Vec<usize> = chosen.collect();
        assert_eq!(chosen.len(), acquired.len());
        let last = self.tokens.iter().max().copied();
        for (index, lease) in chosen.into_iter().zip(acquired) {
            let task = &mut self.tasks[index];
            task.tries += 1;
            assert_eq!((&lease.key, lease.tries), (&task.new.key, task.tries));
            assert!(Some(lease.token) > last && !self.tokens.contains(&lease.token));
            task.state = State::Leased { expired };
            (task.token, task.holder) = (Some(lease.token), holder);
            self.tokens.push(lease.token);
        }
    }

    /// Returns the task whose last acquisition has this token.
    fn task_of(&mut self, token: Token) -> Option<&mut ModelTask> {
        self.tasks.iter_mut().find(|task| task.token == Some(token))
    }

    fn is_leased(&mut self, token: Token) -> bool {
        let leased = |task: &mut ModelTask| matches!(task.state, State::Leased { .. });
        self.task_of(token).is_some_and(leased)
    }

    /// Ends the lease of a task, which gets the state `end`. Returns whether the database must accept the call: the
    /// token is valid, or has ended the task in the same way before.
    fn end_lease(&mut self, token: Token, end: State) -> bool {
        let Some(task) = self.task_of(token) else {
            return false;
        };
        match (task.state, end) {
            (State::Leased { .. }, _) => task.state = end,
            (State::Open { .. }, State::Open { .. }) => {}
            (state, end) => return state == end,
        }
        true
    }

    fn add(&mut self, tasks: &[NewTask]) -> u64 {
        let before = self.tasks.len();
        for new in tasks {
            if !self.tasks.iter().any(|task| task.new.key == new.key) {
                self.tasks.push(ModelTask::new(new.clone()));
            }
        }
        (self.tasks.len() - before) as u64
    }

    fn release_unknown(&mut self, holder: usize, known: &[Token]) -> u64 {
        let mut count = 0;
        for task in &mut self.tasks {
            let leased = matches!(task.state, State::Leased { .. }) && task.holder == holder;
            if leased && !known.contains(&task.token.unwrap()) {
                task.state = State::Open { paused: false };
                count += 1;
            }
        }
        count
    }

    fn check(&self, status: &JobStatus) {
        let count = |matches: &dyn Fn(&ModelTask) -> bool| {
            self.tasks.iter().filter(|task| matches(task)).count() as u64
        };
        let open = |task: &ModelTask| matches!(task.state, State::Open { .. });
        assert_eq!(
            status.open.tasks,
            count(&|e| open(e) && !self.is_waiting(e))
        );
        assert_eq!(
            status.waiting.tasks,
            count(&|e| open(e) && self.is_waiting(e))
        );
        assert_eq!(status.done.tasks, count(&|e| e.state == State::Done));
        assert_eq!(status.failed.tasks, count(&|e| e.state == State::Failed));
        let leased = |expired| move |e: &ModelTask| e.state == State::Leased { expired };
        let expired: u64 = status.holders.iter().map(|holder| holder.expired).sum();
        assert_eq!(expired, count(&leased(true)));
        assert_eq!(
            status.leased.tasks,
            count(&leased(true)) + count(&leased(false))
        );
    }
}

struct History {
    database: TestDatabase,
    job: Job,
    model: Model,
}

impl History {
    fn new(number: u64) -> Self {
        thread_local! {
            // One database for all histories, because creating one takes longer than a history.
            static URL: String = TestDatabase::new().url;
        }
        let url = URL.with(Clone::clone);
        let store = longhaul_leases::JobStore::open(&url).unwrap();
        let name = number.to_le_bytes();
        let job = store.join(&name, b"", &task("plan")).unwrap();
        let database = TestDatabase { url, store };
        let tasks = vec![ModelTask::new(task("plan"))];
        let tokens = Vec::new();
        Self {
            database,
            job,
            model: Model { tasks, tokens },
        }
    }

    fn run(&mut self, operation: Operation) {
        let store = &self.database.store;
        let ttl = |expired| if expired { EXPIRED } else { LONG };
        let model = &mut self.model;
        match operation {
            Operation::Acquire {
                holder,
                count,
                expired,
            } => {
                let acquired = store
                    .acquire(self.job, HOLDERS[holder], count, ttl(expired))
                    .unwrap();
                model.acquire(holder, count, expired, &acquired);
            }
            Operation::Renew { tokens, expired } => {
                let tokens: Vec<Token> = tokens
                    .iter()
                    .filter_map(|back| model.token(*back))
                    .collect();
                let renewed = store.renew(&tokens, ttl(expired)).unwrap().tokens;
                let mut valid: Vec<Token> = tokens
                    .into_iter()
                    .filter(|token| model.is_leased(*token))
                    .collect();
                valid.sort_unstable();
                valid.dedup();
                assert_eq!(renewed, valid);
                for token in valid {
                    model.task_of(token).unwrap().state = State::Leased { expired };
                }
            }
            Operation::Add { token, tasks } => {
                let Some(token) = model.token(token) else {
                    return;
                };
                let tasks: Vec<NewTask> = tasks.iter().map(to_new_task).collect();
                let added = store.add_tasks(token, &tasks).unwrap();
                let expected = model.is_leased(token).then(|| model.add(&tasks));
                assert_eq!(added, expected);
            }
            Operation::Complete { token } => {
                let Some(token) = model.token(token) else {
                    return;
                };
                assert_eq!(
                    store.complete(token, b"").unwrap(),
                    model.end_lease(token, State::Done)
                );
            }
            Operation::Release { token, pause } => {
                let Some(token) = model.token(token) else {
                    return;
                };
                let accepted = store.release(token, "", if pause { TTL_MAX } else { EXPIRED });
                assert_eq!(
                    accepted.unwrap(),
                    model.end_lease(token, State::Open { paused: pause })
                );
            }
            Operation::Fail { token } => {
                let Some(token) = model.token(token) else {
                    return;
                };
                assert_eq!(
                    store.fail(token, "").unwrap(),
                    model.end_lease(token, State::Failed)
                );
            }
            Operation::ReleaseUnknown { holder, known } => {
                let known: Vec<Token> =
                    known.iter().filter_map(|back| model.token(*back)).collect();
                let count = store
                    .release_unknown(self.job, HOLDERS[holder], &known)
                    .unwrap();
                assert_eq!(count, model.release_unknown(holder, &known));
            }
        }
        self.model
            .check(&self.database.store.status(self.job).unwrap());
    }
}

fn to_new_task(plan: &TaskPlan) -> NewTask {
    let group = |index: Option<usize>| index.map(|index| GROUPS[index].into());
    NewTask {
        group: group(plan.group),
        after: group(plan.after),
        ..task(&plan.key.to_string())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "needs PostgreSQL: make test-peers"]
    fn random_histories_match_the_model(number: u64, operations in vec(operation(), 1..60)) {
        let mut history = History::new(number);
        for operation in operations {
            history.run(operation);
        }
        prop_assert!(history.database.store.delete_job(history.job).unwrap());
    }
}
