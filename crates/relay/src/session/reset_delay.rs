// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivery of what a destination sent before it ended abnormally. A reset discards the bytes that are queued in a
//! socket. So the reset of the client's leg waits until the client has acknowledged them.

use crate::{
    leg::stall::StallDetector,
    session::Session,
    transfer::{End, Side},
};
use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};
use tokio::{select, time::sleep};

/// Time for which the client of a tunnel may keep its receive window closed before the reset. It suits a client that
/// waits for its disk or for a busy host. It is bounded, because a reset must also reach a client that does not read.
const TUNNEL_PATIENCE: Duration = Duration::from_secs(5);

/// Shortest and longest time between two looks at the queue.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(2);
const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(100);

impl Session {
    /// Delivers what the destination sent before it broke, if `end` says that it did.
    pub(crate) async fn deliver_before_reset(&self, end: &End) {
        let is_broken = matches!(end, End::Broken(Side::Upstream, _));
        if is_broken && !self.activity.has_stalled.load(Relaxed) {
            self.deliver(TUNNEL_PATIENCE).await;
        }
    }

    /// Waits until the client has acknowledged all bytes. Gives up if its leg fails, or if it keeps its receive window
    /// closed for `patience`.
    pub(crate) async fn deliver(&self, patience: Duration) {
        select! {
            () = self.acknowledged(patience) => {}
            _ = self.client.stream.wait_error() => {}
        }
    }

    /// Returns whether the client of a tunnel has kept its receive window closed for too long. Then it does not get the
    /// rest of what a broken destination has sent. `stall` is the state since the first call.
    pub(crate) fn has_client_stalled(&self, stall: &mut StallDetector) -> bool {
        let now = Instant::now();
        stall.update(&self.client_tcp_info(), now);
        let has_stalled = stall.duration(now) >= TUNNEL_PATIENCE;
        self.activity.has_stalled.fetch_or(has_stalled, Relaxed);
        has_stalled
    }

    async fn acknowledged(&self, patience: Duration) {
        let mut stall = StallDetector::default();
        let mut interval = CHECK_INTERVAL_MIN;
        while !self.is_acknowledged() {
            let now = Instant::now();
            stall.update(&self.client_tcp_info(), now);
            if stall.duration(now) >= patience {
                return;
            }
            sleep(interval).await;
            interval = (interval * 2).min(CHECK_INTERVAL_MAX);
        }
    }

    /// Whether neither TLS nor a socket of the client's leg holds bytes back. An error holds none.
    fn is_acknowledged(&self) -> bool {
        let legs = self.client_tcp_info();
        let is_empty = legs
            .iter()
            .all(|leg| leg.unacked_segments == 0 && leg.notsent_bytes == 0);
        self.client_leg().try_flush().unwrap_or(true) && is_empty
    }
}
