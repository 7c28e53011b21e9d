// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP clients that have no request open. Their connections are kept for their next request, but a relay that has no
//! connection left for a new client closes them, the longest idle first.

use tokio::sync::Notify;

/// Queue of the idle clients, the longest idle first.
#[derive(Debug, Default)]
pub struct IdleClients(Notify);

impl IdleClients {
    /// Asks the client that has been idle longest to leave. If none is idle, the next one is asked.
    pub fn dismiss_one(&self) {
        self.0.notify_one();
    }

    /// Waits in the queue until this client is asked to leave while `is_full` says that the relay is full.
    pub async fn dismissed(&self, is_full: impl Fn() -> bool) {
        loop {
            self.0.notified().await;
            if is_full() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    fn poll(client: std::pin::Pin<&mut impl Future<Output = ()>>) -> Poll<()> {
        client.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn longest_idle_client_leaves_first() {
        let clients = IdleClients::default();
        let (mut first, mut second) = (
            pin!(clients.dismissed(|| true)),
            pin!(clients.dismissed(|| true)),
        );
        assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
        clients.dismiss_one();
        assert!(poll(second.as_mut()).is_pending());
        assert!(poll(first.as_mut()).is_ready());
        clients.dismiss_one();
        assert!(poll(second.as_mut()).is_ready());
    }

    #[test]
    fn client_that_becomes_idle_later_leaves_only_if_the_relay_is_still_full() {
        let clients = IdleClients::default();
        clients.dismiss_one();
        assert!(poll(pin!(clients.dismissed(|| false))).is_pending());
        clients.dismiss_one();
        assert!(poll(pin!(clients.dismissed(|| true))).is_ready());
    }
}
