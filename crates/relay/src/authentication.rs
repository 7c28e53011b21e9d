// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users and passwords of clients, checked no faster than wrong ones before them allow.

use crate::{
    config::{networks::network, users::Users},
    faults::disagreement::Stranger,
    session::Session,
};
use sha2::{Digest as _, Sha256};
use std::time::Instant;
use tokio::time::sleep;

/// What came of a user and a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Right,
    Wrong,
    /// Nobody looked, since too many others of its address wait.
    Unseen,
}

impl Session {
    /// Whether the client is this user. An address that gave wrong passwords waits first; one that
    /// already has others waiting is refused unseen. What was right on this connection stays right.
    pub(crate) async fn authenticate(
        &self,
        users: &Users,
        user: &[u8],
        password: &[u8],
    ) -> Verdict {
        let given = digest(user, password);
        if self.credentials.get().is_some_and(|known| **known == given) {
            return Verdict::Right;
        }
        let (client, penalties) = (network(self.client_address.ip()), &self.door.penalties);
        let Some(wait) = penalties.wait(client, Instant::now()) else {
            return Verdict::Unseen;
        };
        if !wait.is_zero() {
            sleep(wait).await;
        }
        if users.know(user, password) {
            penalties.succeed(client, user);
            let _ = self.credentials.set(given.into());
            return Verdict::Right;
        }
        penalties.fail(client, user, Instant::now());
        self.turn_away(&Stranger::WrongPassword);
        Verdict::Wrong
    }
}

fn digest(user: &[u8], password: &[u8]) -> [u8; 32] {
    let users_end = (user.len() as u64).to_be_bytes();
    let hash = Sha256::new().chain_update(users_end);
    hash.chain_update(user)
        .chain_update(password)
        .finalize()
        .into()
}
