// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other relays (RFC 8803).

use super::{Asked, Language, Rejected};
use crate::relay::stream::Inbox;
use tokio::net::TcpStream;
use wire::convert::{ConvertError, MESSAGE_LEN_MAX, Request};

pub(super) async fn ask(client: &TcpStream) -> Result<Asked, Rejected> {
    let mut inbox = Inbox::default();
    let answer = |error: &ConvertError| error.answer().encode();
    let request = inbox
        .message(client, MESSAGE_LEN_MAX, Request::parse)
        .await
        .map_err(|unread| Rejected::unread(unread, answer))?;
    Ok(Asked {
        request: (request, inbox.into_rest()).into(),
        language: Language::Convert,
    })
}
