// SPDX-License-Identifier: MIT OR Apache-2.0
//! FTP upload: STOR for an HTTP PUT.

use crate::client_protocols::ftp::{
    gateway_error::{GatewayError, lacks_epsv, optional, reply_code, with_limit},
    url::Url,
};
use bytes::{Buf as _, Bytes};
use http_body_util::BodyExt as _;
use hyper::{HeaderMap, StatusCode, header};
use longhaul_linux::socket::{fin_on_close, reset_on_close};
use std::time::Duration;
use suppaftp::{
    FtpError, Mode,
    tokio::{AsyncFtpStream, AsyncNoTlsStream, TransferStream},
};
use tokio::io::AsyncWriteExt as _;

type Stream = TransferStream<AsyncNoTlsStream>;

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
    mut ftp: AsyncFtpStream,
    path: &str,
    (body, invite): (impl hyper::body::Body<Data = Bytes> + Unpin, impl FnOnce()),
    limit: Duration,
) -> Result<StatusCode, GatewayError> {
    let known = optional(with_limit(limit, ftp.size(path)).await)?;
    let stream = with_limit(limit, open(&mut ftp, path))
        .await
        .map_err(put_error)?;
    // An interrupted upload must not look complete.
    let broken = |_| GatewayError::new(StatusCode::BAD_GATEWAY, "the data connection is gone");
    reset_on_close(stream.get_ref().get_ref()).map_err(broken)?;
    invite();
    let stream = upload(stream, body, limit).await?;
    fin_on_close(stream.get_ref().get_ref()).map_err(broken)?;
    with_limit(limit, stream.finish()).await?;
    Ok(match known {
        Some(_) => StatusCode::NO_CONTENT,
        None => StatusCode::CREATED,
    })
}

async fn open(ftp: &mut AsyncFtpStream, path: &str) -> Result<Stream, FtpError> {
    match ftp.put_with_stream(path).await {
        Err(error) if lacks_epsv(&error) => {
            ftp.set_mode(Mode::Passive);
            ftp.put_with_stream(path).await
        }
        stream => stream,
    }
}

/// Error for a refused STOR: code 550, "not found" when reading, means "forbidden" when writing.
fn put_error(error: FtpError) -> GatewayError {
    let is_denied = reply_code(&error) == Some(550);
    let mut refusal = GatewayError::from(error);
    if is_denied {
        refusal.status = StatusCode::FORBIDDEN;
    }
    refusal
}

async fn upload(
    mut stream: Stream,
    mut body: impl hyper::body::Body<Data = Bytes> + Unpin,
    limit: Duration,
) -> Result<Stream, GatewayError> {
    while let Some(frame) = body.frame().await {
        let cut = |_| GatewayError::new(StatusCode::BAD_REQUEST, "the upload was cut short");
        let mut data = frame.map_err(cut)?.into_data().unwrap_or_default();
        while data.has_remaining() {
            let write = stream.write_buf(&mut data);
            let write = async { write.await.map_err(FtpError::ConnectionError) };
            if let Err(error) = with_limit(limit, write).await {
                // A server that stopped reading may have sent the reason.
                with_limit(limit, stream.finish()).await?;
                return Err(error.into());
            }
        }
    }
    Ok(stream)
}
