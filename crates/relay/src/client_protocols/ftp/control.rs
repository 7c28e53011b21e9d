// SPDX-License-Identifier: MIT OR Apache-2.0
//! FTP control connection: a command out, a reply in.

use crate::{
    client_protocols::ftp::error::{FtpError, Step, with_limit},
    leg::stream::LegStream,
};
use longhaul_protocol::ftp::{Argument, Reply};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Bytes of one read. A connection holds one reply ([`longhaul_protocol::ftp::REPLY_LEN_MAX`]) and one read.
const READ_LEN: usize = 4096;

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
    match reply.is_success() {
        true => Ok(reply),
        false => Err(FtpError::Refused(step, reply)),
    }
}
