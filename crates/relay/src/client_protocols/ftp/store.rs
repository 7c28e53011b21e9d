// SPDX-License-Identifier: MIT OR Apache-2.0
//! FTP upload: STOR for an HTTP PUT.

use crate::{
    client_protocols::ftp::{
        client::Client,
        error::{FtpError, Step, with_limit},
        gateway_error::GatewayError,
        url::Url,
    },
    leg::stream::LegStream,
};
use bytes::{Buf as _, Bytes};
use http_body_util::BodyExt as _;
use hyper::{HeaderMap, StatusCode, header};
use longhaul_protocol::ftp::Argument;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;

/// Refuses partial and conditional uploads: a part would replace the whole file, and a condition
/// can't be held until the file is written.
pub(super) fn check_put(url: &Url, headers: &HeaderMap) -> Result<(), GatewayError> {
    let conditions = [
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_UNMODIFIED_SINCE,
    ];
    let (status, reason) = match () {
        () if url.is_directory() => (StatusCode::BAD_REQUEST, "a PUT needs the name of a file"),
        () if headers.contains_key(header::CONTENT_RANGE) => (
            StatusCode::BAD_REQUEST,
            "parts of a file can't be put (Content-Range)",
        ),
        () if conditions.iter().any(|name| headers.contains_key(name)) => (
            StatusCode::PRECONDITION_FAILED,
            "FTP can't put a file on a condition",
        ),
        () => return Ok(()),
    };
    Err(GatewayError::new(status, reason))
}

/// Uploads the body under its final name, since servers have no common way to rename. Calls
/// `invite` once the server accepts the body. The server must finish each step within `limit`; time
/// spent on a slow client does not count.
pub(super) async fn store(
    mut client: Client<'_>,
    path: &Argument,
    (body, invite): (impl hyper::body::Body<Data = Bytes> + Unpin, impl FnOnce()),
    limit: Duration,
) -> Result<StatusCode, GatewayError> {
    let known = client.control.command("SIZE", path).await?.size();
    let transfer = (Step::Write, "STOR");
    let (mut data, _) = client.start_transfer(transfer, path, 0).await?;
    // An interrupted upload must not look complete.
    data.stream.transport().reset_on_close();
    invite();
    match upload(&mut data, body, limit).await? {
        // A server that stopped reading may have sent the reason.
        Err(error) => {
            client.control.confirm(Step::Write).await?;
            return Err(error.into());
        }
        Ok(()) => client.control.confirm(Step::Write).await?,
    }
    Ok(match known {
        Some(_) => StatusCode::NO_CONTENT,
        None => StatusCode::CREATED,
    })
}

/// Sends the body and its end. The inner error is one of the data connection.
async fn upload(
    data: &mut LegStream,
    mut body: impl hyper::body::Body<Data = Bytes> + Unpin,
    limit: Duration,
) -> Result<Result<(), FtpError>, GatewayError> {
    while let Some(frame) = body.frame().await {
        let cut = |_| GatewayError::new(StatusCode::BAD_REQUEST, "the upload was cut short");
        let mut bytes = frame.map_err(cut)?.into_data().unwrap_or_default();
        while bytes.has_remaining() {
            if let Err(error) = with_limit(limit, data.write_buf(&mut bytes)).await {
                return Ok(Err(error));
            }
        }
    }
    // FIN, and from here on a FIN on close.
    Ok(with_limit(limit, data.shutdown()).await)
}
