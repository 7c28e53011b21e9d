// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread of a stream: receives blocks, checks them and writes them to their places.

use super::state::{State, Target};
use crate::{
    connection::Connection,
    copy::endpoint::rendezvous::{StreamHandler, StreamOpener},
    protocol::{
        block::{Content, HEADER_LEN, Header},
        message::TargetMsg,
        options::Switch,
    },
};
use anyhow::{Context as _, Result, bail};
use longhaul_scheduling::Stage;
use longhaul_store::{
    blocks::{BLOCK_LEN, FileHash},
    vfs::file::Buffer,
};
use std::io::Read;
use tracing::{debug, debug_span};

impl StreamHandler for Target {
    fn handle_stream(&self, number: u64, stream: Connection) {
        let Ok(handle) = stream.handle() else { return };
        if !self.shared.update(|state| state.add_stream(number, handle)) {
            return;
        }
        let _span = debug_span!("stream", number).entered();
        debug!("opened");
        if let Err(error) = self.receive(number, stream)
            && !self.is_over()
        {
            debug!("broke: {error:#}");
        }
        if let Some(blocks) = self.shared.update(|state| state.remove_stream(number)) {
            debug!(blocks, "ended");
            self.to_source.push(TargetMsg::StreamEnded {
                stream: number,
                blocks,
            });
        }
    }

    fn is_over(&self) -> bool {
        self.shared.is_over()
    }

    fn opener(&self) -> &StreamOpener {
        &self.opener
    }
}

impl Target {
    /// Receives blocks until the stream ends. An error is the stream's; an error of a file only fails that
    /// file.
    fn receive(&self, number: u64, mut from: Connection) -> Result<()> {
        let mut buffer = Buffer::new(BLOCK_LEN as usize);
        let mut measurement = self.counters.metrics.measure_thread(Stage::Receiving, None);
        loop {
            let mut header = [0; HEADER_LEN];
            if !read_header(&mut from, &mut header)? {
                return Ok(());
            }
            let header = Header::parse(&header)?;
            let length = match header.content {
                Content::Data(length) | Content::Changed { length, .. } => length as usize,
                Content::Hole => 0,
            };
            let bytes = &mut buffer[..length];
            from.read_exact(bytes).context("cut off within a block")?;
            measurement.enter(Stage::Writing);
            self.shared.wait_until(State::has_room);
            self.write_block(&header, bytes);
            let written = match header.content {
                Content::Changed { .. } => BLOCK_LEN as usize,
                _ => length,
            };
            self.shared.update_if(
                |state| state.count_block(number, written),
                State::needs_commit,
            );
            measurement.enter(Stage::Receiving);
        }
    }

    /// Writes a block to its file. Blocks of finished files are ignored.
    fn write_block(&self, header: &Header, bytes: &[u8]) {
        let hash = (self.options.hash == Switch::On).then_some(header.hash);
        let (large, small) = self.shared.read(|state| {
            let large = state.large_files.get(&header.file).cloned();
            (large, state.small_files.contains_key(&header.file))
        });
        if small {
            // A changed block of a small file has too few bytes, which is an error of its length.
            let bytes = (header.content != Content::Hole).then_some(bytes);
            return self.write_small(header.file, bytes, hash.map(|hash| FileHash(hash.0)));
        }
        let Some(large) = large else { return };
        if let Err(why) = large.write(header.block, header.content, bytes, hash) {
            self.fail_file(header.file, &large, why);
        }
    }
}

/// Reads a header; `false` if the stream ends properly before one.
fn read_header(from: &mut Connection, header: &mut [u8; HEADER_LEN]) -> Result<bool> {
    let first = from.read(header)?;
    if first == 0 {
        return Ok(false);
    }
    match from.read_exact(&mut header[first..]) {
        Ok(()) => Ok(true),
        Err(error) => bail!("cut off within a header: {error}"),
    }
}
