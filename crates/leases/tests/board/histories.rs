// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random histories of several holders, compared with a sequential model.

use crate::ground::{Ground, LONG, OVER, extent};
use longhaul_leases::{Job, Lease, NewExtent, Standing, TTL_MAX, Token};
use proptest::{collection::vec, prelude::*};

const HOLDERS: [&str; 3] = ["one", "two", "three"];
const KEYS: usize = 8;
const GROUPS: [&str; 2] = ["left", "right"];

/// Operation of a history. A token is given by its index, counted back from the last one issued.
#[derive(Clone, Debug)]
enum Act {
    Take {
        holder: usize,
        count: u32,
        over: bool,
    },
    Renew {
        tokens: Vec<usize>,
        over: bool,
    },
    Add {
        token: usize,
        extents: Vec<Plan>,
    },
    Done {
        token: usize,
    },
    GiveBack {
        token: usize,
        pause: bool,
    },
    Fail {
        token: usize,
    },
    GiveBackUnknown {
        holder: usize,
        known: Vec<usize>,
    },
}

#[derive(Clone, Debug)]
struct Plan {
    key: usize,
    group: Option<usize>,
    after: Option<usize>,
}

fn plan() -> impl Strategy<Value = Plan> {
    let group = || prop::option::of(0..GROUPS.len());
    (0..KEYS, group(), group()).prop_map(|(key, group, after)| Plan { key, group, after })
}

fn act() -> impl Strategy<Value = Act> {
    let token = || 0..6_usize;
    let holder = || 0..HOLDERS.len();
    prop_oneof![
        6 => (holder(), 0..4_u32, any::<bool>())
            .prop_map(|(holder, count, over)| Act::Take { holder, count, over }),
        2 => (vec(token(), 0..4), any::<bool>())
            .prop_map(|(tokens, over)| Act::Renew { tokens, over }),
        3 => (token(), vec(plan(), 0..4)).prop_map(|(token, extents)| Act::Add { token, extents }),
        4 => token().prop_map(|token| Act::Done { token }),
        2 => (token(), any::<bool>()).prop_map(|(token, pause)| Act::GiveBack { token, pause }),
        1 => token().prop_map(|token| Act::Fail { token }),
        1 => (holder(), vec(token(), 0..3))
            .prop_map(|(holder, known)| Act::GiveBackUnknown { holder, known }),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open { pauses: bool },
    Leased { over: bool },
    Done,
    Failed,
}

#[derive(Debug)]
struct Extent {
    new: NewExtent,
    state: State,
    token: Option<Token>,
    holder: usize,
    tries: u32,
}

impl Extent {
    fn new(new: NewExtent) -> Self {
        let state = State::Open { pauses: false };
        Self {
            new,
            state,
            token: None,
            holder: 0,
            tries: 0,
        }
    }
}

/// Model: tasks in order, and the tokens that were issued.
struct Model {
    extents: Vec<Extent>,
    tokens: Vec<Token>,
}

impl Model {
    fn token(&self, back: usize) -> Option<Token> {
        let index = self.tokens.len().checked_sub(back + 1)?;
        Some(self.tokens[index])
    }

    fn waits(&self, extent: &Extent) -> bool {
        let unfinished = |other: &Extent| {
            other.new.group.is_some()
                && other.new.group == extent.new.after
                && other.state != State::Done
        };
        self.extents.iter().any(unfinished)
    }

    fn may_take(&self, extent: &Extent, holder: usize) -> bool {
        let free = match extent.state {
            State::Open { pauses } => !pauses || extent.holder != holder,
            State::Leased { over } => over,
            State::Done | State::Failed => false,
        };
        free && !self.waits(extent)
    }

    fn take(&mut self, holder: usize, count: u32, over: bool, taken: &[Lease]) {
        let may = |index: &usize| self.may_take(&self.extents[*index], holder);
        let chosen = (0..self.extents.len()).filter(may).take(count as usize);
        let chosen: Vec<usize> = chosen.collect();
        assert_eq!(chosen.len(), taken.len());
        let last = self.tokens.iter().max().copied();
        for (index, lease) in chosen.into_iter().zip(taken) {
            let extent = &mut self.extents[index];
            extent.tries += 1;
            assert_eq!((&lease.key, lease.tries), (&extent.new.key, extent.tries));
            assert!(Some(lease.token) > last && !self.tokens.contains(&lease.token));
            extent.state = State::Leased { over };
            (extent.token, extent.holder) = (Some(lease.token), holder);
            self.tokens.push(lease.token);
        }
    }

    /// Task whose last acquisition has this token.
    fn of(&mut self, token: Token) -> Option<&mut Extent> {
        self.extents
            .iter_mut()
            .find(|extent| extent.token == Some(token))
    }

    fn stands(&mut self, token: Token) -> bool {
        let leased = |extent: &mut Extent| matches!(extent.state, State::Leased { .. });
        self.of(token).is_some_and(leased)
    }

    /// Whether this end has an effect: the token is valid, or ended the task in the same way
    /// before.
    fn end(&mut self, token: Token, end: State) -> bool {
        let Some(extent) = self.of(token) else {
            return false;
        };
        match (extent.state, end) {
            (State::Leased { .. }, _) => extent.state = end,
            (State::Open { .. }, State::Open { .. }) => {}
            (was, end) => return was == end,
        }
        true
    }

    fn add(&mut self, extents: &[NewExtent]) -> u64 {
        let before = self.extents.len();
        for new in extents {
            if !self.extents.iter().any(|extent| extent.new.key == new.key) {
                self.extents.push(Extent::new(new.clone()));
            }
        }
        (self.extents.len() - before) as u64
    }

    fn give_back_unknown(&mut self, holder: usize, known: &[Token]) -> u64 {
        let mut count = 0;
        for extent in &mut self.extents {
            let leased = matches!(extent.state, State::Leased { .. }) && extent.holder == holder;
            if leased && !known.contains(&extent.token.unwrap()) {
                extent.state = State::Open { pauses: false };
                count += 1;
            }
        }
        count
    }

    fn check(&self, standing: &Standing) {
        let count = |like: &dyn Fn(&Extent) -> bool| {
            self.extents.iter().filter(|extent| like(extent)).count() as u64
        };
        let open = |extent: &Extent| matches!(extent.state, State::Open { .. });
        assert_eq!(standing.open.extents, count(&|e| open(e) && !self.waits(e)));
        assert_eq!(
            standing.waiting.extents,
            count(&|e| open(e) && self.waits(e))
        );
        assert_eq!(standing.done.extents, count(&|e| e.state == State::Done));
        assert_eq!(
            standing.failed.extents,
            count(&|e| e.state == State::Failed)
        );
        let leased = |over| move |e: &Extent| e.state == State::Leased { over };
        let over: u64 = standing.holders.iter().map(|holder| holder.over).sum();
        assert_eq!(over, count(&leased(true)));
        assert_eq!(
            standing.leased.extents,
            count(&leased(true)) + count(&leased(false))
        );
    }
}

struct History {
    ground: Ground,
    job: Job,
    model: Model,
}

impl History {
    fn new(number: u64) -> Self {
        thread_local! {
            // One database for all histories, because creating one takes longer than a history.
            static URL: String = Ground::new().url;
        }
        let url = URL.with(Clone::clone);
        let board = longhaul_leases::Board::open(&url).unwrap();
        let name = number.to_le_bytes();
        let job = board.join(&name, b"", &extent("plan")).unwrap();
        let ground = Ground { url, board };
        let extents = vec![Extent::new(extent("plan"))];
        let tokens = Vec::new();
        Self {
            ground,
            job,
            model: Model { extents, tokens },
        }
    }

    fn act(&mut self, act: Act) {
        let board = &self.ground.board;
        let ttl = |over| if over { OVER } else { LONG };
        let model = &mut self.model;
        match act {
            Act::Take {
                holder,
                count,
                over,
            } => {
                let taken = board
                    .take(self.job, HOLDERS[holder], count, ttl(over))
                    .unwrap();
                model.take(holder, count, over, &taken);
            }
            Act::Renew { tokens, over } => {
                let tokens: Vec<Token> = tokens
                    .iter()
                    .filter_map(|back| model.token(*back))
                    .collect();
                let renewed = board.renew(&tokens, ttl(over)).unwrap().tokens;
                let mut standing: Vec<Token> = tokens
                    .into_iter()
                    .filter(|token| model.stands(*token))
                    .collect();
                standing.sort_unstable();
                standing.dedup();
                assert_eq!(renewed, standing);
                for token in standing {
                    model.of(token).unwrap().state = State::Leased { over };
                }
            }
            Act::Add { token, extents } => {
                let Some(token) = model.token(token) else {
                    return;
                };
                let extents: Vec<NewExtent> = extents.iter().map(new_extent).collect();
                let added = board.add(token, &extents).unwrap();
                let expected = model.stands(token).then(|| model.add(&extents));
                assert_eq!(added, expected);
            }
            Act::Done { token } => {
                let Some(token) = model.token(token) else {
                    return;
                };
                assert_eq!(
                    board.done(token, b"").unwrap(),
                    model.end(token, State::Done)
                );
            }
            Act::GiveBack { token, pause } => {
                let Some(token) = model.token(token) else {
                    return;
                };
                let heard = board.give_back(token, "", if pause { TTL_MAX } else { OVER });
                assert_eq!(
                    heard.unwrap(),
                    model.end(token, State::Open { pauses: pause })
                );
            }
            Act::Fail { token } => {
                let Some(token) = model.token(token) else {
                    return;
                };
                assert_eq!(
                    board.fail(token, "").unwrap(),
                    model.end(token, State::Failed)
                );
            }
            Act::GiveBackUnknown { holder, known } => {
                let known: Vec<Token> =
                    known.iter().filter_map(|back| model.token(*back)).collect();
                let count = board
                    .give_back_unknown(self.job, HOLDERS[holder], &known)
                    .unwrap();
                assert_eq!(count, model.give_back_unknown(holder, &known));
            }
        }
        self.model
            .check(&self.ground.board.standing(self.job).unwrap());
    }
}

fn new_extent(plan: &Plan) -> NewExtent {
    let group = |index: Option<usize>| index.map(|index| GROUPS[index].into());
    NewExtent {
        group: group(plan.group),
        after: group(plan.after),
        ..extent(&plan.key.to_string())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_match_the_model(number: u64, acts in vec(act(), 1..60)) {
        let mut history = History::new(number);
        for act in acts {
            history.act(act);
        }
        prop_assert!(history.ground.board.forget(history.job).unwrap());
    }
}
