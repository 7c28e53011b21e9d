// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread of one stream: it receives blocks, checks them and puts them where they belong.

use super::{
    large::{apply, directory, in_its_place, unless_busy},
    state::{State, Written},
    target::Target,
};
use crate::{
    protocol::{
        block::{BLOCK_LEN, Content, HEADER_LEN, Header},
        message::Outcome,
        options::Switch,
    },
    transport::connection::Connection,
};
use anyhow::{Context as _, Result, bail};
use longhaul_scheduling::Stage;
use longhaul_store::{
    blocks::{BLOCK, BlockHash, FileHash},
    direct::Buffer,
    entry::{Entry, Kind},
    small::Small,
};
use std::{fs::File, io::Read, sync::Arc};

impl Target {
    /// Until the stream ends. What is wrong with a file settles that file; an error is the stream's.
    pub(super) fn receive(&self, number: u64, mut from: Connection) -> Result<()> {
        let mut buffer = Buffer::new(BLOCK_LEN as usize);
        let mut gauge = self.tally.gauges.of_thread(Stage::Receiving, None);
        loop {
            let mut header = [0; HEADER_LEN];
            if !begins(&mut from, &mut header)? {
                return Ok(());
            }
            let header = Header::parse(&header)?;
            let length = match header.content {
                Content::Data(length) => length as usize,
                Content::Hole => 0,
            };
            let bytes = &mut buffer[..length];
            from.read_exact(bytes).context("cut off within a block")?;
            gauge.begin(Stage::Writing);
            self.shared.wait_until(State::has_room);
            self.take(&header, bytes);
            self.shared.change_if(
                |state| state.count_block(number, length),
                State::wants_a_commit,
            );
            gauge.begin(Stage::Receiving);
        }
    }

    /// Blocks of files that are done with are passed over.
    fn take(&self, header: &Header, bytes: &[u8]) {
        let hash = (self.options.hash == Switch::On).then_some(header.hash);
        let (large, small) = self.shared.look(|state| {
            let large = state.large.get(&header.file).cloned();
            (large, state.small.contains_key(&header.file))
        });
        if small {
            let bytes = matches!(header.content, Content::Data(_)).then_some(bytes);
            return self.write_small(header.file, bytes, hash.map(FileHash));
        }
        let Some(large) = large else { return };
        if let Err(why) = large.write(header.block, header.content, bytes, hash.map(BlockHash)) {
            let known = self
                .shared
                .change(|state| state.large.remove(&header.file).is_some());
            if known {
                self.settle(header.file, &large.entry.path, Outcome::Failed(why));
                self.open_waiting();
            }
        }
    }

    /// Writes a file of one block, which may be a hole; the committing thread gives it its name.
    pub(super) fn write_small(&self, number: u64, bytes: Option<&[u8]>, hash: Option<FileHash>) {
        self.shared
            .wait_until(|state| state.batch.len() < state.room.batch);
        let Some(entry) = self.shared.note(|state| state.small.remove(&number)) else {
            return;
        };
        let zeros = vec![0; bytes.map_or(length(&entry), |_| 0)];
        match self.written(&entry, bytes.unwrap_or(&zeros), hash) {
            Ok((small, left_out)) => {
                let written = Written {
                    number,
                    entry,
                    small,
                    left_out,
                };
                self.shared
                    .change_if(|state| state.batch.push(written), State::wants_a_commit);
            }
            Err(why) => self.settle(number, &entry.path, Outcome::Failed(why)),
        }
    }

    fn written(
        &self,
        entry: &Arc<Entry>,
        bytes: &[u8],
        hash: Option<FileHash>,
    ) -> Result<(Small, Vec<String>), String> {
        let dir = directory(&self.root, &entry.path)?;
        let mut left_out = Vec::new();
        let write = || {
            let prepare = |file: &File| {
                left_out = apply(&entry.metadata, file)?;
                Ok(())
            };
            let sparse = has_holes(entry);
            Small::write(&dir, entry.path.name(), bytes, hash, sparse, prepare)
        };
        let small = unless_busy(
            write,
            |small| matches!(small, Err(error) if error.is_busy()),
        );
        let small = small.map_err(|error| in_its_place(entry, &error))?;
        Ok((small, left_out))
    }
}

/// What was announced of a small file: at most a block.
fn length(entry: &Entry) -> usize {
    match entry.kind {
        Kind::File { version, .. } => version.size.min(BLOCK) as usize,
        _ => 0,
    }
}

fn has_holes(entry: &Entry) -> bool {
    matches!(entry.kind, Kind::File { sparse: true, .. })
}

/// Reads a header; `false` where the stream ends in good order, before one.
fn begins(from: &mut Connection, header: &mut [u8; HEADER_LEN]) -> Result<bool> {
    let first = from.read(header)?;
    if first == 0 {
        return Ok(false);
    }
    match from.read_exact(&mut header[first..]) {
        Ok(()) => Ok(true),
        Err(error) => bail!("cut off within a header: {error}"),
    }
}
