// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests that change names do it one after the other where they meet: of two in the same tree one would take away what the
//! other is at, and leave it nowhere.

use parking_lot::Mutex;
use std::{path::PathBuf, time::Duration};
use tokio::{sync::Notify, time::timeout};

/// How long a request waits for others.
const PATIENCE: Duration = Duration::from_secs(20);

/// What requests of this process are at. There are no more than connections.
static HELD: Mutex<Vec<Place>> = Mutex::new(Vec::new());

/// Some of it is free again.
static FREED: Notify = Notify::const_new();

/// A tree, or a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// It is only read, which others may do, too.
    pub(super) read: bool,
}

impl Place {
    fn meets(&self, other: &Self) -> bool {
        let nested = self.path.starts_with(&other.path) || other.path.starts_with(&self.path);
        nested && !(self.read && other.read)
    }
}

/// Places that are this request's until dropped.
#[derive(Debug)]
pub(super) struct Claim(Vec<Place>);

impl Claim {
    /// Waits for them; nothing if others take too long.
    pub(super) async fn of(places: Vec<Place>) -> Option<Self> {
        let claimed = async {
            loop {
                let freed = FREED.notified();
                tokio::pin!(freed);
                // What is freed from here on is heard.
                freed.as_mut().enable();
                if take(&places) {
                    return;
                }
                freed.await;
            }
        };
        timeout(PATIENCE, claimed).await.ok()?;
        Some(Self(places))
    }
}

fn take(places: &[Place]) -> bool {
    let mut held = HELD.lock();
    let free = !held
        .iter()
        .any(|one| places.iter().any(|place| place.meets(one)));
    if free {
        held.extend_from_slice(places);
    }
    free
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut held = HELD.lock();
        for place in &self.0 {
            let at = held.iter().position(|one| one == place);
            at.map(|at| held.swap_remove(at));
        }
        drop(held);
        FREED.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn place(path: &str, read: bool) -> Place {
        let path = PathBuf::from(path);
        Place { path, read }
    }

    #[test]
    fn waits_where_trees_meet() {
        let now = |places| Claim::of(places).now_or_never().flatten();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build().unwrap();
        let _entered = runtime.enter();
        let claim = now(vec![place("/a/b", false), place("/c", true)]).unwrap();
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
