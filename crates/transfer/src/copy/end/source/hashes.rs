// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--checksum`: files are read only for their hash, which the target compares with its own.

use super::{
    file::{Lost, SourceFile},
    state::{Source, State},
};
use crate::protocol::message::SourceMsg;
use longhaul_command::threads;
use longhaul_scheduling::Stage;
use longhaul_store::blocks::FileHash;
use std::sync::Arc;

impl Source {
    /// Starts the threads that hash, one per CPU; they end with the session.
    pub(super) fn begin_hashing(self: &Arc<Self>) -> anyhow::Result<()> {
        threads::spawn_per_cpu(|| {
            let source = self.clone();
            move || source.hash_files()
        })
    }

    fn hash_files(&self) {
        let mut gauge = self.tally.metrics.measure_thread(Stage::Waiting, None);
        while let Some((number, file)) = self.shared.next(State::next_to_hash) {
            gauge.enter(Stage::Scanning);
            match hash_of(&file) {
                Ok(hash) => self.tell_hash(number, hash),
                Err(lost) => self.lose(number, &file, &lost),
            }
            gauge.enter(Stage::Waiting);
        }
    }

    fn tell_hash(&self, file: u64, FileHash(hash): FileHash) {
        self.shared.update(|state| state.hashing.remove(&file));
        self.orders.put(SourceMsg::HashReply { file, hash });
    }
}

fn hash_of(file: &SourceFile) -> Result<FileHash, Lost> {
    let (opened, blocks) = (file.open()?, file.blocks());
    let (mut buffer, mut hashes) = (Vec::new(), Vec::new());
    let nonsense = |error: longhaul_store::blocks::NoSuchBlock| Lost::Unreadable(error.to_string());
    for index in 0..blocks.count() {
        file.read(&opened, index, &mut buffer)?;
        hashes.push(blocks.hash(index, &buffer).map_err(nonsense)?);
    }
    blocks.file_hash(&hashes).ok_or(Lost::Changed)
}

impl State {
    /// Queues a file whose hash the target requested.
    pub(super) fn hash(&mut self, file: u64) {
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
