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
    io::read_to_string,
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
            let claim = self.try_claim(paths)?;
            if claim.is_some() || begin.elapsed() >= CLAIM_TIMEOUT {
                return Ok(claim);
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
            let file = File::options().read(true).write(true).open(entry.path())?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                remove_file(entry.path())?;
            } else {
                found.append(&mut serde_json::from_str(&read_to_string(file)?)?);
            }
        }
        Ok(found)
    }

    /// Writes the claims. The lock keeps others from reading the file meanwhile.
    fn write(&self, claimed: &[ClaimedPath], _lock: &StateLock) -> Result<()> {
        // JSON may end with spaces.
        let text = format!("{:FILE_LEN_MIN$}", serde_json::to_string(claimed)?);
        self.file.write_all_at(text.as_bytes(), 0)?;
        Ok(self.file.set_len(text.len() as u64)?)
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

    #[test]
    fn overlapping_claims_conflict_across_processes() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::find(Some(&folder.path().join("state"))).unwrap();
        let [one, other] = [(); 2].map(|()| Arc::new(Claims::new(&state).unwrap()));
        let claimed_path = |path: &str, read| {
            let path = path.to_owned();
            ClaimedPath { path, read }
        };
        for (holder, claimant) in [(&one, &one), (&one, &other), (&other, &one)] {
            let is_free = |path, read| {
                let claim = claimant.try_claim(&[claimed_path(path, read)]);
                claim.unwrap().is_some()
            };
            let paths = [claimed_path("/a/b", false), claimed_path("/c", true)];
            let claim = holder.try_claim(&paths).unwrap().unwrap();
            assert!(is_free("/a/bb", false) && is_free("/d", false) && is_free("/c/x", true));
            for path in ["/a", "/a/b", "/a/b/c", "/"] {
                assert!(!is_free(path, true) && !is_free(path, false), "{path}");
            }
            assert!(!is_free("/c/x", false));
            drop(claim);
            assert!(is_free("/a", false));
        }
    }
}
