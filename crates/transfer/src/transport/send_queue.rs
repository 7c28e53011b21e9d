// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages on their way out: many threads put them in, one sends them, all that are there in one go.

use super::connection::Connection;
use crate::protocol::message;
use anyhow::Result;
use serde::Serialize;
use std::{
    io::{self, BufWriter, Write},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
};

/// Messages that wait at most: then who has more waits. An entry is some 200 bytes.
const QUEUE_LEN_MAX: usize = 4096;

/// Where messages are put in.
#[derive(Debug)]
pub(crate) struct SendQueue<M>(SyncSender<M>);

impl<M> Clone for SendQueue<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M> SendQueue<M> {
    /// Waits for room. Once the conversation is over, messages go nowhere: who needs to know that hears it elsewhere.
    pub(crate) fn push(&self, message: M) {
        let _ = self.0.send(message);
    }
}

/// An outbox, and what sends from it: it ends when all clones of the outbox are gone.
pub(crate) fn send_queue<M: Serialize>() -> (SendQueue<M>, QueueSender<M>) {
    let (into, from) = sync_channel(QUEUE_LEN_MAX);
    (SendQueue(into), QueueSender(from))
}

pub(crate) struct QueueSender<M>(Receiver<M>);

impl<M: Serialize> QueueSender<M> {
    pub(crate) fn run(self, to: Connection) -> Result<()> {
        let mut to = BufWriter::with_capacity(64 << 10, to);
        while let Ok(first) = self.0.recv() {
            message::write(&mut to, &first)?;
            while let Ok(next) = self.0.try_recv() {
                message::write(&mut to, &next)?;
            }
            to.flush()?;
        }
        let mut to = to.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(to.close()?)
    }
}
