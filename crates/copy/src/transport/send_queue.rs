// SPDX-License-Identifier: MIT OR Apache-2.0
//! Send queue of messages: many threads add messages, one thread sends all that are queued in one batch.

use super::connection::Connection;
use crate::protocol::message;
use anyhow::Result;
use serde::Serialize;
use std::{
    io::{self, BufWriter, Write},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
};

/// Maximum number of queued messages. A thread that adds more waits. An entry has about 200 bytes.
const QUEUE_LEN_MAX: usize = 4096;

/// Handle that adds messages to a send queue.
#[derive(Debug)]
pub(crate) struct SendQueue<M>(SyncSender<M>);

impl<M> Clone for SendQueue<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M> SendQueue<M> {
    /// Adds a message, and waits while the queue is full. After the session has ended, the message is dropped: callers learn
    /// of the end by other means.
    pub(crate) fn push(&self, message: M) {
        let _ = self.0.send(message);
    }
}

/// Creates a send queue and its sender. The sender ends when all clones of the queue are dropped.
pub(crate) fn send_queue<M: Serialize>() -> (SendQueue<M>, QueueSender<M>) {
    let (into, from) = sync_channel(QUEUE_LEN_MAX);
    (SendQueue(into), QueueSender(from))
}

/// Sender of the messages in a queue.
pub(crate) struct QueueSender<M>(Receiver<M>);

impl<M: Serialize> QueueSender<M> {
    /// Sends messages until the queue is closed, then closes the connection.
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
