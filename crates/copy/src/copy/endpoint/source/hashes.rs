// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--checksum`: files are read only for their hash, which the target compares with its own.

use super::{
    file::{ReadError, SourceFile},
    state::{Source, State},
};
use crate::protocol::message::SourceMsg;
use longhaul_command::threads;
use longhaul_scheduling::Stage;
use longhaul_store::blocks::FileHash;
use std::sync::Arc;

impl Source {
    /// Starts the threads that hash, one per CPU; they end with the session.
    pub(super) fn start_hashing(self: &Arc<Self>) -> anyhow::Result<()> {
        threads::spawn_per_cpu(|| {
            let source = self.clone();
            move || source.hash_files()
        })
    }

    fn hash_files(&self) {
        let mut measurement = self.counters.metrics.measure_thread(Stage::Waiting, None);
        while let Some((number, file)) = self.shared.next(State::next_to_hash) {
            measurement.enter(Stage::Scanning);
            match hash_of(&file) {
                Ok(hash) => self.send_hash(number, hash),
                Err(error) => self.handle_read_error(number, &file, &error),
            }
            measurement.enter(Stage::Waiting);
        }
    }

    fn send_hash(&self, file: u64, hash: FileHash) {
        self.shared.update(|state| state.hashing.remove(&file));
        self.to_target.push(SourceMsg::HashReply { file, hash });
    }
}

fn hash_of(file: &SourceFile) -> Result<FileHash, ReadError> {
    let (opened, blocks) = (file.open()?, file.blocks());
    let (mut buffer, mut hashes) = (Vec::new(), Vec::new());
    let invalid_block =
        |error: longhaul_store::blocks::BlockError| ReadError::Unreadable(error.to_string());
    for index in 0..blocks.count() {
        let content = file.read(&opened, index, &mut buffer)?;
        hashes.push(blocks.hash_content(index, content).map_err(invalid_block)?);
    }
    blocks.file_hash(&hashes).ok_or(ReadError::Changed)
}

impl State {
    /// Queues a file whose hash the target requested.
    pub(super) fn queue_hash(&mut self, file: u64) {
        if let Some(Some(_)) = self.announced.get(&file)
            && self.hashing.insert(file)
        {
            self.to_hash.push_back(file);
        }
    }

    /// Takes the next file to hash.
    fn next_to_hash(&mut self) -> Option<(u64, Arc<SourceFile>)> {
        while let Some(number) = self.to_hash.pop_front() {
            if let Some(Some(file)) = self.announced.get(&number) {
                return Some((number, file.clone()));
            }
        }
        None
    }
}
