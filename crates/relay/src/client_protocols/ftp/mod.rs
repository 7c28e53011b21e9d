// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ftp://` URLs for HTTP clients: files are streamed both ways, directories become an HTML page.
//! Control and data connections follow the client's route; addresses from servers are ignored.

mod download;
pub(crate) mod gateway_error;
mod listing;
mod store;
mod url;

pub(crate) use download::Download;
pub(crate) use url::Url;

use crate::{
    client_protocols::ftp::gateway_error::{
        GatewayError, lacks_epsv, optional, reply_code, with_limit,
    },
    faults::fault::Fault,
    leg::stream::LegStream,
    route::request::Request,
    session::Session,
};
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::{
    HeaderMap, Response, StatusCode,
    header::{self, HeaderName, HeaderValue},
};
use longhaul_admission::exhaustion::retry_on_exhaustion;
use longhaul_linux::socket::reset_on_close;
use longhaul_protocol::{byte_range::Part, destination::Destination, failure::Failure};
use longhaul_transport::leg::Leg;
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    os::fd::AsFd,
    pin::Pin,
    sync::Arc,
    time::Duration,
};
use suppaftp::{
    FtpError, Mode,
    tokio::{AsyncFtpStream, AsyncNoTlsStream, TransferStream},
    types::FileType,
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::OwnedSemaphorePermit,
};

pub(crate) type Body = Either<Full<Bytes>, Download>;

/// Permits needed besides the client's own, two descriptors each. Control and data connection have
/// up to three each (the leg, and with TLS both ends of a bridge), and the client's last origin may
/// still be connected.
const PERMITS: u32 = 3;

/// Uploads the body to `url`; calls `invite` once the server accepts the body.
pub(crate) async fn put(
    session: &Arc<Session>,
    server: &Destination,
    (url, headers): (&Url, &HeaderMap),
    body: (impl hyper::body::Body<Data = Bytes> + Unpin, impl FnOnce()),
) -> Result<Response<Body>, GatewayError> {
    store::check_put(url, headers)?;
    let _permits = session.try_acquire_permits(PERMITS)?;
    let limit = session.config.limits.response_timeout;
    let ftp = log_in(session, server, url).await?;
    let mut response = Response::new(Either::Left(Full::default()));
    *response.status_mut() = store::store(ftp, &url.path, body, limit).await?;
    Ok(response)
}

/// Downloads `url`: the whole, the range in the header fields, or only the head.
pub(crate) async fn get(
    session: &Arc<Session>,
    server: &Destination,
    (url, headers): (&Url, &HeaderMap),
    only_head: bool,
) -> Result<Response<Body>, GatewayError> {
    let permits = session.try_acquire_permits(PERMITS)?;
    let limit = session.config.limits.response_timeout;
    let mut ftp = log_in(session, server, url).await?;
    match url.is_directory() {
        true => list_directory(&mut ftp, url, limit).await,
        false if only_head => download_file(ftp, url, None, (limit, permits)).await,
        false => download_file(ftp, url, Some(headers), (limit, permits)).await,
    }
}

async fn log_in(
    session: &Arc<Session>,
    server: &Destination,
    url: &Url,
) -> Result<AsyncFtpStream, GatewayError> {
    let (control, address) = open_connection(session, server).await?;
    let is_direct = matches!(session.direct_profile(server), Ok(Some(_)));
    // Uses the address that answered; behind a peer, only the name is known.
    let host = match is_direct {
        true => Destination::Address(address),
        false => server.clone(),
    };
    let session = session.clone();
    let limit = session.config.limits.response_timeout;
    let mut ftp = with_limit(limit, AsyncFtpStream::connect_with_stream(control))
        .await?
        .passive_stream_builder(move |given| {
            open_data_connection(session.clone(), host.clone(), given.port())
        });
    with_limit(limit, ftp.login(&url.user, &url.password)).await?;
    with_limit(limit, ftp.transfer_type(FileType::Binary)).await?;
    ftp.set_mode(Mode::ExtendedPassive);
    Ok(ftp)
}

type DataConnection = Pin<Box<dyn Future<Output = Result<TcpStream, FtpError>> + Send + Sync>>;

/// Opens a data connection to the host of the control connection, whatever address the server gave.
/// That address could be any host's, and behind an address translator it is wrong (RFC 2577 §3).
fn open_data_connection(session: Arc<Session>, host: Destination, port: u16) -> DataConnection {
    let to = match host {
        Destination::Address(address) => Destination::from_ip(address.ip(), port),
        Destination::Name(name, _) => Destination::Name(name, port),
    };
    // Spawned as a task: suppaftp needs a future that is Sync, and `open_connection`'s is not.
    let opening = tokio::spawn(async move { open_connection(&session, &to).await });
    Box::pin(async move {
        let opened = opening.await.map_err(io::Error::other);
        let opened = opened.and_then(|leg| leg.map_err(io::Error::other));
        opened.map(|leg| leg.0).map_err(FtpError::ConnectionError)
    })
}

/// Opens a connection for suppaftp. The session keeps a handle of the socket, for the record and
/// for RST.
async fn open_connection(
    session: &Session,
    to: &Destination,
) -> Result<(TcpStream, SocketAddr), Fault> {
    let request = Request::to(to.clone(), Vec::new());
    let upstream = session.open_and_await_answer(&request).await?;
    // A FIN on close is harmless: only commands are sent, except by uploads, which handle their own
    // end.
    upstream.leg.transport().fin_on_close();
    let socket = match upstream.leg.transport().tcp() {
        Some(socket) if !upstream.leg.needs_copy() => {
            retry_on_exhaustion(async || duplicate(socket)).await
        }
        _ => bridge(upstream.leg).await,
    };
    let socket = socket.map_err(|error| Failure::from_connect(&error))?;
    Ok((socket, upstream.address))
}

fn duplicate(socket: &TcpStream) -> io::Result<TcpStream> {
    let socket = socket.as_fd().try_clone_to_owned()?;
    TcpStream::from_std(std::net::TcpStream::from(socket))
}

/// Bridges a leg to a TCP socket over loopback, as suppaftp takes only sockets and TLS is not one.
async fn bridge(leg: Leg) -> io::Result<TcpStream> {
    let listener = retry_on_exhaustion(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).await?;
    let at = listener.local_addr()?;
    let outer = retry_on_exhaustion(|| TcpStream::connect(at)).await?;
    let own_address = outer.local_addr()?;
    let mut inner = loop {
        match retry_on_exhaustion(|| listener.accept()).await? {
            (inner, from) if from == own_address => break inner,
            (stranger, _) => drop(stranger),
        }
    };
    tokio::spawn(async move {
        let on_bytes = Box::new(|_, _| {});
        let mut leg = LegStream {
            stream: leg,
            on_bytes,
        };
        if copy_bidirectional(&mut inner, &mut leg).await.is_err() {
            // An error must not look like a clean end on either side.
            let _ = reset_on_close(&inner);
            leg.stream.transport().reset_on_close();
        }
    });
    Ok(outer)
}

async fn list_directory(
    ftp: &mut AsyncFtpStream,
    url: &Url,
    limit: Duration,
) -> Result<Response<Body>, GatewayError> {
    if !url.path.is_empty() {
        with_limit(limit, ftp.cwd(&url.path)).await?;
    }
    let lines = match listing::read(ftp, limit).await {
        Err(error) if lacks_epsv(&error) => {
            ftp.set_mode(Mode::Passive);
            listing::read(ftp, limit).await?
        }
        lines => lines?,
    };
    let page = listing::page(&url.path, &lines).into_string();
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
    mut ftp: AsyncFtpStream,
    url: &Url,
    fields: Option<&HeaderMap>,
    (limit, permits): (Duration, OwnedSemaphorePermit),
) -> Result<Response<Body>, GatewayError> {
    let size = optional(with_limit(limit, ftp.size(&url.path)).await)?.map(|size| size as u64);
    let modified = optional(with_limit(limit, ftp.mdtm(&url.path)).await)?;
    let modified = modified.and_then(|time| url::http_date(time.and_utc().timestamp()));
    let requested_part = fields.zip(size).map_or(Part::Whole, |(fields, size)| {
        Part::requested(fields, size, modified.as_deref())
    });
    let (body, part) = match requested_part {
        _ if fields.is_none() && size.is_some() => (Either::Left(Full::default()), Part::Whole),
        Part::Nothing => (Either::Left(Full::default()), Part::Nothing),
        part => match with_limit(limit, retrieve(&mut ftp, &url.path, part)).await {
            Err(error) if reply_code(&error) == Some(550) => {
                return with_limit(limit, redirect_if_directory(&mut ftp, url, error))
                    .await
                    .map_err(GatewayError::from);
            }
            retrieved => {
                let (stream, part) = retrieved?;
                let len = read_limit(part, size);
                let download = Download::start(ftp, (stream, len), (limit, permits));
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

/// Bytes after which the download stops before the end of the file.
fn read_limit(part: Part, size: Option<u64>) -> Option<u64> {
    match part {
        Part::Bytes(first, last) if Some(last + 1) != size => Some(last + 1 - first),
        _ => None,
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
/// the middle (RFC 3659 §5).
async fn retrieve(
    ftp: &mut AsyncFtpStream,
    path: &str,
    part: Part,
) -> Result<(TransferStream<AsyncNoTlsStream>, Part), FtpError> {
    let first = match part {
        Part::Bytes(first, _) => usize::try_from(first).unwrap_or(usize::MAX),
        _ => 0,
    };
    let mut retrieved = retrieve_from(ftp, path, first).await;
    if matches!(&retrieved, Err(error) if lacks_epsv(error)) {
        ftp.set_mode(Mode::Passive);
        retrieved = retrieve_from(ftp, path, first).await;
    }
    match retrieved {
        // The server refused REST.
        Err(error) if first > 0 && lacks_epsv(&error) => {
            Ok((retrieve_from(ftp, path, 0).await?, Part::Whole))
        }
        retrieved => Ok((retrieved?, part)),
    }
}

async fn retrieve_from(
    ftp: &mut AsyncFtpStream,
    path: &str,
    first: usize,
) -> Result<TransferStream<AsyncNoTlsStream>, FtpError> {
    ftp.resume_transfer(first).await?;
    ftp.retr_as_stream(path).await
}

/// Redirects to the directory if the path is one: its URL needs a final slash for the links on its
/// page.
async fn redirect_if_directory(
    ftp: &mut AsyncFtpStream,
    url: &Url,
    error: FtpError,
) -> Result<Response<Body>, FtpError> {
    ftp.cwd(&url.path).await.map_err(|_| error)?;
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
