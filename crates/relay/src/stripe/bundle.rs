// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bundle of legs that carry one connection.

use crate::config::profile::Profile;
use longhaul_linux::tcp_info::TcpInfo;
use longhaul_transport::leg::Leg;
use parking_lot::{Mutex, MutexGuard};
use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};
use tokio::sync::oneshot;

/// Maximum of unsent bytes in a leg's socket, if its profile sets none. Two pieces: one is sent
/// while the next one is fetched, and a slow leg delays the others only a little.
const UNSENT_MAX: u32 = 2 * longhaul_protocol::stripe::PIECE_LEN as u32;

/// One leg of a bundle.
#[derive(Debug)]
pub(crate) struct Subflow {
    pub(crate) leg: Leg,
    /// Whether the leg has carried bytes, so that its failure is the connection's.
    used: AtomicBool,
    /// Whether the leg failed before it carried anything.
    dead: AtomicBool,
    /// Dropped with the leg, which reports that the leg is no longer needed.
    _done: Option<oneshot::Sender<()>>,
}

impl Subflow {
    pub(crate) fn mark_used(&self) {
        self.used.store(true, Relaxed);
    }

    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Relaxed)
    }

    pub(crate) fn mark_dead(&self) {
        self.dead.store(true, Relaxed);
    }

    /// Returns whether bytes written now would find room. A leg that failed before it carried
    /// anything has none.
    pub(crate) fn has_room(&self) -> io::Result<bool> {
        if self.is_dead() {
            return Ok(false);
        }
        match self.leg.is_writable() {
            Err(_) if !self.is_used() => {
                self.mark_dead();
                Ok(false)
            }
            outcome => outcome,
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Relaxed)
    }
}

/// Several legs to one relay.
#[derive(Debug)]
pub(crate) struct Bundle {
    state: Mutex<State>,
    legs_max: usize,
    unsent_max: Option<u32>,
}

#[derive(Debug)]
struct State {
    subflows: Vec<Arc<Subflow>>,
    /// Whether further legs may join.
    accepts_joins: bool,
    /// Number of changes.
    version: usize,
    /// Wakers of tasks that wait for the next change: one, or two after a move.
    wakers: Vec<Waker>,
}

/// Snapshot for one half of the bundle.
pub(crate) struct BundleUpdate {
    /// Legs that are new to this half.
    pub(crate) new: Vec<Arc<Subflow>>,
    pub(crate) accepts_joins: bool,
    pub(crate) version: usize,
}

impl Bundle {
    /// Returns a bundle with its first leg. It may get `legs_max` legs in all, which follow
    /// `profile`.
    pub(crate) fn new(first: Leg, legs_max: usize, profile: &Profile) -> Arc<Self> {
        let bundle = Self {
            state: Mutex::new(State {
                subflows: Vec::new(),
                accepts_joins: true,
                version: 0,
                wakers: Vec::new(),
            }),
            legs_max,
            unsent_max: match profile.options.notsent_lowat {
                Some(_) => None,
                None => Some(UNSENT_MAX),
            },
        };
        bundle.join(first, None);
        bundle.first().mark_used();
        bundle.into()
    }

    /// Adds a leg. `done` is dropped when the leg is no longer needed.
    pub(crate) fn join(&self, leg: Leg, done: Option<oneshot::Sender<()>>) {
        if let Some(bytes) = self.unsent_max {
            leg.transport().limit_unsent(bytes);
        }
        // A leg that was accepted as a connection of its own was to be closed cleanly.
        leg.transport().reset_unless_finished();
        let mut state = self.state();
        state.subflows.push(Arc::new(Subflow {
            leg,
            used: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            _done: done,
        }));
        state.accepts_joins &= state.subflows.len() < self.legs_max;
        state.notify();
    }

    /// Records that no further leg will join.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.accepts_joins = false;
        state.notify();
    }

    /// Returns the legs from number `seen` on.
    pub(crate) fn updates_since(&self, seen: usize) -> BundleUpdate {
        let state = self.state();
        BundleUpdate {
            new: state.subflows[seen..].to_vec(),
            accepts_joins: state.accepts_joins,
            version: state.version,
        }
    }

    /// Ready when there was a change since `version`.
    pub(crate) fn poll_changed(&self, version: usize, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.version != version {
            return Poll::Ready(());
        }
        if !state.wakers.iter().any(|w| w.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    pub(crate) fn first(&self) -> Arc<Subflow> {
        self.state().subflows[0].clone()
    }

    /// Waits for an error of a leg that has carried bytes. Other legs with errors are left out.
    pub(crate) async fn wait_for_error(&self) -> io::Error {
        type ErrorWatch = Pin<Box<dyn Future<Output = io::Error> + Send>>;
        let mut watched: Vec<(Arc<Subflow>, ErrorWatch)> = Vec::new();
        let (mut seen, mut version) = (0, 0);
        poll_fn(|cx| {
            while self.poll_changed(version, cx).is_ready() {
                let updates = self.updates_since(seen);
                (seen, version) = (seen + updates.new.len(), updates.version);
                watched.extend(updates.new.into_iter().map(|subflow| {
                    let carrier = subflow.leg.transport().clone();
                    let watch: ErrorWatch = Box::pin(async move { carrier.wait_error().await });
                    (subflow, watch)
                }));
            }
            let mut outcome = Poll::Pending;
            watched.retain_mut(|(subflow, watch)| match watch.as_mut().poll(cx) {
                Poll::Ready(error) if subflow.is_used() => {
                    outcome = Poll::Ready(error);
                    false
                }
                Poll::Ready(_) => {
                    subflow.mark_dead();
                    false
                }
                Poll::Pending => true,
            });
            outcome
        })
        .await
    }

    /// Makes the later close of every leg an abnormal one.
    pub(crate) fn reset_on_close(&self) {
        for subflow in &self.state().subflows {
            subflow.leg.transport().reset_on_close();
        }
    }

    /// Makes the later close of every leg a clean one.
    pub(crate) fn fin_on_close(&self) {
        for subflow in &self.state().subflows {
            subflow.leg.transport().fin_on_close();
        }
    }

    /// Returns the kernel memory for data of all legs, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let each = self.subflows().into_iter();
        each.filter_map(|subflow| subflow.leg.transport().memory_bytes())
            .sum()
    }

    /// Returns the kernel counters of each leg.
    pub(crate) fn tcp_info(&self) -> Vec<TcpInfo> {
        let each = self.subflows().into_iter();
        each.filter_map(|subflow| subflow.leg.transport().tcp_info())
            .collect()
    }

    /// Returns all legs, so that system calls can be made without a lock.
    fn subflows(&self) -> Vec<Arc<Subflow>> {
        self.state().subflows.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn notify(&mut self) {
        self.version += 1;
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
    }
}
