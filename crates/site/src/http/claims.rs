// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests that change names do it one after the other where they meet: of two in the same tree one would take away
//! what the other is at, and leave it nowhere.
//!
//! Each listener has a process of its own. So a process has its claims in a file of the site's state, too, which it
//! has locked as long as it lives: whoever can lock one removes it.

use crate::keys::state::{Lock, State};
use anyhow::Result;
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::{
    fs::{File, read_dir, remove_file},
    io::Read,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{sync::Notify, time::timeout};

/// How long a request waits for others.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often it looks whether another process is through, which tells nobody.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

const FILE_PREFIX: &str = "claims-";

/// Bytes of a file, at least: a disk that is full keeps nobody from removing something.
const FILE_LEN_MIN: usize = 16 << 10;

/// A tree, or a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// Of this machine, as a lock has it.
    pub(super) path: String,
    /// It is only read, which others may do, too.
    pub(super) read: bool,
}

impl Place {
    fn meets(&self, other: &Self) -> bool {
        let (one, two) = (Path::new(&self.path), Path::new(&other.path));
        (one.starts_with(two) || two.starts_with(one)) && !(self.read && other.read)
    }
}

/// What requests of a process are at. There are no more than connections.
#[derive(Debug)]
pub(super) struct Claims {
    state: State,
    path: PathBuf,
    file: File,
    held: Mutex<Vec<Place>>,
    /// Some of it is free again.
    freed: Notify,
}

/// Those of this process.
static OF_PROCESS: OnceLock<Arc<Claims>> = OnceLock::new();

/// Places that are this request's until dropped.
#[derive(Debug)]
pub(super) struct Claim {
    claims: Arc<Claims>,
    places: Vec<Place>,
}

impl Claims {
    /// Those of this process.
    ///
    /// # Errors
    /// There is no file for them.
    pub(super) fn of_process(state: &State) -> Result<Arc<Self>> {
        if let Some(claims) = OF_PROCESS.get() {
            return Ok(claims.clone());
        }
        let made = Self::new(state)?;
        Ok(OF_PROCESS.get_or_init(|| Arc::new(made)).clone())
    }

    fn new(state: &State) -> Result<Self> {
        // Nobody takes the file for left over before it is locked.
        let held = state.lock()?;
        let file = tempfile::Builder::new()
            .prefix(FILE_PREFIX)
            .tempfile_in(state.directory())?;
        let (file, path) = file.keep()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let claims = Self {
            state: state.clone(),
            path,
            file,
            held: Mutex::default(),
            freed: Notify::new(),
        };
        claims.write(&[], &held)?;
        Ok(claims)
    }

    /// Waits for places; nothing if others take too long.
    ///
    /// # Errors
    /// The site can't look at the claims of others.
    pub(super) async fn claim(self: &Arc<Self>, places: Vec<Place>) -> Result<Option<Claim>> {
        let claimed = async {
            loop {
                let freed = self.freed.notified();
                tokio::pin!(freed);
                // What is freed from here on is heard.
                freed.as_mut().enable();
                let (this, places) = (self.clone(), places.clone());
                let taken = tokio::task::spawn_blocking(move || this.take(places));
                if let Some(claim) = taken.await?? {
                    return Ok::<_, anyhow::Error>(claim);
                }
                let _ = timeout(POLL_INTERVAL, freed).await;
            }
        };
        timeout(PATIENCE, claimed).await.ok().transpose()
    }

    fn take(self: Arc<Self>, places: Vec<Place>) -> Result<Option<Claim>> {
        let alone = self.state.lock()?;
        let others = self.of_others(&alone)?;
        let mut held = self.held.lock();
        let mut all = held.iter().chain(&others);
        if all.any(|one| places.iter().any(|place| place.meets(one))) {
            return Ok(None);
        }
        let wanted: Vec<_> = held.iter().chain(&places).cloned().collect();
        self.write(&wanted, &alone)?;
        *held = wanted;
        drop(held);
        let claims = self;
        Ok(Some(Claim { claims, places }))
    }

    /// Those of other processes; what is left of one that has ended is removed.
    fn of_others(&self, _alone: &Lock) -> Result<Vec<Place>> {
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
            found.extend(serde_json::from_str::<Vec<Place>>(&text)?);
        }
        Ok(found)
    }

    /// Nobody reads it meanwhile.
    fn write(&self, held: &[Place], _alone: &Lock) -> Result<()> {
        let mut text = serde_json::to_string(held)?;
        let len = text.len().max(FILE_LEN_MIN);
        // JSON may end with spaces.
        text.push_str(&" ".repeat(len - text.len()));
        self.file.write_all_at(text.as_bytes(), 0)?;
        Ok(self.file.set_len(len as u64)?)
    }

    fn give_back(&self, places: &[Place]) {
        let alone = self.state.lock();
        let mut held = self.held.lock();
        for place in places {
            let at = held.iter().position(|one| one == place);
            at.map(|at| held.swap_remove(at));
        }
        // If not, others wait until this process writes again, or ends.
        let _ = alone.and_then(|alone| self.write(&held, &alone));
        drop(held);
        self.freed.notify_waiters();
    }
}

/// Waits until nothing is claimed by requests of this process.
pub(super) async fn all_given_back() {
    let Some(claims) = OF_PROCESS.get() else {
        return;
    };
    loop {
        let freed = claims.freed.notified();
        tokio::pin!(freed);
        freed.as_mut().enable();
        if claims.held.lock().is_empty() {
            return;
        }
        freed.await;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.give_back(&self.places);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str, read: bool) -> Place {
        let path = path.to_owned();
        Place { path, read }
    }

    fn site() -> (tempfile::TempDir, State) {
        let folder = tempfile::tempdir().unwrap();
        let state = State::find(Some(&folder.path().join("state"))).unwrap();
        (folder, state)
    }

    fn claims(state: &State) -> Arc<Claims> {
        Arc::new(Claims::new(state).unwrap())
    }

    #[test]
    fn requests_of_all_processes_wait_where_trees_meet() {
        let (_folder, state) = site();
        let (one, other) = (claims(&state), claims(&state));
        for (holds, asks) in [(&one, &one), (&one, &other), (&other, &one)] {
            let now = |places| asks.clone().take(places).unwrap();
            let places = vec![place("/a/b", false), place("/c", true)];
            let claim = holds.clone().take(places).unwrap().unwrap();
            for free in [
                place("/a/bb", false),
                place("/d", false),
                place("/c/x", true),
            ] {
                assert!(now(vec![free.clone()]).is_some(), "{free:?}");
            }
            for met in ["/a", "/a/b", "/a/b/c", "/"] {
                for read in [true, false] {
                    assert!(now(vec![place(met, read)]).is_none(), "{met}");
                }
            }
            assert!(now(vec![place("/d", false), place("/c/x", false)]).is_none());
            drop(claim);
            assert!(now(vec![place("/a", false)]).is_some());
        }
    }

    #[test]
    fn what_a_process_had_claimed_that_has_ended_is_free() {
        let (_folder, state) = site();
        let ended = Claims::new(&state).unwrap();
        ended
            .write(&[place("/a", false)], &state.lock().unwrap())
            .unwrap();
        let path = ended.path.clone();
        let after = claims(&state);
        assert!(
            after
                .clone()
                .take(vec![place("/a", false)])
                .unwrap()
                .is_none()
        );
        assert!(path.exists());
        drop(ended);
        assert!(after.take(vec![place("/a", false)]).unwrap().is_some());
        assert!(!path.exists());
    }

    #[test]
    fn a_request_goes_on_when_another_process_is_through() {
        let (_folder, state) = site();
        let (one, other) = (claims(&state), claims(&state));
        let held = one.take(vec![place("/a", false)]).unwrap();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(async {
            let wanted = other.claim(vec![place("/a/b", false)]);
            let ended = async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                drop(held);
            };
            let (claim, ()) = tokio::join!(wanted, ended);
            assert!(claim.unwrap().is_some());
        });
    }
}
