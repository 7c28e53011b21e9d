// SPDX-License-Identifier: MIT OR Apache-2.0
//! FTP upload: STOR for an HTTP PUT.

use crate::client_protocols::ftp::{
    client::Client,
    control::Control,
    data_connection::DataConnection,
    error::{FtpError, Step},
    gateway_error::GatewayError,
    url::Url,
};
use bytes::{Buf as _, Bytes};
use http_body_util::BodyExt as _;
use hyper::{HeaderMap, StatusCode, header};
use longhaul_protocol::ftp::Argument;

/// Refuses partial and conditional uploads: a part would replace the whole file, and a condition
/// can't be held until the file is written.
pub(super) fn check_put(url: &Url, headers: &HeaderMap) -> Result<(), GatewayError> {
    let conditions = [
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_UNMODIFIED_SINCE,
    ];
    let (status, reason) = if url.is_directory() {
        (StatusCode::BAD_REQUEST, "a PUT needs the name of a file")
    } else if headers.contains_key(header::CONTENT_RANGE) {
        let reason = "parts of a file can't be put (Content-Range)";
        (StatusCode::BAD_REQUEST, reason)
    } else if conditions.iter().any(|name| headers.contains_key(name)) {
        let reason = "FTP can't put a file on a condition";
        (StatusCode::PRECONDITION_FAILED, reason)
    } else {
        return Ok(());
    };
    Err(GatewayError::new(status, reason))
}

/// Uploads the body under its final name, since servers have no common way to rename. Calls
/// `invite` once the server accepts the body.
pub(super) async fn store(
    mut client: Client<'_>,
    path: &Argument,
    body: impl hyper::body::Body<Data = Bytes> + Unpin,
    invite: impl FnOnce(),
) -> Result<StatusCode, GatewayError> {
    let known = client.control.command("SIZE", path).await?.size();
    let started = client.start_transfer(Step::Write, "STOR", path, 0);
    let (mut data, _) = started.await?;
    invite();
    match upload(&mut client.control, &mut data, body).await? {
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
    control: &mut Control,
    data: &mut DataConnection,
    mut body: impl hyper::body::Body<Data = Bytes> + Unpin,
) -> Result<Result<(), FtpError>, GatewayError> {
    while let Some(frame) = body.frame().await {
        let cut = |_| GatewayError::new(StatusCode::BAD_REQUEST, "the upload was cut short");
        let mut bytes = frame.map_err(cut)?.into_data().unwrap_or_default();
        while bytes.has_remaining() {
            if let Err(error) = control.during(Step::Write, data.send(&mut bytes)).await {
                return Ok(Err(error));
            }
        }
    }
    Ok(control.during(Step::Write, data.finish()).await)
}
