// SPDX-License-Identifier: MIT OR Apache-2.0
//! The locks of WebDAV (RFC 4918 §6 and §7) that clients hold, in a file of the site's state: each listener has a process
//! of its own, which may end at any time, and all of them are to see the same locks.
//!
//! A lock is of a place on this machine, so that it holds for every export that has the place in it.

use crate::keys::state::State;
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use longhaul_command::{exit::Refusal, outln};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::{fs::File, os::unix::fs::OpenOptionsExt, time::Duration};

const FILE: &str = "locks.json";

/// Locks of all clients, and of one token, at most.
const LOCKS_MAX: usize = 1024;
const LOCKS_OF_ONE_MAX: usize = 256;

/// Bytes of all locks together, at most: each request that changes something reads them.
const LEN_MAX: usize = 1 << 20;

/// How long a lock holds if its client does not come back, and for how long one may ask at most.
pub(super) const TIME: Duration = Duration::from_secs(600);
pub(super) const TIME_MAX: Duration = Duration::from_secs(3600);

/// By how much the clock may be set back while a lock holds.
const CLOCK_STEP_MAX: Duration = Duration::from_secs(3600);

/// A lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lock {
    /// By which clients name it.
    pub(super) token: String,
    /// What is locked: a path of this machine, escaped as in a URL, without a slash at its end.
    pub(super) place: String,
    /// Whose it is: the name of the site's token.
    pub(super) principal: String,
    /// An element of XML, or nothing.
    pub(super) owner: String,
    pub(super) shared: bool,
    /// It is of all that is below the place, too.
    pub(super) deep: bool,
    until: Timestamp,
}

/// Who changes something, and the tokens of locks that it shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) principal: String,
    pub(super) tokens: Vec<String>,
}

/// Why there is no lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    Locked,
    Full,
}

/// How a lock was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unlocked {
    Done,
    NoLock,
    OfAnother,
}

impl Lock {
    pub(super) fn new(
        place: String,
        principal: &str,
        (shared, deep): (bool, bool),
        owner: String,
    ) -> Result<Self> {
        Ok(Self {
            token: new_token()?,
            place,
            principal: principal.to_owned(),
            owner,
            shared,
            deep,
            until: Timestamp::UNIX_EPOCH,
        })
    }

    /// From now on for this long.
    pub(super) fn lasting(mut self, time: Duration) -> Self {
        self.until = Timestamp::now() + time.clamp(Duration::from_secs(1), TIME_MAX);
        self
    }

    /// How much of its time is left.
    pub(super) fn left(&self) -> Duration {
        let left = self.until.duration_since(Timestamp::now());
        Duration::try_from(left).unwrap_or_default()
    }

    /// The clock may have been set back meanwhile: by an hour or less it holds for longer, beyond that not at all.
    fn holds(&self) -> bool {
        let left = self.left();
        !left.is_zero() && left <= TIME_MAX + CLOCK_STEP_MAX
    }

    fn covers(&self, place: &str) -> bool {
        self.place == place || self.deep && is_below(place, &self.place)
    }

    fn is_held_by(&self, holder: &Holder) -> bool {
        self.principal == holder.principal && holder.tokens.contains(&self.token)
    }

    fn len(&self) -> usize {
        let texts = [&self.token, &self.place, &self.principal, &self.owner];
        // As JSON each quotation mark is two bytes.
        texts
            .iter()
            .map(|text| text.len() + text.matches('"').count())
            .sum::<usize>()
            + 200
    }
}

/// Nobody guesses it, though it is no secret: who has not the site's token that made it can do nothing with it.
fn new_token() -> Result<String> {
    let mut random = [0; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    // A UUID of version 4 (RFC 9562 §5.4).
    random[6] = random[6] & 0x0f | 0x40;
    random[8] = random[8] & 0x3f | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(random));
    let [a, b, c, d, e] = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    Ok(format!("urn:uuid:{a}-{b}-{c}-{d}-{e}"))
}

fn is_below(place: &str, top: &str) -> bool {
    place
        .strip_prefix(top)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// All locks that hold.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Table(Vec<Lock>);

impl Table {
    /// The locks of a place, its own and those of what it is in.
    pub(super) fn covering(&self, place: &str) -> impl Iterator<Item = &Lock> {
        self.0.iter().filter(move |lock| lock.covers(place))
    }

    /// Whether the place may be changed: nobody has locked it, or the holder has. Of shared locks one is enough.
    pub(super) fn lets(&self, holder: &Holder, place: &str) -> bool {
        let mut locks = self.covering(place).peekable();
        locks.peek().is_none() || locks.any(|lock| lock.is_held_by(holder))
    }

    /// The same of everything below it.
    pub(super) fn lets_below(&self, holder: &Holder, top: &str) -> bool {
        let mut below = self.0.iter().filter(|lock| is_below(&lock.place, top));
        below.all(|lock| self.lets(holder, &lock.place))
    }

    pub(super) fn add(&mut self, lock: Lock) -> Result<(), Refused> {
        let meets = |other: &&Lock| {
            other.covers(&lock.place) || lock.deep && is_below(&other.place, &lock.place)
        };
        let mut met = self.0.iter().filter(meets);
        if met.any(|other| !(other.shared && lock.shared)) {
            return Err(Refused::Locked);
        }
        let mine = self
            .0
            .iter()
            .filter(|other| other.principal == lock.principal);
        let len: usize = self.0.iter().chain([&lock]).map(Lock::len).sum();
        if self.0.len() >= LOCKS_MAX || mine.count() >= LOCKS_OF_ONE_MAX || len > LEN_MAX {
            return Err(Refused::Full);
        }
        self.0.push(lock);
        Ok(())
    }

    /// Has a lock of the place that the holder shows last again.
    pub(super) fn refresh(&mut self, holder: &Holder, place: &str, time: Duration) -> Option<Lock> {
        let mut shown = self.0.iter_mut().filter(|lock| lock.covers(place));
        let lock = shown.find(|lock| lock.is_held_by(holder))?;
        *lock = lock.clone().lasting(time);
        Some(lock.clone())
    }

    pub(super) fn remove(&mut self, holder: &Holder, place: &str) -> Unlocked {
        let named = |lock: &Lock| lock.covers(place) && holder.tokens.contains(&lock.token);
        match self.0.iter().position(named) {
            None => Unlocked::NoLock,
            Some(at) if self.0[at].principal != holder.principal => Unlocked::OfAnother,
            Some(at) => {
                self.0.remove(at);
                Unlocked::Done
            }
        }
    }

    /// Locks of what is gone; `itself`: of the place, too.
    fn is_gone(lock: &Lock, place: &str, itself: bool) -> bool {
        is_below(&lock.place, place) || itself && lock.place == place
    }
}

/// Where they are kept, and which file system those who ask are at.
#[derive(Debug, Clone)]
pub(super) struct Locks {
    state: State,
    device: u64,
}

impl Locks {
    pub(super) fn of(state: &State) -> Self {
        let state = state.clone();
        Self { state, device: 0 }
    }

    /// For requests about this file system (`st_dev` in stat(3type)).
    pub(super) fn at_device(self, device: u64) -> Self {
        Self { device, ..self }
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Those that hold now.
    pub(super) fn read(&self) -> Result<Table> {
        let path = self.state.path(FILE);
        let failed = || format!("cannot read {}", path.display());
        let text = self
            .state
            .read(FILE, 2 * LEN_MAX as u64)
            .with_context(failed)?;
        let Some(text) = text else {
            return Ok(Table::default());
        };
        let mut table: Table = serde_json::from_str(&text).with_context(failed)?;
        table.0.retain(Lock::holds);
        Ok(table)
    }

    /// While they are changed they are nobody else's.
    pub(super) fn change<T>(&self, act: impl FnOnce(&mut Table) -> T) -> Result<T> {
        let _alone = self.hold_device()?;
        let held = self.state.lock()?;
        let mut table = self.read()?;
        let done = act(&mut table);
        self.state
            .write(FILE, &serde_json::to_string(&table)?, &held)?;
        Ok(done)
    }

    /// Does something in the file system that no other process of the site does there at the same time, nor changes locks.
    pub(super) fn alone<T>(&self, act: impl FnOnce() -> T) -> Result<T> {
        let _alone = self.hold_device()?;
        Ok(act())
    }

    /// A file system may be on a host that does not answer. So what is held while it is asked keeps nobody from others, nor from
    /// the state itself: a token can be removed.
    fn hold_device(&self) -> Result<File> {
        // It is there, then, and nobody else's to look into.
        drop(self.state.lock()?);
        let path = self.state.path(&format!("changes-{:x}.lock", self.device));
        let mut options = File::options();
        let opened = options.create(true).append(true).mode(0o600).open(&path);
        let file = opened.with_context(|| format!("cannot open {}", path.display()))?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }

    /// What was at a place, or, without `itself`, below it, is gone, and so are its locks.
    pub(super) fn forget(&self, place: &str, itself: bool) -> Result<()> {
        let is_gone = |lock: &Lock| Table::is_gone(lock, place, itself);
        match self.read()?.0.iter().any(is_gone) {
            true => self.change(|table| table.0.retain(|lock| !is_gone(lock))),
            false => Ok(()),
        }
    }
}

/// Lists those that hold, for whoever runs the site.
pub(crate) fn list(state: &State) -> Result<()> {
    for lock in Locks::of(state).read()?.0 {
        let scope = if lock.shared { "shared" } else { "exclusive" };
        let depth = if lock.deep { " and what is below" } else { "" };
        let (token, place, principal) = (lock.token, lock.place, lock.principal);
        outln!(
            "{token}: {place}{depth}, {scope}, {principal}'s until {:.0}",
            lock.until
        );
    }
    Ok(())
}

/// Breaks one, whoever has it.
pub(crate) fn remove(state: &State, token: &str) -> Result<()> {
    let removed = Locks::of(state).change(|table| {
        let before = table.0.len();
        table.0.retain(|lock| lock.token != token);
        table.0.len() < before
    });
    match removed? {
        true => Ok(()),
        false => Err(Refusal::usage(format!(
            "there is no lock {token:?}: longhaul site lock list shows those that there are"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc::channel, thread};

    fn lock(place: &str, shared: bool, deep: bool) -> Lock {
        let lock = Lock::new(place.to_owned(), "me", (shared, deep), String::new());
        lock.unwrap().lasting(TIME)
    }

    /// Whether somebody holds it.
    fn is_held(state: &State, device: u64) -> bool {
        let file = File::open(state.path(&format!("changes-{device:x}.lock")));
        file.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_err())
    }

    fn holding(locks: &[&Lock]) -> Holder {
        Holder {
            principal: "me".to_owned(),
            tokens: locks.iter().map(|lock| lock.token.clone()).collect(),
        }
    }

    #[test]
    fn locks_meet_where_one_of_them_is_exclusive() {
        for (first, second, meet) in [
            (lock("/a", false, false), lock("/a", false, false), true),
            (lock("/a", true, false), lock("/a", false, false), true),
            (lock("/a", true, false), lock("/a", true, false), false),
            (lock("/a", false, true), lock("/a/b/c", true, false), true),
            (lock("/a", false, false), lock("/a/b", false, false), false),
            (lock("/a/b", false, false), lock("/a", false, true), true),
            (lock("/a/b", false, false), lock("/a", false, false), false),
            (lock("/a", false, true), lock("/ab", false, true), false),
            (lock("", false, true), lock("/a", false, true), true),
        ] {
            let mut table = Table::default();
            table.add(first.clone()).unwrap();
            let refused = table.add(second.clone()) == Err(Refused::Locked);
            assert_eq!(refused, meet, "{first:?} {second:?}");
        }
    }

    #[test]
    fn lets_who_shows_a_token_of_its_own() {
        let (deep, inner, one, two) = (
            lock("/a", false, true),
            lock("/b/c", false, false),
            lock("/s", true, false),
            lock("/s", true, false),
        );
        let mut table = Table::default();
        for lock in [&deep, &inner, &one, &two] {
            table.add(lock.clone()).unwrap();
        }
        assert!(!table.lets(&holding(&[]), "/a/x"));
        assert!(!table.lets(&holding(&[&inner]), "/a/x"));
        assert!(table.lets(&holding(&[&deep]), "/a/x"));
        assert!(table.lets(&holding(&[&two]), "/s"));
        assert!(table.lets(&holding(&[]), "/b") && !table.lets_below(&holding(&[]), "/b"));
        assert!(table.lets_below(&holding(&[&inner]), "/b"));
        let thief = Holder {
            principal: "you".to_owned(),
            ..holding(&[&deep])
        };
        assert!(!table.lets(&thief, "/a"));
        assert_eq!(table.remove(&thief, "/a/x"), Unlocked::OfAnother);
        assert!(table.refresh(&thief, "/a", TIME).is_none());
        assert_eq!(table.remove(&holding(&[&deep]), "/b"), Unlocked::NoLock);
        assert!(
            table
                .refresh(&holding(&[&deep]), "/a/x", TIME_MAX)
                .unwrap()
                .left()
                > TIME
        );
        assert_eq!(table.remove(&holding(&[&deep]), "/a/x"), Unlocked::Done);
        assert!(table.lets(&holding(&[]), "/a/x"));
    }

    #[test]
    fn a_clock_that_is_set_back_ends_no_lock() {
        let mut held = lock("/a", false, false).lasting(TIME_MAX);
        for (step, holds) in [(1, true), (3590, true), (3700, false)] {
            held.until = Timestamp::now() + TIME_MAX + Duration::from_secs(step);
            assert_eq!(held.holds(), holds, "{step}");
        }
    }

    #[test]
    fn one_client_has_so_many_and_no_more() {
        let mut table = Table::default();
        for at in 0..LOCKS_OF_ONE_MAX {
            table.add(lock(&format!("/{at}"), false, false)).unwrap();
        }
        assert_eq!(table.add(lock("/x", false, false)), Err(Refused::Full));
        let mut long = lock(&"x".repeat(LEN_MAX), false, false);
        long.principal = "you".to_owned();
        assert_eq!(table.add(long.clone()), Err(Refused::Full));
        long.place = "/x".to_owned();
        table.add(long).unwrap();
    }

    /// One that hangs, to be exact.
    #[test]
    fn a_file_system_keeps_nobody_from_another_nor_from_the_state() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::find(Some(&folder.path().join("state"))).unwrap();
        drop(state.lock().unwrap());
        let at = |device| Locks::of(&state).at_device(device);
        let (hang, hangs) = channel::<()>();
        let hanging = at(1);
        let hanging = thread::spawn(move || hanging.alone(|| hangs.recv()));
        let waiting = at(1);
        while !is_held(&state, 1) {
            thread::yield_now();
        }
        let waiting =
            thread::spawn(move || waiting.change(|table| table.add(lock("/a", false, false))));
        at(2)
            .change(|table| table.add(lock("/b", false, false)))
            .unwrap()
            .unwrap();
        drop(state.lock().unwrap());
        assert!(!waiting.is_finished());
        drop(hang);
        hanging.join().unwrap().unwrap().unwrap_err();
        waiting.join().unwrap().unwrap().unwrap();
        assert_eq!(at(1).read().unwrap().0.len(), 2);
    }

    #[test]
    fn all_processes_see_them_until_their_time_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::find(Some(&folder.path().join("state"))).unwrap();
        let (locks, others) = (Locks::of(&state), Locks::of(&state));
        let held = lock("/a/b", false, false);
        assert_eq!(
            locks.change(|table| table.add(held.clone())).unwrap(),
            Ok(())
        );
        assert!(!others.read().unwrap().lets(&holding(&[]), "/a/b"));
        others.forget("/a", false).unwrap();
        assert!(locks.read().unwrap().lets(&holding(&[]), "/a/b"));
        let short = held.lasting(Duration::from_secs(1));
        locks.change(|table| table.add(short)).unwrap().unwrap();
        std::thread::sleep(Duration::from_millis(1100));
        assert!(others.read().unwrap().lets(&holding(&[]), "/a/b"));
    }
}
