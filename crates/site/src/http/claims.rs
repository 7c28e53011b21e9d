// SPDX-License-Identifier: MIT OR Apache-2.0
//! Claims on paths: requests that change names in the same tree run one after the other. Two at once could remove a
//! file that the other is moving, and lose it.
//!
//! Each listener has a process of its own. A process therefore also writes its claims to a file in the state
//! directory, and holds a lock on it while it lives. Another process that can lock the file removes it.

use crate::keys::state::{StateDir, StateLock};
use anyhow::Result;
use parking_lot::{Condvar, Mutex};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::{
    fs::{File, read_dir, remove_file},
    io::Read,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

/// Time that a request waits for others.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(20);

/// Interval to check whether another process has released its claims. It sends no notification.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

const FILE_PREFIX: &str = "claims-";

/// Size of the file at least, in bytes. The space is reserved early, so that names can be removed even when the disk
/// is full.
const FILE_LEN_MIN: usize = 16 << 10;

/// Claimed tree or file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClaimedPath {
    /// Absolute path on this machine, in the form that locks use.
    pub(super) path: String,
    /// Whether the request only reads it. Claims that only read do not conflict.
    pub(super) read: bool,
}

impl ClaimedPath {
    fn conflicts_with(&self, other: &Self) -> bool {
        let (one, two) = (Path::new(&self.path), Path::new(&other.path));
        (one.starts_with(two) || two.starts_with(one)) && !(self.read && other.read)
    }
}

/// Claims of a process. They are bounded by its connections.
#[derive(Debug)]
pub(super) struct Claims {
    state: StateDir,
    path: PathBuf,
    file: File,
    claimed: Mutex<Vec<ClaimedPath>>,
    /// Notified when a claim is released.
    freed: Condvar,
}

/// Claims of this process.
static PROCESS_CLAIMS: OnceLock<Arc<Claims>> = OnceLock::new();

/// Paths claimed by a request, until dropped.
#[derive(Debug)]
pub(super) struct Claim {
    claims: Arc<Claims>,
    paths: Vec<ClaimedPath>,
}

impl Claims {
    /// Returns the claims of this process.
    ///
    /// # Errors
    /// The file can't be created.
    pub(super) fn for_process(state: &StateDir) -> Result<Arc<Self>> {
        if let Some(claims) = PROCESS_CLAIMS.get() {
            return Ok(claims.clone());
        }
        let made = Self::new(state)?;
        Ok(PROCESS_CLAIMS.get_or_init(|| Arc::new(made)).clone())
    }

    fn new(state: &StateDir) -> Result<Self> {
        // The lock keeps other processes from removing the file before it is locked.
        let lock = state.lock()?;
        let file = tempfile::Builder::new()
            .prefix(FILE_PREFIX)
            .tempfile_in(state.directory())?;
        lock.set_owner(file.as_file())?;
        let (file, path) = file.keep()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let claims = Self {
            state: state.clone(),
            path,
            file,
            claimed: Mutex::default(),
            freed: Condvar::new(),
        };
        claims.write(&[], &lock)?;
        Ok(claims)
    }

    /// Waits until the paths can be claimed. Returns `None` when that takes too long.
    ///
    /// # Errors
    /// The claims of other processes can't be read.
    pub(super) fn claim(self: &Arc<Self>, paths: &[ClaimedPath]) -> Result<Option<Claim>> {
        let begin = Instant::now();
        loop {
            if let Some(claim) = self.try_claim(paths)? {
                return Ok(Some(claim));
            }
            if begin.elapsed() >= CLAIM_TIMEOUT {
                return Ok(None);
            }
            self.freed.wait_for(&mut self.claimed.lock(), POLL_INTERVAL);
        }
    }

    fn try_claim(self: &Arc<Self>, paths: &[ClaimedPath]) -> Result<Option<Claim>> {
        let lock = self.state.lock()?;
        let others = self.read_other_processes(&lock)?;
        let mut claimed = self.claimed.lock();
        let conflicts = |claim| paths.iter().any(|path| path.conflicts_with(claim));
        if claimed.iter().chain(&others).any(conflicts) {
            return Ok(None);
        }
        let wanted: Vec<_> = claimed.iter().chain(paths).cloned().collect();
        self.write(&wanted, &lock)?;
        *claimed = wanted;
        drop(claimed);
        let (claims, paths) = (self.clone(), paths.to_vec());
        Ok(Some(Claim { claims, paths }))
    }

    /// Returns the claims of other processes, and removes the files of those that have ended.
    fn read_other_processes(&self, _lock: &StateLock) -> Result<Vec<ClaimedPath>> {
        let mut found = Vec::new();
        for entry in read_dir(self.state.directory())? {
            let entry = entry?;
            let is_one = entry.file_name().to_string_lossy().starts_with(FILE_PREFIX);
            if !is_one || entry.path() == self.path {
                continue;
            }
            let mut file = File::options().read(true).write(true).open(entry.path())?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                remove_file(entry.path())?;
                continue;
            }
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            found.extend(serde_json::from_str::<Vec<ClaimedPath>>(&text)?);
        }
        Ok(found)
    }

    /// Writes the claims. The lock keeps others from reading the file meanwhile.
    fn write(&self, claimed: &[ClaimedPath], _lock: &StateLock) -> Result<()> {
        let mut text = serde_json::to_string(claimed)?;
        let len = text.len().max(FILE_LEN_MIN);
        // JSON may end with spaces.
        text.push_str(&" ".repeat(len - text.len()));
        self.file.write_all_at(text.as_bytes(), 0)?;
        Ok(self.file.set_len(len as u64)?)
    }

    fn release(&self, paths: &[ClaimedPath]) {
        let lock = self.state.lock();
        let mut claimed = self.claimed.lock();
        for claimed_path in paths {
            let at = claimed.iter().position(|one| one == claimed_path);
            at.map(|at| claimed.swap_remove(at));
        }
        // If that fails, others wait until this process writes again or ends.
        let _ = lock.and_then(|lock| self.write(&claimed, &lock));
        drop(claimed);
        self.freed.notify_all();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.release(&self.paths);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed_path(path: &str, read: bool) -> ClaimedPath {
        let path = path.to_owned();
        ClaimedPath { path, read }
    }

    fn site() -> (tempfile::TempDir, StateDir) {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::find(Some(&folder.path().join("state"))).unwrap();
        (folder, state)
    }

    fn claims(state: &StateDir) -> Arc<Claims> {
        Arc::new(Claims::new(state).unwrap())
    }

    #[test]
    fn overlapping_claims_conflict_across_processes() {
        let (_folder, state) = site();
        let (one, other) = (claims(&state), claims(&state));
        for (holder, claimant) in [(&one, &one), (&one, &other), (&other, &one)] {
            let now = |paths: Vec<_>| claimant.try_claim(&paths).unwrap();
            let paths = vec![claimed_path("/a/b", false), claimed_path("/c", true)];
            let claim = holder.try_claim(&paths).unwrap().unwrap();
            for free in [
                claimed_path("/a/bb", false),
                claimed_path("/d", false),
                claimed_path("/c/x", true),
            ] {
                assert!(now(vec![free.clone()]).is_some(), "{free:?}");
            }
            for conflicting in ["/a", "/a/b", "/a/b/c", "/"] {
                for read in [true, false] {
                    assert!(
                        now(vec![claimed_path(conflicting, read)]).is_none(),
                        "{conflicting}"
                    );
                }
            }
            assert!(now(vec![claimed_path("/d", false), claimed_path("/c/x", false)]).is_none());
            drop(claim);
            assert!(now(vec![claimed_path("/a", false)]).is_some());
        }
    }

    #[test]
    fn removes_claims_of_an_ended_process() {
        let (_folder, state) = site();
        let ended = Claims::new(&state).unwrap();
        ended
            .write(&[claimed_path("/a", false)], &state.lock().unwrap())
            .unwrap();
        let path = ended.path.clone();
        let after = claims(&state);
        let can_claim = || {
            after
                .try_claim(&[claimed_path("/a", false)])
                .unwrap()
                .is_some()
        };
        assert!(!can_claim() && path.exists());
        drop(ended);
        assert!(can_claim() && !path.exists());
    }

    #[test]
    fn waits_for_release_by_another_process() {
        let (_folder, state) = site();
        let (one, other) = (claims(&state), claims(&state));
        let claimed = one.try_claim(&[claimed_path("/a", false)]).unwrap();
        let waiting = std::thread::spawn(move || other.claim(&[claimed_path("/a/b", false)]));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!waiting.is_finished());
        drop(claimed);
        assert!(waiting.join().unwrap().unwrap().is_some());
    }
}
