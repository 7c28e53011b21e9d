// SPDX-License-Identifier: MIT OR Apache-2.0
//! FTP upload: STOR for an HTTP PUT.

use crate::client_protocols::ftp::{
    refusal::{Refusal, code, if_known, in_time, lacks_epsv},
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
pub(super) fn refuse_parts(url: &Url, headers: &HeaderMap) -> Result<(), Refusal> {
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
    Err(Refusal::new(status, reason))
}

/// Uploads the body under its final name, since servers have no common way to rename. Calls
/// `invite` once the server accepts the body. The server must finish each step within `limit`; time
/// spent on a slow client does not count.
pub(super) async fn store(
    mut ftp: AsyncFtpStream,
    path: &str,
    (body, invite): (impl hyper::body::Body<Data = Bytes> + Unpin, impl FnOnce()),
    limit: Duration,
) -> Result<StatusCode, Refusal> {
    let known = if_known(in_time(limit, ftp.size(path)).await)?;
    let stream = in_time(limit, open(&mut ftp, path)).await.map_err(denied)?;
    // An interrupted upload must not look complete.
    let broken = |_| Refusal::new(StatusCode::BAD_GATEWAY, "the data connection is gone");
    reset_on_close(stream.get_ref().get_ref()).map_err(broken)?;
    invite();
    let stream = fill(stream, body, limit).await?;
    fin_on_close(stream.get_ref().get_ref()).map_err(broken)?;
    in_time(limit, stream.finish()).await?;
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
fn denied(error: FtpError) -> Refusal {
    let is_denied = code(&error) == Some(550);
    let mut refusal = Refusal::from(error);
    if is_denied {
        refusal.status = StatusCode::FORBIDDEN;
    }
    refusal
}

async fn fill(
    mut stream: Stream,
    mut body: impl hyper::body::Body<Data = Bytes> + Unpin,
    limit: Duration,
) -> Result<Stream, Refusal> {
    while let Some(frame) = body.frame().await {
        let cut = |_| Refusal::new(StatusCode::BAD_REQUEST, "the upload was cut short");
        let mut data = frame.map_err(cut)?.into_data().unwrap_or_default();
        while data.has_remaining() {
            let write = stream.write_buf(&mut data);
            let write = async { write.await.map_err(FtpError::ConnectionError) };
            if let Err(error) = in_time(limit, write).await {
                // A server that stopped reading may have sent the reason.
                in_time(limit, stream.finish()).await?;
                return Err(error.into());
            }
        }
    }
    Ok(stream)
}
