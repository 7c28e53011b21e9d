// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watches the limits on connections and descriptors, which make new clients wait in listen queues. The operator and
//! load balancers learn it from the log, the health and the metrics.

use crate::relay::{Phase, Relay};
use longhaul_admission::{exhaustion, memory::PERIOD, shared_limit::LogLine};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tracing::{info, warn};

/// Time without a wait for descriptors after which there are enough.
const ENOUGH_AFTER: Duration = Duration::from_secs(1);

/// Updates the state of both limits until the relay drains, when it takes all permits itself.
pub(crate) async fn watch(relay: &Relay) {
    let mut waits = DescriptorWaits::default();
    while relay.lifecycle.phase() == Phase::Run {
        let now = Instant::now();
        update_connection_limit(relay, now);
        let is_short = waits.is_short(exhaustion::retries(), now);
        // The loops that accept log it.
        relay.descriptor_limit.set(is_short, now);
        sleep(PERIOD).await;
    }
    relay.connection_limit.set(false, Instant::now());
    std::future::pending::<()>().await;
}

fn update_connection_limit(relay: &Relay, now: Instant) {
    let (free, all) = relay.permits();
    match relay.connection_limit.set_free(free, all, now) {
        Some(LogLine::Reached) => {
            warn!(
                "all {all} connections are taken: further clients wait ({})",
                way_out(relay, all)
            );
        }
        Some(LogLine::Over) => info!("connections are free again"),
        None => {}
    }
}

/// Returns which limit it is, and how to raise it.
fn way_out(relay: &Relay, all: usize) -> &'static str {
    if all < relay.config().limits.connections_max as usize {
        "RLIMIT_NOFILE has no room for more: raise LimitNOFILE= of the service, or ulimit -Hn"
    } else {
        "limits.connections, --max-connections"
    }
}

/// Whether descriptors are short, by the number of waits for them.
#[derive(Debug, Default)]
struct DescriptorWaits {
    retries: u64,
    last_retry: Option<Instant>,
}

impl DescriptorWaits {
    fn is_short(&mut self, retries: u64, now: Instant) -> bool {
        if std::mem::replace(&mut self.retries, retries) != retries {
            self.last_retry = Some(now);
        }
        self.last_retry.is_some_and(|at| now - at < ENOUGH_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_short_until_a_second_without_a_wait() {
        let (mut waits, now) = (DescriptorWaits::default(), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        assert!(!waits.is_short(0, at(0)));
        assert!(waits.is_short(1, at(100)));
        assert!(waits.is_short(1, at(1000)));
        assert!(waits.is_short(2, at(1050)));
        assert!(!waits.is_short(2, at(2050)));
    }
}
