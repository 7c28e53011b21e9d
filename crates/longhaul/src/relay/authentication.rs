// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users and passwords of clients, checked no faster than wrong ones before them allow.

use super::{disagreement::Stranger, session::Session, users::Users, warnings::network};
use std::time::Instant;
use tokio::time::sleep;

impl Session {
    /// Whether the client is this user. An address that gave wrong passwords waits first; one that
    /// already has others waiting is refused.
    pub(crate) async fn authenticate(&self, users: &Users, user: &[u8], password: &[u8]) -> bool {
        let (client, penalties) = (network(self.client_address.ip()), &self.door.penalties);
        let Some(wait) = penalties.wait(client, Instant::now()) else {
            return false;
        };
        if !wait.is_zero() {
            sleep(wait).await;
        }
        if users.know(user, password) {
            penalties.succeed(client);
            return true;
        }
        penalties.fail(client, Instant::now());
        self.turn_away(&Stranger::WrongPassword);
        false
    }
}
