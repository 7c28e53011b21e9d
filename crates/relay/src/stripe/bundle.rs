// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bundle of legs that carry one connection, and what its two halves, sender and receiver, tell each other.

use crate::config::profile::Profile;
use longhaul_linux::{send_buffer, sysctl, tcp_info::TcpInfo};
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
    send_buffer: u64,
}

/// Returns the largest send buffer that the kernel gives a leg, in bytes.
fn largest_send_buffer(profile: &Profile) -> u64 {
    // The kernel doubles the value of SO_SNDBUF (socket(7)).
    let fixed = profile.options.send_buffer.map(|bytes| 2 * bytes as u64);
    let tuned = || {
        sysctl::read_here("net.ipv4.tcp_wmem")
            .ok()?
            .split_whitespace()
            .nth(2)?
            .parse()
            .ok()
    };
    fixed.or_else(tuned).unwrap_or(send_buffer::KERNEL_DEFAULT)
}

#[derive(Debug)]
struct State {
    subflows: Vec<Arc<Subflow>>,
    /// Whether further legs may join.
    accepts_joins: bool,
    /// Number of legs, from the first on, that the sender is to use.
    in_use: usize,
    /// Numbers of the legs on which the other relay waits for a confirmation.
    confirmations_due: Vec<usize>,
    /// Whether the other relay has confirmed our switch.
    is_confirmed: bool,
    /// Whether all bytes of the other relay have been received.
    received_all: bool,
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
    pub(crate) in_use: usize,
    pub(crate) is_confirmed: bool,
    pub(crate) received_all: bool,
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
                in_use: 1,
                confirmations_due: Vec::new(),
                is_confirmed: false,
                received_all: false,
                version: 0,
                wakers: Vec::new(),
            }),
            legs_max,
            unsent_max: match profile.options.notsent_lowat {
                Some(_) => None,
                None => Some(UNSENT_MAX),
            },
            send_buffer: largest_send_buffer(profile),
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
        self.change(|state| state.accepts_joins = false);
    }

    /// Sets the number of legs, from the first on, that the sender is to use.
    pub(crate) fn use_legs(&self, count: usize) {
        if self.state().in_use != count {
            self.change(|state| state.in_use = count);
        }
    }

    /// Returns the largest send buffer of a leg, in bytes.
    pub(crate) fn send_buffer(&self) -> u64 {
        self.send_buffer
    }

    /// Returns the number of legs that the sender is to use.
    pub(crate) fn legs_in_use(&self) -> usize {
        self.state().in_use
    }

    /// Returns whether the sender is to use every leg that there may be.
    pub(crate) fn uses_all_legs(&self) -> bool {
        self.state().in_use >= self.legs_max
    }

    /// Records that the other relay has switched, and waits for a confirmation on this leg.
    pub(crate) fn request_confirmation(&self, leg: usize) {
        self.change(|state| state.confirmations_due.push(leg));
    }

    /// Returns the legs on which a confirmation is due since the last call.
    pub(crate) fn take_confirmations_due(&self) -> Vec<usize> {
        std::mem::take(&mut self.state().confirmations_due)
    }

    /// Records that the other relay has confirmed our switch.
    pub(crate) fn record_confirmation(&self) {
        self.change(|state| state.is_confirmed = true);
    }

    /// Records that all bytes of the other relay have been received.
    pub(crate) fn record_received_all(&self) {
        self.change(|state| state.received_all = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        state.notify();
    }

    /// Returns the legs from number `seen` on.
    pub(crate) fn updates_since(&self, seen: usize) -> BundleUpdate {
        let state = self.state();
        BundleUpdate {
            new: state.subflows[seen..].to_vec(),
            accepts_joins: state.accepts_joins,
            in_use: state.in_use,
            is_confirmed: state.is_confirmed,
            received_all: state.received_all,
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

    /// Resets every leg now, whoever else shares it.
    pub(crate) fn reset(&self) {
        for subflow in self.subflows() {
            subflow.leg.transport().reset();
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
