// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ftp://` URLs for HTTP clients: files are streamed, directories become a page. Control and data
//! connections both take the client's route; the addresses that servers give are not believed.

mod download;
mod listing;
pub(crate) mod refusal;
mod url;

pub(crate) use download::Download;
pub(crate) use url::Url;

use crate::{
    admission::shortage::patiently,
    faults::fault::Fault,
    leg::stream::Shared,
    listener::ftp::refusal::{Refusal, code, if_known, in_time},
    route::request::Request,
    session::Session,
};
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::{
    Response, StatusCode,
    header::{self, HeaderName, HeaderValue},
};
use longhaul_linux::socket::reset_on_close;
use longhaul_protocol::{destination::Destination, failure::Failure};
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

/// Places beyond that of the client's connection, two descriptors each: control and data connection
/// are up to three each (the leg, and over TLS a bridge's two ends), and the client's last origin
/// may still be connected.
const PLACES: u32 = 3;

/// Gets what `url` names, or only its head.
pub(crate) async fn get(
    session: &Arc<Session>,
    server: &Destination,
    url: &Url,
    only_head: bool,
) -> Result<Response<Body>, Refusal> {
    let places = session.more_places(PLACES)?;
    let limit = session.config.limits.response_timeout;
    let mut ftp = log_in(session, server, url).await?;
    match url.is_directory() {
        true => directory(&mut ftp, url, limit).await,
        false => file(ftp, url, only_head, (limit, places)).await,
    }
}

async fn log_in(
    session: &Arc<Session>,
    server: &Destination,
    url: &Url,
) -> Result<AsyncFtpStream, Refusal> {
    let (control, address) = open(session, server).await?;
    let straight = matches!(session.straight_way(server), Ok(Some(_)));
    // Of a name's addresses, the one that answered; behind a peer, only the name is known.
    let host = match straight {
        true => Destination::Address(address),
        false => server.clone(),
    };
    let session = session.clone();
    let limit = session.config.limits.response_timeout;
    let mut ftp = in_time(limit, AsyncFtpStream::connect_with_stream(control))
        .await?
        .passive_stream_builder(move |given| data(session.clone(), host.clone(), given.port()));
    in_time(limit, ftp.login(&url.user, &url.password)).await?;
    in_time(limit, ftp.transfer_type(FileType::Binary)).await?;
    ftp.set_mode(Mode::ExtendedPassive);
    Ok(ftp)
}

type DataLeg = Pin<Box<dyn Future<Output = Result<TcpStream, FtpError>> + Send + Sync>>;

/// A data connection to the host of the control connection, whichever address the server gave: it
/// could be anybody's, and what it is behind a translator helps nobody (RFC 2577 §3).
fn data(session: Arc<Session>, host: Destination, port: u16) -> DataLeg {
    let to = match host {
        Destination::Address(address) => Destination::from_ip(address.ip(), port),
        Destination::Name(name, _) => Destination::Name(name, port),
    };
    // A task of its own, because its future can't be shared between threads and this one's must.
    let opening = tokio::spawn(async move { open(&session, &to).await });
    Box::pin(async move {
        let opened = opening.await.map_err(io::Error::other);
        let opened = opened.and_then(|leg| leg.map_err(io::Error::other));
        opened.map(|leg| leg.0).map_err(FtpError::ConnectionError)
    })
}

/// A leg that stands; the session keeps hold of its socket, for the record and for RST.
async fn open(session: &Session, to: &Destination) -> Result<(TcpStream, SocketAddr), Fault> {
    let request = Request::to(to.clone(), Vec::new());
    let far = session.open_answered(&request).await?;
    // Nothing but commands goes to the server: no end of theirs is taken for an upload's.
    far.stream.carrier().fin_on_close();
    let socket = match far.stream.carrier().tcp() {
        Some(socket) if !far.stream.needs_copy() => patiently(async || duplicate(socket)).await,
        _ => bridge(far.stream).await,
    };
    let socket = socket.map_err(|error| Failure::from_connect(&error))?;
    Ok((socket, far.address))
}

fn duplicate(socket: &TcpStream) -> io::Result<TcpStream> {
    let socket = socket.as_fd().try_clone_to_owned()?;
    TcpStream::from_std(std::net::TcpStream::from(socket))
}

/// suppaftp wants a socket: TLS gets one that leads to it, over loopback.
async fn bridge(leg: Leg) -> io::Result<TcpStream> {
    let listener = patiently(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).await?;
    let at = listener.local_addr()?;
    let outer = patiently(|| TcpStream::connect(at)).await?;
    let mine = outer.local_addr()?;
    let mut inner = loop {
        match patiently(|| listener.accept()).await? {
            (inner, from) if from == mine => break inner,
            (stranger, _) => drop(stranger),
        }
    };
    tokio::spawn(async move {
        let on_bytes = Box::new(|_, _| {});
        let mut leg = Shared {
            stream: leg,
            on_bytes,
        };
        if copy_bidirectional(&mut inner, &mut leg).await.is_err() {
            // What broke must not look like an end.
            let _ = reset_on_close(&inner);
        }
    });
    Ok(outer)
}

/// Servers without EPSV (RFC 2428) have PASV.
fn lacks_epsv(error: &FtpError) -> bool {
    matches!(code(error), Some(500..=504 | 522))
}

async fn directory(
    ftp: &mut AsyncFtpStream,
    url: &Url,
    limit: Duration,
) -> Result<Response<Body>, Refusal> {
    if !url.path.is_empty() {
        in_time(limit, ftp.cwd(&url.path)).await?;
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
    put(
        &mut response,
        header::CONTENT_TYPE,
        "text/html; charset=utf-8",
    );
    Ok(response)
}

async fn file(
    mut ftp: AsyncFtpStream,
    url: &Url,
    only_head: bool,
    (limit, places): (Duration, OwnedSemaphorePermit),
) -> Result<Response<Body>, Refusal> {
    let size = if_known(in_time(limit, ftp.size(&url.path)).await)?;
    let modified = if_known(in_time(limit, ftp.mdtm(&url.path)).await)?;
    let body = match only_head {
        true if size.is_some() => Either::Left(Full::default()),
        _ => match in_time(limit, retrieve(&mut ftp, &url.path)).await {
            Err(error) if code(&error) == Some(550) => {
                return in_time(limit, elsewhere(&mut ftp, url, error))
                    .await
                    .map_err(Refusal::from);
            }
            stream => Either::Right(Download::start(ftp, stream?, (limit, places))),
        },
    };
    let mut response = Response::new(body);
    put(&mut response, header::CONTENT_TYPE, url.content_type());
    if let Some(size) = size {
        put(&mut response, header::CONTENT_LENGTH, &size.to_string());
    }
    let modified = modified.and_then(|time| url::http_date(time.and_utc().timestamp()));
    if let Some(modified) = modified {
        put(&mut response, header::LAST_MODIFIED, &modified);
    }
    Ok(response)
}

async fn retrieve(
    ftp: &mut AsyncFtpStream,
    path: &str,
) -> Result<TransferStream<AsyncNoTlsStream>, FtpError> {
    match ftp.retr_as_stream(path).await {
        Err(error) if lacks_epsv(&error) => {
            ftp.set_mode(Mode::Passive);
            ftp.retr_as_stream(path).await
        }
        stream => stream,
    }
}

/// What is no file may be a directory whose URL lacks the final slash; links on its page need it.
async fn elsewhere(
    ftp: &mut AsyncFtpStream,
    url: &Url,
    error: FtpError,
) -> Result<Response<Body>, FtpError> {
    ftp.cwd(&url.path).await.map_err(|_| error)?;
    let mut response = Response::new(Either::Left(Full::default()));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    put(&mut response, header::LOCATION, &url.as_directory());
    Ok(response)
}

fn put(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
