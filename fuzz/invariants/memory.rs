// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files and directories in memory, for code that uses `longhaul_store::vfs`, as fast as a fuzzer needs them.

use longhaul_store::vfs::{Directory, FileOps, OpenError, OpenMode};
use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
};

/// Maximum length of a read, in bytes.
const PIECE_MAX: usize = 1 << 20;

/// File in memory; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryFile(Arc<Mutex<Vec<u8>>>);

impl MemoryFile {
    pub(crate) fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap()
    }
}

impl FileOps for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes().len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        assert!(buffer.len() <= PIECE_MAX, "reads {} bytes", buffer.len());
        let bytes = self.bytes();
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn write_at(&self, new: &[u8], offset: u64) -> io::Result<()> {
        let (start, mut bytes) = (offset as usize, self.bytes());
        let end = start + new.len();
        let len = bytes.len().max(end);
        bytes.resize(len, 0);
        bytes[start..end].copy_from_slice(new);
        Ok(())
    }

    fn append(&self, new: &[u8]) -> io::Result<()> {
        self.bytes().extend_from_slice(new);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.bytes().resize(len as usize, 0);
        Ok(())
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        self.bytes()[range.start as usize..range.end as usize].fill(0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_file_system(&self) -> io::Result<()> {
        Ok(())
    }

    fn file_system_id(&self) -> io::Result<u64> {
        Ok(0)
    }
}

/// Directory in memory; clones share it.
#[derive(Debug, Clone, Default)]
#[allow(dead_code, reason = "some tests use a single file")]
pub(crate) struct MemoryDirectory(Arc<Mutex<BTreeMap<Vec<u8>, MemoryFile>>>);

impl Directory for MemoryDirectory {
    type File = MemoryFile;

    fn open(&self, name: &[u8], mode: OpenMode) -> Result<Option<MemoryFile>, OpenError> {
        let mut files = self.0.lock().unwrap();
        Ok(match mode {
            OpenMode::Read | OpenMode::Shared | OpenMode::Exclusive => files.get(name).cloned(),
            OpenMode::CreateExclusive | OpenMode::CreateAndWait => {
                Some(files.entry(name.into()).or_default().clone())
            }
        })
    }

    fn remove_unless_locked(&self, name: &[u8]) -> Result<(), OpenError> {
        Ok(self.remove(name)?)
    }

    fn refers_to(&self, name: &[u8], file: &MemoryFile) -> io::Result<bool> {
        let files = self.0.lock().unwrap();
        Ok(files
            .get(name)
            .is_some_and(|named| Arc::ptr_eq(&named.0, &file.0)))
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        let mut files = self.0.lock().unwrap();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.into(), file);
        Ok(())
    }

    fn remove(&self, name: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().remove(name);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn id(&self) -> (u64, u64) {
        (0, 0)
    }
}
