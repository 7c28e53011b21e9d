// SPDX-License-Identifier: MIT OR Apache-2.0
//! FTP control connection: a command out, a reply in.

use crate::{
    client_protocols::ftp::error::{FtpError, Step, with_limit},
    leg::stream::LegStream,
};
use longhaul_protocol::ftp::{Argument, Reply};
use std::{future::pending, io, pin::pin, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    select,
    time::timeout,
};

/// Bytes of one read. A connection holds one reply ([`longhaul_protocol::ftp::REPLY_LEN_MAX`]) and one read.
const READ_LEN: usize = 4096;

/// Time for bytes that are under way when the server gives up a transfer.
const LAST_BYTES_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest time that a server has to answer EPSV. Firewalls that know only PASV may swallow the command.
const EPSV_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Control {
    stream: LegStream,
    /// Bytes of replies that were not read yet.
    received: Vec<u8>,
    /// Time for each reply.
    limit: Duration,
}

impl Control {
    pub(super) fn new(stream: LegStream, limit: Duration) -> Self {
        Self {
            stream,
            received: Vec::new(),
            limit,
        }
    }

    /// Sends a command and reads the reply to it.
    pub(super) async fn command(
        &mut self,
        verb: &'static str,
        argument: &Argument,
    ) -> Result<Reply, FtpError> {
        let command = argument.encode_command(verb);
        with_limit(self.limit, self.stream.write_all(&command)).await?;
        self.reply().await
    }

    /// Asks for a port by EPSV. After an error, the reply to the next command may be the one to this.
    pub(super) async fn extended_passive(&mut self) -> Result<Reply, FtpError> {
        let limit = self.limit.min(EPSV_TIMEOUT);
        with_limit(limit, async {
            self.command("EPSV", &Argument::default()).await
        })
        .await
    }

    /// Sends a command whose success is the only reply that lets the caller go on.
    pub(super) async fn require(
        &mut self,
        step: Step,
        verb: &'static str,
        argument: &Argument,
    ) -> Result<Reply, FtpError> {
        let reply = self.command(verb, argument).await?;
        success(step, reply)
    }

    /// Reads the reply at the end of a transfer, which says whether the file is complete.
    pub(super) async fn confirm(&mut self, step: Step) -> Result<(), FtpError> {
        let reply = self.reply().await?;
        success(step, reply).map(drop)
    }

    /// Runs a part of a transfer, unless the server gives up the transfer or does nothing for too long.
    pub(super) async fn during<T>(
        &mut self,
        step: Step,
        part: impl Future<Output = io::Result<T>>,
    ) -> Result<T, FtpError> {
        let mut part = pin!(with_limit(self.limit, part));
        let refusal = select! {
            biased;
            done = &mut part => return done,
            refusal = self.wait_for_refusal(step) => refusal,
        };
        let done = timeout(LAST_BYTES_TIMEOUT, part).await;
        done.unwrap_or(Err(refusal))
    }

    /// Waits until the server gives up the transfer. The reply stays for [`Self::confirm`].
    async fn wait_for_refusal(&mut self, step: Step) -> FtpError {
        loop {
            match Reply::parse(&self.received) {
                Ok(Some((reply, _))) if !reply.is_success() => {
                    return FtpError::Refused(step, reply);
                }
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => return pending().await,
            }
            self.received.reserve(READ_LEN);
            if !matches!(self.stream.read_buf(&mut self.received).await, Ok(1..)) {
                return pending().await;
            }
        }
    }

    /// Reads the next reply.
    pub(super) async fn reply(&mut self) -> Result<Reply, FtpError> {
        with_limit(self.limit, self.read_reply()).await
    }

    async fn read_reply(&mut self) -> Result<Reply, FtpError> {
        loop {
            match Reply::parse(&self.received) {
                Ok(Some((reply, len))) => {
                    self.received.drain(..len);
                    return Ok(reply);
                }
                Ok(None) => {}
                Err(error) => {
                    // The reply to the next command is another one.
                    self.received.clear();
                    return Err(error.into());
                }
            }
            self.received.reserve(READ_LEN);
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(FtpError::Closed);
            }
        }
    }
}

fn success(step: Step, reply: Reply) -> Result<Reply, FtpError> {
    if reply.is_success() {
        Ok(reply)
    } else {
        Err(FtpError::Refused(step, reply))
    }
}
