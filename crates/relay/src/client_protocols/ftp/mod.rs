// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ftp://` URLs for HTTP clients: files are streamed both ways, directories become an HTML page.
//! Control and data connections follow the client's route; addresses from servers are ignored.

mod client;
mod control;
mod data_connection;
mod download;
mod error;
pub(crate) mod gateway_error;
mod listing;
mod store;
mod url;

pub(crate) use download::Download;
pub(crate) use url::Url;

use crate::{
    client_protocols::ftp::{
        client::{Client, Target},
        data_connection::DataConnection,
        download::Extent,
        error::{FtpError, Step},
        gateway_error::GatewayError,
    },
    session::Session,
};
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::{
    HeaderMap, Response, StatusCode,
    header::{self, HeaderName, HeaderValue},
};
use longhaul_protocol::{byte_range::Part, destination::Destination};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

pub(crate) type Body = Either<Full<Bytes>, Download>;

/// Permits needed besides the client's own, two descriptors each: for control and data connection, and for those of
/// them that are being replaced.
const PERMITS: u32 = 2;

/// Uploads the body to `url`; calls `invite` once the server accepts the body.
pub(crate) async fn put(
    session: &Arc<Session>,
    server: &Destination,
    url: &Url,
    headers: &HeaderMap,
    body: impl hyper::body::Body<Data = Bytes> + Unpin,
    invite: impl FnOnce(),
) -> Result<Response<Body>, GatewayError> {
    store::check_put(url, headers)?;
    let _permits = session.try_acquire_permits(PERMITS)?;
    let client = Client::log_in(Target {
        session,
        server,
        url,
    })
    .await?;
    let mut response = Response::new(Either::Left(Full::default()));
    *response.status_mut() = store::store(client, &url.path, body, invite).await?;
    Ok(response)
}

/// Downloads `url`: the whole, the range in the header fields, or only the head.
pub(crate) async fn get(
    session: &Arc<Session>,
    server: &Destination,
    url: &Url,
    headers: &HeaderMap,
    only_head: bool,
) -> Result<Response<Body>, GatewayError> {
    let permits = session.try_acquire_permits(PERMITS)?;
    let mut client = Client::log_in(Target {
        session,
        server,
        url,
    })
    .await?;
    if url.is_directory() {
        list_directory(&mut client, url).await
    } else {
        let fields = (!only_head).then_some(headers);
        download_file(client, url, fields, permits).await
    }
}

async fn list_directory(
    client: &mut Client<'_>,
    url: &Url,
) -> Result<Response<Body>, GatewayError> {
    let path = url.path.as_bytes();
    if !path.is_empty() {
        client.change_directory(&url.path).await?;
    }
    let listing = listing::read(client).await?;
    let page = listing::page(path, &listing).into_string();
    let mut response = Response::new(Either::Left(Full::from(page)));
    put_field(
        &mut response,
        header::CONTENT_TYPE,
        "text/html; charset=utf-8",
    );
    Ok(response)
}

/// Downloads a file, or only its head if `fields` is `None`.
async fn download_file(
    mut client: Client<'_>,
    url: &Url,
    fields: Option<&HeaderMap>,
    permits: OwnedSemaphorePermit,
) -> Result<Response<Body>, GatewayError> {
    let size = client.control.command("SIZE", &url.path).await?.size();
    let time = client
        .control
        .command("MDTM", &url.path)
        .await?
        .modification_time();
    let modified = time.map(url::http_date);
    let requested_part = fields.zip(size).map_or(Part::Whole, |(fields, size)| {
        Part::requested(fields, size, modified.as_deref())
    });
    let (body, part) = match requested_part {
        _ if fields.is_none() && size.is_some() => (Either::Left(Full::default()), Part::Whole),
        Part::Nothing => (Either::Left(Full::default()), Part::Nothing),
        part => match retrieve(&mut client, url, part).await {
            Err(error) if error.is_missing_file() => {
                return redirect_if_directory(&mut client, url, error).await;
            }
            retrieved => {
                let (data, part) = retrieved?;
                let extent = extent(part, size);
                let download = Download::start(client.control, data, extent, permits);
                (Either::Right(download), part)
            }
        },
    };
    let mut response = Response::new(body);
    put_field(&mut response, header::CONTENT_TYPE, url.content_type());
    if let Some(size) = size {
        set_length(&mut response, part, size);
    }
    if let Some(modified) = modified {
        put_field(&mut response, header::LAST_MODIFIED, &modified);
    }
    Ok(response)
}

/// Bytes of `part` of a file of `size` bytes.
fn extent(part: Part, size: Option<u64>) -> Extent {
    match part {
        Part::Bytes(first, last) => Extent {
            expected: Some(last + 1 - first),
            is_cut: Some(last + 1) != size,
        },
        Part::Whole | Part::Nothing => Extent {
            expected: size,
            is_cut: false,
        },
    }
}

/// Sets status, length and range fields for `part` of a file of `size` bytes.
fn set_length(response: &mut Response<Body>, part: Part, size: u64) {
    put_field(response, header::ACCEPT_RANGES, "bytes");
    let (status, len, range) = match part {
        Part::Whole => (StatusCode::OK, size, None),
        Part::Bytes(first, last) => {
            let range = format!("bytes {first}-{last}/{size}");
            (StatusCode::PARTIAL_CONTENT, last + 1 - first, Some(range))
        }
        Part::Nothing => (
            StatusCode::RANGE_NOT_SATISFIABLE,
            0,
            Some(format!("bytes */{size}")),
        ),
    };
    *response.status_mut() = status;
    put_field(response, header::CONTENT_LENGTH, &len.to_string());
    if let Some(range) = range {
        put_field(response, header::CONTENT_RANGE, &range);
    }
}

/// Starts a retrieval. Returns the part that the server sends: the whole file if it can't start in
/// the middle.
async fn retrieve(
    client: &mut Client<'_>,
    url: &Url,
    part: Part,
) -> Result<(DataConnection, Part), FtpError> {
    let first = match part {
        Part::Bytes(first, _) => first,
        _ => 0,
    };
    let started = client.start_transfer(Step::Read, "RETR", &url.path, first);
    match started.await? {
        (data, 0) if first > 0 => Ok((data, Part::Whole)),
        (data, _) => Ok((data, part)),
    }
}

/// Redirects to the directory if the path is one: its URL needs a final slash for the links on its
/// page.
async fn redirect_if_directory(
    client: &mut Client<'_>,
    url: &Url,
    error: FtpError,
) -> Result<Response<Body>, GatewayError> {
    match client.change_directory(&url.path).await {
        Err(timed_out) if timed_out.is_timeout() => return Err(timed_out.into()),
        Err(_) => return Err(error.into()),
        Ok(()) => {}
    }
    let mut response = Response::new(Either::Left(Full::default()));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    put_field(&mut response, header::LOCATION, &url.as_directory());
    Ok(response)
}

fn put_field(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
