// SPDX-License-Identifier: MIT OR Apache-2.0
//! Store of WebDAV locks (RFC 4918 §6 and §7), in a file of the state directory. Each listener has a process of its
//! own, which may end at any time, and all of them must see the same locks.
//!
//! A lock covers a path of this machine. It therefore holds in every export that contains the path.

use super::response::{Outcome, Rejection};
use crate::{http_args::LockCommand, keys::state::StateDir};
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use longhaul_command::{errln, exit::Refusal, outln};
use longhaul_linux::random::random_bytes;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::{fs::File, time::Duration};

const FILE: &str = "locks.json";

/// Most locks of all clients, and of one token.
const LOCKS_MAX: usize = 1024;
const LOCKS_PER_TOKEN_MAX: usize = 256;

/// Size of all locks together at most, in bytes. Each request that changes something reads them.
const LEN_MAX: usize = 1 << 20;

/// Default duration of a lock without a refresh, and the longest that a client may request.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);
pub(super) const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// Step by which the clock may be set back while a lock is held.
const CLOCK_STEP_MAX: Duration = Duration::from_secs(3600);

pub(super) const CONFLICTING_LOCK: Rejection = Rejection(423, "a conflicting lock exists");

/// WebDAV lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lock {
    /// Lock token that clients send.
    pub(super) token: String,
    /// Locked path of this machine, escaped as in a URL, without a trailing slash.
    #[serde(rename = "place")]
    pub(super) path: String,
    /// Owner of the lock: the name of the site's token.
    pub(super) principal: String,
    /// Owner that the client sent: an XML element, or empty.
    pub(super) owner: String,
    pub(super) shared: bool,
    /// Whether the lock covers everything below the path.
    pub(super) deep: bool,
    pub(super) until: Timestamp,
}

/// Client that makes a change, with the lock tokens that it has sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) principal: String,
    pub(super) tokens: Vec<String>,
}

impl Lock {
    /// Returns the time left.
    pub(super) fn remaining(&self) -> Duration {
        let left = self.until.duration_since(Timestamp::now());
        Duration::try_from(left).unwrap_or_default()
    }

    /// Returns whether the lock has not expired. If the clock was set back by an hour or less, the lock lasts longer;
    /// beyond that it is invalid.
    fn is_valid(&self) -> bool {
        let left = self.remaining();
        !left.is_zero() && left <= TIMEOUT_MAX + CLOCK_STEP_MAX
    }

    fn covers(&self, path: &str) -> bool {
        self.path == path || self.deep && is_below(path, &self.path)
    }

    fn is_held_by(&self, holder: &Holder) -> bool {
        self.principal == holder.principal && holder.tokens.contains(&self.token)
    }
}

/// Returns the end of a lock that begins now.
pub(super) fn end_after(timeout: Duration) -> Timestamp {
    Timestamp::now() + timeout.clamp(Duration::from_secs(1), TIMEOUT_MAX)
}

/// Returns a random lock token, a UUID. It is hard to guess but not a secret: only the site token that created the lock
/// can use it.
pub(super) fn new_token() -> Result<String> {
    let uuid = uuid::Builder::from_random_bytes(random_bytes()?);
    Ok(uuid.into_uuid().urn().to_string())
}

fn is_below(path: &str, top: &str) -> bool {
    path.strip_prefix(top)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// Valid locks.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct LockTable(Vec<Lock>);

impl LockTable {
    /// Returns the locks that cover a path: its own, and those of its parents.
    pub(super) fn covering(&self, path: &str) -> impl Iterator<Item = &Lock> {
        self.0.iter().filter(move |lock| lock.covers(path))
    }

    /// Returns whether the holder may change a path: it is not locked, or the holder has one of its locks. One shared
    /// lock is enough.
    pub(super) fn permits(&self, holder: &Holder, path: &str) -> bool {
        let mut locks = self.covering(path).peekable();
        locks.peek().is_none() || locks.any(|lock| lock.is_held_by(holder))
    }

    /// Returns whether the holder may change everything below a path.
    pub(super) fn permits_below(&self, holder: &Holder, top: &str) -> bool {
        let mut below = self.0.iter().filter(|lock| is_below(&lock.path, top));
        below.all(|lock| self.permits(holder, &lock.path))
    }

    /// Adds a lock.
    ///
    /// # Errors
    /// It conflicts with another lock, or there are too many.
    pub(super) fn add(&mut self, lock: Lock) -> Outcome<()> {
        let conflicts = |other: &Lock| {
            let meet = other.covers(&lock.path) || lock.deep && is_below(&other.path, &lock.path);
            meet && !(other.shared && lock.shared)
        };
        if self.0.iter().any(conflicts) {
            return Err(CONFLICTING_LOCK);
        }
        let is_mine = |other: &&Lock| other.principal == lock.principal;
        let mine = self.0.iter().filter(is_mine).count();
        let is_full = self.0.len() >= LOCKS_MAX || mine >= LOCKS_PER_TOKEN_MAX;
        self.0.push(lock);
        let len = serde_json::to_string(&self).map_or(usize::MAX, |text| text.len());
        if is_full || len > LEN_MAX {
            self.0.pop();
            return Err(Rejection(507, "the limit on locks is reached"));
        }
        Ok(())
    }

    /// Restarts the timeout of a lock that covers the path and belongs to the holder.
    pub(super) fn refresh(
        &mut self,
        holder: &Holder,
        path: &str,
        timeout: Duration,
    ) -> Option<Lock> {
        let mut matching = self.0.iter_mut().filter(|lock| lock.covers(path));
        let lock = matching.find(|lock| lock.is_held_by(holder))?;
        lock.until = end_after(timeout);
        Some(lock.clone())
    }

    /// Removes the lock with this token, whoever holds it. Returns whether there was one.
    pub(super) fn remove_token(&mut self, token: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|lock| lock.token != token);
        self.0.len() < before
    }

    /// Removes the lock with this token, if it covers the path and belongs to the principal.
    pub(super) fn remove(&mut self, principal: &str, token: &str, path: &str) -> Outcome<()> {
        let named = |lock: &Lock| lock.covers(path) && lock.token == token;
        let at = self.0.iter().position(named);
        let at = at.ok_or(Rejection(409, "it has no such lock"))?;
        if self.0[at].principal != principal {
            return Err(Rejection(403, "the lock belongs to another client"));
        }
        self.0.remove(at);
        Ok(())
    }
}

/// Access to the lock file, for requests on one file system.
#[derive(Debug, Clone)]
pub(crate) struct LockStore {
    state: StateDir,
    /// `st_dev` in stat(3type); 0 for requests that are on none.
    device: u64,
}

impl LockStore {
    pub(super) fn new(state: &StateDir, device: u64) -> Self {
        let state = state.clone();
        Self { state, device }
    }

    /// Returns the valid locks.
    pub(super) fn read(&self) -> Result<LockTable> {
        let path = self.state.path(FILE);
        let failed = || format!("cannot read {}", path.display());
        let text = self
            .state
            .read(FILE, 2 * LEN_MAX as u64)
            .with_context(failed)?;
        let Some(text) = text else {
            return Ok(LockTable::default());
        };
        let mut table: LockTable = serde_json::from_str(&text).with_context(failed)?;
        table.0.retain(Lock::is_valid);
        Ok(table)
    }

    /// Changes the locks under an exclusive lock.
    pub(super) fn change<T>(&self, operation: impl FnOnce(&mut LockTable) -> T) -> Result<T> {
        let _device_lock = self.lock_device()?;
        let lock = self.state.lock()?;
        let mut table = self.read()?;
        let done = operation(&mut table);
        self.state
            .write(FILE, &serde_json::to_string(&table)?, &lock)?;
        Ok(done)
    }

    /// Runs an operation on the file system exclusively: no other process of the site changes files there or locks
    /// meanwhile.
    pub(super) fn exclusively<T>(&self, operation: impl FnOnce() -> T) -> Result<T> {
        let _device_lock = self.lock_device()?;
        Ok(operation())
    }

    /// Locks a file for one file system. That file system may be on a host that does not respond. The lock held
    /// meanwhile blocks neither other file systems nor the state directory, so tokens can still be removed.
    fn lock_device(&self) -> Result<File> {
        // This creates the directory with its mode, if needed.
        let lock = self.state.lock()?;
        let name = format!("changes-{:x}.lock", self.device);
        let opened = self.state.open_lock_file(&name, &lock);
        drop(lock);
        let failed = || format!("cannot open {}", self.state.path(&name).display());
        let file = opened.with_context(failed)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }

    /// Removes the locks below a removed path and, with `itself`, of the path.
    pub(super) fn discard(&self, path: &str, itself: bool) -> Result<()> {
        let is_discarded = |lock: &Lock| is_below(&lock.path, path) || itself && lock.path == path;
        if self.read()?.0.iter().any(is_discarded) {
            self.change(|table| table.0.retain(|lock| !is_discarded(lock)))
        } else {
            Ok(())
        }
    }
}

/// Lists or breaks locks for the operator.
pub(crate) fn run(state: &StateDir, command: &LockCommand) -> Result<()> {
    match command {
        LockCommand::List => list(state),
        LockCommand::Remove { lock } => remove(state, lock),
    }
}

fn list(state: &StateDir) -> Result<()> {
    let locks = LockStore::new(state, 0).read()?.0;
    if locks.is_empty() {
        errln!("no locks in {state}; --state names another directory");
    }
    for lock in locks {
        let scope = if lock.shared { "shared" } else { "exclusive" };
        let depth = if lock.deep { " and what is below" } else { "" };
        let (token, path, principal) = (lock.token, lock.path, lock.principal);
        outln!(
            "{token}: {path}{depth}, {scope}, {principal}'s until {:.0}",
            lock.until
        );
    }
    Ok(())
}

/// Breaks a lock, whoever holds it.
fn remove(state: &StateDir, token: &str) -> Result<()> {
    let removed = LockStore::new(state, 0).change(|table| table.remove_token(token));
    if removed? {
        return Ok(());
    }
    Err(Refusal::usage(format!(
        "there is no lock {token:?}: longhaul site lock list shows those that there are"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc::channel, thread};

    fn lock(path: &str, shared: bool, deep: bool) -> Lock {
        Lock {
            token: new_token().unwrap(),
            path: path.to_owned(),
            principal: "me".to_owned(),
            owner: String::new(),
            shared,
            deep,
            until: end_after(DEFAULT_TIMEOUT),
        }
    }

    /// Returns whether a process holds the file system's lock.
    fn is_held(state: &StateDir, device: u64) -> bool {
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
    fn exclusive_locks_conflict() {
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
            let mut table = LockTable::default();
            table.add(first.clone()).unwrap();
            let refused = table.add(second.clone());
            assert_eq!(refused.is_err(), meet, "{first:?} {second:?}");
        }
    }

    #[test]
    fn permits_holders_of_the_lock_token() {
        let (deep, inner, one, two) = (
            lock("/a", false, true),
            lock("/b/c", false, false),
            lock("/s", true, false),
            lock("/s", true, false),
        );
        let mut table = LockTable::default();
        for lock in [&deep, &inner, &one, &two] {
            table.add(lock.clone()).unwrap();
        }
        assert!(!table.permits(&holding(&[]), "/a/x"));
        assert!(!table.permits(&holding(&[&inner]), "/a/x"));
        assert!(table.permits(&holding(&[&deep]), "/a/x"));
        assert!(table.permits(&holding(&[&two]), "/s"));
        assert!(table.permits(&holding(&[]), "/b") && !table.permits_below(&holding(&[]), "/b"));
        assert!(table.permits_below(&holding(&[&inner]), "/b"));
        let thief = Holder {
            principal: "you".to_owned(),
            ..holding(&[&deep])
        };
        assert!(!table.permits(&thief, "/a"));
        let status = |removed: Outcome<()>| removed.map_err(|rejection| rejection.0);
        assert_eq!(status(table.remove("you", &deep.token, "/a/x")), Err(403));
        assert!(table.refresh(&thief, "/a", DEFAULT_TIMEOUT).is_none());
        assert_eq!(status(table.remove("me", &deep.token, "/b")), Err(409));
        let refreshed = table.refresh(&holding(&[&deep]), "/a/x", TIMEOUT_MAX);
        assert!(refreshed.unwrap().remaining() > DEFAULT_TIMEOUT);
        assert_eq!(table.remove("me", &deep.token, "/a/x"), Ok(()));
        assert!(table.permits(&holding(&[]), "/a/x"));
    }

    #[test]
    fn locks_survive_a_clock_set_back() {
        let mut lock = lock("/a", false, false);
        for (step, holds) in [(1, true), (3590, true), (3700, false)] {
            lock.until = Timestamp::now() + TIMEOUT_MAX + Duration::from_secs(step);
            assert_eq!(lock.is_valid(), holds, "{step}");
        }
    }

    #[test]
    fn limits_the_size_of_all_locks() {
        let mut table = LockTable::default();
        let mut long = lock(&"x".repeat(LEN_MAX), false, false);
        assert_eq!(table.add(long.clone()).unwrap_err().0, 507);
        long.path = "/x".to_owned();
        table.add(long).unwrap();
    }

    /// The first file system hangs.
    #[test]
    fn hanging_file_system_blocks_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::find(Some(&folder.path().join("state"))).unwrap();
        drop(state.lock().unwrap());
        let at = |device| LockStore::new(&state, device);
        let (hang, hangs) = channel::<()>();
        let hanging = at(1);
        let hanging = thread::spawn(move || hanging.exclusively(|| hangs.recv()));
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
}
