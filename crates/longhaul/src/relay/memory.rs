// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory budget: what all legs hold in socket buffers and pipes is added up now and then, and
//! while it is over the budget no new connection is accepted. Open ones are never touched.

use super::Relay;
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use tokio::{sync::watch, time::sleep};

/// What is held, and whether there is room for more.
#[derive(Debug)]
pub(crate) struct Memory {
    budget: u64,
    held: AtomicU64,
    room: watch::Sender<bool>,
}

/// Time between two sums; with many connections it grows, so that adding up takes about a
/// hundredth of one core at the most.
const PERIOD: Duration = Duration::from_millis(100);
const PERIOD_PER_CONNECTION: Duration = Duration::from_micros(100);

impl Memory {
    pub(crate) fn new(budget: u64) -> Self {
        Self {
            budget,
            held: AtomicU64::new(0),
            room: watch::Sender::new(true),
        }
    }

    /// Returns once there is room for another connection.
    pub(crate) async fn room(&self) {
        if *self.room.borrow() {
            return;
        }
        // An error would mean that the sender is gone, but `self` is the sender.
        let _ = self.room.subscribe().wait_for(|room| *room).await;
    }

    /// Bytes held at the last sum, and the budget.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.held.load(Relaxed), self.budget)
    }

    fn set(&self, held: u64) {
        self.held.store(held, Relaxed);
        let room = held < self.budget;
        let changed = self
            .room
            .send_if_modified(|now| std::mem::replace(now, room) != room);
        match (changed, room) {
            (false, _) => {}
            (true, true) => note!("longhaul relay: memory below its budget: accepting again"),
            (true, false) => note!(
                "longhaul relay: {held} bytes in buffers, budget {} (limits.memory): new \
                 connections wait",
                self.budget
            ),
        }
    }
}

/// Adds up for ever.
pub(crate) async fn watch(relay: &Relay) {
    loop {
        let sessions = relay.sessions.all();
        let connections = sessions.len() as u32;
        let held = sessions.into_iter().map(|session| session.memory()).sum();
        relay.memory.set(held);
        sleep(PERIOD.max(PERIOD_PER_CONNECTION * connections)).await;
    }
}

/// Half of the mark at which the kernel begins to press all of its TCP sockets
/// (net.ipv4.tcp_mem, second value, in pages).
pub(crate) fn default_budget() -> u64 {
    let pages = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_mem")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    let page = rustix::param::page_size() as u64;
    pages.map_or(u64::MAX, |pages| pages / 2 * page)
}
