// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that leave while the origin owes them a response. A FIN may mean that the client has gone, or only that it
//! has sent all that it will send. An interim response tells: a client that has gone answers it with a reset, and one
//! that still reads ignores it (RFC 9110 §15.2.1).

use crate::client_protocols::http::{exchange::CONTINUE, proxy::Proxy};
use std::{convert::Infallible, future::pending, time::Duration};
use tokio::time::sleep;

/// Time before the first look, so that short exchanges cost nothing, and between two while further bytes of the client
/// hide its end.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Proxy {
    /// Sends an interim response once the client has ended its direction. A reset that answers it ends the session.
    pub(super) async fn probe_gone_client(&self) -> Infallible {
        loop {
            sleep(CHECK_INTERVAL).await;
            if self.exchange.has_unread_request() {
                continue;
            }
            match self.session.client.stream.wait_peek().await {
                Ok(1..) => continue,
                Ok(0) => self.exchange.queue_interim(CONTINUE),
                // The session itself waits for errors.
                Err(_) => {}
            }
            return pending().await;
        }
    }
}
