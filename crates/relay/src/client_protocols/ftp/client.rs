// SPDX-License-Identifier: MIT OR Apache-2.0
//! FTP client of one request: login, and data connections for its transfer.
//!
//! A data connection is opened by EPSV (RFC 2428), which passes address translators and IPv6. Many servers and
//! firewalls know only PASV. So whatever goes wrong with EPSV, the client goes on with PASV: on the same control
//! connection, or on a new one if that is gone.

use crate::{
    client_protocols::ftp::{
        control::Control,
        data_connection::DataConnection,
        error::{FtpError, Step},
        url::Url,
    },
    leg::stream::LegStream,
    route::request::Request,
    session::Session,
};
use longhaul_protocol::{
    destination::Destination,
    ftp::{Argument, Reply},
};
use std::sync::Arc;

/// Server and user of a request.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) session: &'a Arc<Session>,
    pub(super) server: &'a Destination,
    pub(super) url: &'a Url,
}

/// Command for opening data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Extended,
    Passive,
}

/// Client that is logged in.
pub(super) struct Client<'a> {
    target: Target<'a>,
    pub(super) control: Control,
    /// Host of the control connection. Data connections go there, whatever address the server announces: that address
    /// could be any host's, and behind an address translator it is wrong (RFC 2577 §3).
    host: Destination,
    mode: Mode,
    /// Working directory, if it was changed.
    directory: Option<Argument>,
}

impl<'a> Client<'a> {
    /// Connects and logs in.
    pub(super) async fn log_in(target: Target<'a>) -> Result<Self, FtpError> {
        let (control, host) = connect(target).await?;
        Ok(Self {
            target,
            control,
            host,
            mode: Mode::Extended,
            directory: None,
        })
    }

    /// Replaces a control connection that is gone.
    async fn log_in_again(&mut self) -> Result<(), FtpError> {
        (self.control, self.host) = connect(self.target).await?;
        match self.directory.take() {
            Some(directory) => self.change_directory(&directory).await,
            None => Ok(()),
        }
    }

    pub(super) async fn change_directory(&mut self, directory: &Argument) -> Result<(), FtpError> {
        self.control.require(Step::Read, "CWD", directory).await?;
        self.directory = Some(directory.clone());
        Ok(())
    }

    /// Opens a data connection and starts the transfer `verb argument` over it, from the byte `first`. Returns the data
    /// connection, and the byte at which the server starts: 0 if it can't start in the middle (RFC 3659 §5).
    pub(super) async fn start_transfer(
        &mut self,
        step: Step,
        verb: &'static str,
        argument: &Argument,
        first: u64,
    ) -> Result<(DataConnection, u64), FtpError> {
        loop {
            let mut data = self.open_data_connection().await?;
            let was_extended = self.mode == Mode::Extended;
            let first = self.restart_at(first).await?;
            match self.begin(step, verb, argument, &mut data).await {
                Err(error) if was_extended && error.is_data_connection_failure() => {
                    self.mode = Mode::Passive;
                }
                begun => return begun.map(|()| (data, first)),
            }
        }
    }

    /// Starts a transfer over `data`. A download has started with its first byte: some servers announce it before they
    /// have the data connection.
    async fn begin(
        &mut self,
        step: Step,
        verb: &'static str,
        argument: &Argument,
        data: &mut DataConnection,
    ) -> Result<(), FtpError> {
        match self.control.command(verb, argument).await? {
            reply if !reply.is_preliminary() => Err(FtpError::Refused(step, reply)),
            _ if step == Step::Write => Ok(()),
            _ => {
                let started = self.control.during(step, data.wait_for_bytes()).await;
                if let Err(FtpError::Refused(..)) = started {
                    // The refusal is the last reply to `verb`.
                    self.control.reply().await?;
                }
                started
            }
        }
    }

    async fn restart_at(&mut self, first: u64) -> Result<u64, FtpError> {
        if first == 0 {
            return Ok(0);
        }
        let reply = self.control.command("REST", &first.into()).await?;
        Ok(if reply.is_intermediate() { first } else { 0 })
    }

    async fn open_data_connection(&mut self) -> Result<DataConnection, FtpError> {
        if self.mode == Mode::Extended {
            let opened = self.open_extended().await;
            let Err(error) = opened else {
                return opened;
            };
            self.mode = Mode::Passive;
            // A late reply would be taken for the one to PASV.
            if error.is_timeout() {
                self.log_in_again().await?;
            }
        }
        match self.open_passive().await {
            Err(error) if error.is_closed() => {
                self.log_in_again().await?;
                self.open_passive().await
            }
            opened => opened,
        }
    }

    async fn open_extended(&mut self) -> Result<DataConnection, FtpError> {
        let reply = self.control.extended_passive().await?;
        self.open(reply.extended_passive_port(), reply).await
    }

    async fn open_passive(&mut self) -> Result<DataConnection, FtpError> {
        let reply = self.control.command("PASV", &Argument::default()).await?;
        self.open(reply.passive_port(), reply).await
    }

    async fn open(&self, port: Option<u16>, reply: Reply) -> Result<DataConnection, FtpError> {
        let port = port.ok_or(FtpError::Refused(Step::Other, reply))?;
        let to = match &self.host {
            Destination::Address(address) => Destination::from_ip(address.ip(), port),
            Destination::Name(name, _) => Destination::Name(name.clone(), port),
        };
        let opened = DataConnection::open(self.target.session, &to).await;
        opened.map_err(|fault| FtpError::NoData(to, fault))
    }
}

/// Opens a control connection and logs in. Returns the host to which data connections go, too.
async fn connect(target: Target<'_>) -> Result<(Control, Destination), FtpError> {
    let Target {
        session, server, ..
    } = target;
    let request = Request::to(server.clone(), Vec::new());
    let upstream = session.open_and_await_answer(&request).await?;
    // A FIN on close is harmless: only commands are sent.
    upstream.leg.transport().fin_on_close();
    let stream = LegStream::new(upstream.leg, true);
    let is_direct = matches!(session.direct_profile(server), Ok(Some(_)));
    // Uses the address that answered; behind a peer, only the name is known.
    let host = if is_direct {
        Destination::Address(upstream.address)
    } else {
        server.clone()
    };
    let mut control = Control::new(stream, session.setup.config.limits.response_timeout);
    greet(&mut control).await?;
    authenticate(&mut control, target.url).await?;
    let binary = Argument::new("I").expect("no control character");
    control.require(Step::Other, "TYPE", &binary).await?;
    Ok((control, host))
}

/// Waits until the server is ready; it may announce a delay before (RFC 959 §5.4, code 120).
async fn greet(control: &mut Control) -> Result<(), FtpError> {
    let mut reply = control.reply().await?;
    if reply.is_preliminary() {
        reply = control.reply().await?;
    }
    if reply.is_success() {
        Ok(())
    } else {
        Err(FtpError::Refused(Step::Login, reply))
    }
}

/// Logs in: any code of success will do (RFC 959 §6), such as 202 for a password that was not needed.
async fn authenticate(control: &mut Control, url: &Url) -> Result<(), FtpError> {
    let mut reply = control.command("USER", &url.user).await?;
    if reply.is_intermediate() {
        reply = control.command("PASS", &url.password).await?;
    }
    if reply.is_success() {
        Ok(())
    } else {
        Err(FtpError::Refused(Step::Login, reply))
    }
}
