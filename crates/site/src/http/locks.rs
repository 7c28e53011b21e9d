// SPDX-License-Identifier: MIT OR Apache-2.0
//! Store of WebDAV locks (RFC 4918 §6 and §7), in a file of the state directory. Each listener has a process of its
//! own, which may end at any time, and all of them must see the same locks.
//!
//! A lock covers a path of this machine. It therefore holds in every export that contains the path.

use super::response::{Outcome, conflict, forbidden, locked, no_space};
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
    until: Timestamp,
}

/// Client that makes a change, with the lock tokens that it has sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) principal: String,
    pub(super) tokens: Vec<String>,
}

impl Lock {
    pub(super) fn new(
        path: String,
        principal: &str,
        (shared, deep): (bool, bool),
        owner: String,
    ) -> Result<Self> {
        Ok(Self {
            token: new_token()?,
            path,
            principal: principal.to_owned(),
            owner,
            shared,
            deep,
            until: Timestamp::UNIX_EPOCH,
        })
    }

    /// Sets the time that the lock lasts from now on.
    pub(super) fn expiring_in(mut self, timeout: Duration) -> Self {
        self.until = Timestamp::now() + timeout.clamp(Duration::from_secs(1), TIMEOUT_MAX);
        self
    }

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

    /// Returns the client that has just taken the lock.
    pub(super) fn holder(&self) -> Holder {
        Holder {
            principal: self.principal.clone(),
            tokens: vec![self.token.clone()],
        }
    }

    fn is_held_by(&self, holder: &Holder) -> bool {
        self.principal == holder.principal && holder.tokens.contains(&self.token)
    }

    fn len(&self) -> usize {
        let texts = [&self.token, &self.path, &self.principal, &self.owner];
        // In JSON each quotation mark takes two bytes.
        texts
            .iter()
            .map(|text| text.len() + text.matches('"').count())
            .sum::<usize>()
            + 200
    }
}

/// Returns a random lock token. It is hard to guess but not a secret: only the site token that created the lock can
/// use it.
fn new_token() -> Result<String> {
    let random = u128::from_be_bytes(random_bytes()?);
    let part = |shift: u32, mask: u64| (random >> shift) as u64 & mask;
    // A UUID of version 4 (RFC 9562 §5.4).
    let (a, b, c) = (
        part(96, 0xffff_ffff),
        part(80, 0xffff),
        part(64, 0xfff) | 0x4000,
    );
    let (d, e) = (part(48, 0x3fff) | 0x8000, part(0, 0xffff_ffff_ffff));
    Ok(format!("urn:uuid:{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}"))
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
            return Err(locked("a conflicting lock exists"));
        }
        let is_mine = |other: &&Lock| other.principal == lock.principal;
        let mine = self.0.iter().filter(is_mine).count();
        let len: usize = self.0.iter().chain([&lock]).map(Lock::len).sum();
        if self.0.len() >= LOCKS_MAX || mine >= LOCKS_PER_TOKEN_MAX || len > LEN_MAX {
            return Err(no_space("the limit on locks is reached"));
        }
        self.0.push(lock);
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
        *lock = lock.clone().expiring_in(timeout);
        Some(lock.clone())
    }

    /// Removes the lock that covers the path and whose token the holder has sent.
    pub(super) fn remove(&mut self, holder: &Holder, path: &str) -> Outcome<()> {
        let named = |lock: &Lock| lock.covers(path) && holder.tokens.contains(&lock.token);
        let at = self.0.iter().position(named);
        let at = at.ok_or(conflict("it has no such lock"))?;
        if self.0[at].principal != holder.principal {
            return Err(forbidden("the lock belongs to another client"));
        }
        self.0.remove(at);
        Ok(())
    }

    /// Returns whether a lock goes with a removed path. With `itself`, the lock of the path goes, too.
    fn is_discarded(lock: &Lock, path: &str, itself: bool) -> bool {
        is_below(&lock.path, path) || itself && lock.path == path
    }
}

/// Access to the lock file, for requests on one file system.
#[derive(Debug, Clone)]
pub(crate) struct LockStore {
    state: StateDir,
    device: u64,
}

impl LockStore {
    pub(super) fn new(state: &StateDir) -> Self {
        let state = state.clone();
        Self { state, device: 0 }
    }

    /// Sets the file system of the requests (`st_dev` in stat(3type)).
    pub(super) fn at_device(self, device: u64) -> Self {
        Self { device, ..self }
    }

    pub(super) fn state(&self) -> &StateDir {
        &self.state
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
        let is_discarded = |lock: &Lock| LockTable::is_discarded(lock, path, itself);
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
    let locks = LockStore::new(state).read()?.0;
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
    let removed = LockStore::new(state).change(|table| {
        let before = table.0.len();
        table.0.retain(|lock| lock.token != token);
        table.0.len() < before
    });
    if removed? {
        Ok(())
    } else {
        Err(Refusal::usage(format!(
            "there is no lock {token:?}: longhaul site lock list shows those that there are"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc::channel, thread};

    fn lock(path: &str, shared: bool, deep: bool) -> Lock {
        let lock = Lock::new(path.to_owned(), "me", (shared, deep), String::new());
        lock.unwrap().expiring_in(DEFAULT_TIMEOUT)
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
        let status = |removed: Outcome<()>| removed.map_err(|rejection| rejection.0.as_u16());
        assert_eq!(status(table.remove(&thief, "/a/x")), Err(403));
        assert!(table.refresh(&thief, "/a", DEFAULT_TIMEOUT).is_none());
        assert_eq!(status(table.remove(&holding(&[&deep]), "/b")), Err(409));
        let refreshed = table.refresh(&holding(&[&deep]), "/a/x", TIMEOUT_MAX);
        assert!(refreshed.unwrap().remaining() > DEFAULT_TIMEOUT);
        assert_eq!(table.remove(&holding(&[&deep]), "/a/x"), Ok(()));
        assert!(table.permits(&holding(&[]), "/a/x"));
    }

    #[test]
    fn locks_survive_a_clock_set_back() {
        let mut lock = lock("/a", false, false).expiring_in(TIMEOUT_MAX);
        for (step, holds) in [(1, true), (3590, true), (3700, false)] {
            lock.until = Timestamp::now() + TIMEOUT_MAX + Duration::from_secs(step);
            assert_eq!(lock.is_valid(), holds, "{step}");
        }
    }

    #[test]
    fn limits_locks_of_one_token() {
        let mut table = LockTable::default();
        for at in 0..LOCKS_PER_TOKEN_MAX {
            table.add(lock(&format!("/{at}"), false, false)).unwrap();
        }
        assert_eq!(table.add(lock("/x", false, false)).unwrap_err().0, 507);
        let mut long = lock(&"x".repeat(LEN_MAX), false, false);
        long.principal = "you".to_owned();
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
        let at = |device| LockStore::new(&state).at_device(device);
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

    #[test]
    fn processes_share_locks_until_they_expire() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::find(Some(&folder.path().join("state"))).unwrap();
        let (locks, others) = (LockStore::new(&state), LockStore::new(&state));
        let lock = lock("/a/b", false, false);
        locks
            .change(|table| table.add(lock.clone()))
            .unwrap()
            .unwrap();
        assert!(!others.read().unwrap().permits(&holding(&[]), "/a/b"));
        others.discard("/a", false).unwrap();
        assert!(locks.read().unwrap().permits(&holding(&[]), "/a/b"));
        let short = lock.expiring_in(Duration::from_secs(1));
        locks.change(|table| table.add(short)).unwrap().unwrap();
        std::thread::sleep(Duration::from_millis(1100));
        assert!(others.read().unwrap().permits(&holding(&[]), "/a/b"));
    }
}
