// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulated disk that loses power. After the loss it has all synced state, and a random part of
//! the later changes:
//!
//! - Each sector of a file has any content that it had since the last sync.
//! - A file has any length that it had since the last sync, or a length between two of these.
//! - Any subset of the changes to a directory's names survives.
//!
//! Real file systems lose less, because most keep some order. Code that survives this disk survives
//! them all.

use super::{Directory, FileOps, OpenError, OpenMode};
use parking_lot::{Mutex, MutexGuard};
use std::{collections::BTreeMap, io, ops::Range, sync::Arc};

const SECTOR: usize = 512;

/// Pseudo-random numbers, reproducible by seed (splitmix64).
pub(crate) struct SimRng(pub(crate) u64);

impl SimRng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Random number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Simulated disk. Clones share its state.
#[derive(Clone, Default)]
pub(crate) struct SimulatedDisk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    files: Vec<FileState>,
    directories: Vec<Names>,
    /// Operations until the power fails.
    operations_left: Option<u64>,
    powered_off: bool,
    /// Number of restarts after a crash. Locks of earlier boots are void.
    boots: u64,
}

#[derive(Default)]
struct FileState {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Lengths that the file has had since the last sync.
    lens: Vec<usize>,
    /// Contents that each sector has had since the last sync.
    sectors: BTreeMap<usize, Vec<[u8; SECTOR]>>,
    /// Number that stands for all metadata of the file: its current value, and that of the last
    /// sync.
    tag: (u64, u64),
    lock: Lock,
    /// Bytes that cannot be read.
    unreadable: Range<usize>,
}

/// Lock of a file, held by open handles. A handle for reading holds no lock.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Lock {
    #[default]
    Free,
    Shared(usize),
    Exclusive,
}

impl Lock {
    fn acquire(self, open_mode: OpenMode) -> Option<Self> {
        match (self, open_mode) {
            (lock, OpenMode::Read) => Some(lock),
            (Self::Free, OpenMode::Shared) => Some(Self::Shared(1)),
            (Self::Shared(others), OpenMode::Shared) => Some(Self::Shared(others + 1)),
            (Self::Free, _) => Some(Self::Exclusive),
            _ => None,
        }
    }

    fn release(self) -> Self {
        match self {
            Self::Shared(holders) if holders > 1 => Self::Shared(holders - 1),
            _ => Self::Free,
        }
    }
}

type Change = Vec<(Vec<u8>, Option<usize>)>;

#[derive(Default)]
struct Names {
    now: BTreeMap<Vec<u8>, usize>,
    durable: BTreeMap<Vec<u8>, usize>,
    /// Changes since the last sync. Each survives a crash as a whole or not at all.
    pending: Vec<Change>,
}

impl SimulatedDisk {
    pub(crate) fn directory(&self) -> SimulatedDir {
        let mut state = self.state();
        state.directories.push(Names::default());
        SimulatedDir {
            disk: self.clone(),
            id: state.directories.len() - 1,
        }
    }

    /// Schedules a power loss at the `operations`th operation that changes state.
    pub(crate) fn fail_after(&self, operations: u64) {
        self.state().operations_left = Some(operations);
    }

    pub(crate) fn is_powered_off(&self) -> bool {
        self.state().powered_off
    }

    /// Cancels the power loss: only the writing process died, and the disk keeps its state.
    pub(crate) fn restore_power(&self) {
        let mut state = self.state();
        (state.operations_left, state.powered_off) = (None, false);
    }

    /// Cuts the power, unless it has failed already, and restarts the disk.
    pub(crate) fn crash(&self, rng: &mut SimRng) {
        let mut state = self.state();
        let kept_percent = [0, 20, 50, 80, 100][rng.below(5)];
        for file in &mut state.files {
            file.crash(rng, kept_percent);
        }
        for names in &mut state.directories {
            names.crash(rng, kept_percent);
        }
        (state.operations_left, state.powered_off) = (None, false);
        state.boots += 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl State {
    fn check_power(&self) -> io::Result<()> {
        if self.powered_off {
            Err(io::Error::other("the power is off"))
        } else {
            Ok(())
        }
    }

    /// Counts an operation, at which the power may fail.
    fn count_operation(&mut self) -> io::Result<()> {
        self.check_power()?;
        self.operations_left = self.operations_left.map(|left| left.saturating_sub(1));
        self.powered_off = self.operations_left == Some(0);
        self.check_power()
    }
}

impl FileState {
    /// Records the new contents of the sectors in a range.
    fn record_sectors(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        for sector in range.start / SECTOR..range.end.div_ceil(SECTOR) {
            let mut bytes = [0; SECTOR];
            let kept = self.now.iter().skip(sector * SECTOR).take(SECTOR);
            bytes
                .iter_mut()
                .zip(kept)
                .for_each(|(to, from)| *to = *from);
            self.sectors.entry(sector).or_default().push(bytes);
        }
    }

    fn resize(&mut self, len: usize) {
        let before = self.now.len();
        self.now.resize(len, 0);
        self.record_sectors(len.min(before)..before);
        self.lens.push(len);
    }

    fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        if end > self.now.len() {
            self.resize(end);
        }
        self.now[offset..end].copy_from_slice(bytes);
        self.record_sectors(offset..end);
    }

    fn check_readable(&self, range: Range<usize>) -> io::Result<()> {
        if range.start < self.unreadable.end && self.unreadable.start < range.end {
            Err(io::Error::other("a bad sector"))
        } else {
            Ok(())
        }
    }

    fn sync_data(&mut self) {
        self.durable.clone_from(&self.now);
        self.lens.clear();
        self.sectors.clear();
    }

    fn sync_all(&mut self) {
        self.sync_data();
        self.tag.1 = self.tag.0;
    }

    fn crash(&mut self, rng: &mut SimRng, kept_percent: usize) {
        let mut kept = std::mem::take(&mut self.durable);
        let mut len = kept.len();
        for other in std::mem::take(&mut self.lens) {
            if rng.chance(kept_percent) {
                let between = len.min(other) + rng.below(len.abs_diff(other) + 1);
                len = if rng.chance(30) { between } else { other };
            }
        }
        for (sector, states) in std::mem::take(&mut self.sectors) {
            if rng.chance(kept_percent) {
                let late = states.len() - 1;
                let which = if rng.chance(50) {
                    late
                } else {
                    rng.below(late + 1)
                };
                let offset = sector * SECTOR;
                kept.resize(kept.len().max(offset + SECTOR), 0);
                kept[offset..offset + SECTOR].copy_from_slice(&states[which]);
            }
        }
        kept.resize(len, 0);
        self.now.clone_from(&kept);
        self.durable = kept;
        if !rng.chance(kept_percent) {
            self.tag.0 = self.tag.1;
        }
        self.tag.1 = self.tag.0;
        self.lock = Lock::Free;
    }
}

impl Names {
    fn change(&mut self, change: Change) {
        apply(&mut self.now, &change);
        self.pending.push(change);
    }

    fn sync(&mut self) {
        self.durable.clone_from(&self.now);
        self.pending.clear();
    }

    fn crash(&mut self, rng: &mut SimRng, kept_percent: usize) {
        for change in std::mem::take(&mut self.pending) {
            if rng.chance(kept_percent) {
                apply(&mut self.durable, &change);
            }
        }
        self.now.clone_from(&self.durable);
    }
}

fn apply(names: &mut BTreeMap<Vec<u8>, usize>, change: &Change) {
    for (name, file) in change {
        match file {
            Some(file) => names.insert(name.clone(), *file),
            None => names.remove(name),
        };
    }
}

pub(crate) struct SimulatedFile {
    disk: SimulatedDisk,
    id: usize,
    /// Boot in which this handle took its lock; `None` if it holds none.
    lock: Option<u64>,
}

impl SimulatedFile {
    /// Applies a change. It may survive a crash, even if the power fails during this operation.
    fn change(&self, change: impl FnOnce(&mut FileState)) -> io::Result<()> {
        let mut state = self.disk.state();
        state.check_power()?;
        change(&mut state.files[self.id]);
        state.count_operation()
    }

    fn sync(&self, sync: impl FnOnce(&mut FileState)) -> io::Result<()> {
        let mut state = self.disk.state();
        state.count_operation()?;
        sync(&mut state.files[self.id]);
        Ok(())
    }

    /// Sets the metadata tag.
    pub(crate) fn set_tag(&self, label: u64) -> io::Result<()> {
        self.change(|file| file.tag.0 = label)
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if self.lock == Some(state.boots) {
            let file = &mut state.files[self.id];
            file.lock = file.lock.release();
        }
    }
}

impl FileOps for SimulatedFile {
    fn len(&self) -> io::Result<u64> {
        let state = self.disk.state();
        state.check_power()?;
        Ok(state.files[self.id].now.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.state();
        state.check_power()?;
        let file = &state.files[self.id];
        let from = file.now.get(offset as usize..).unwrap_or_default();
        let len = from.len().min(buffer.len());
        file.check_readable(offset as usize..offset as usize + len)?;
        buffer[..len].copy_from_slice(&from[..len]);
        Ok(len)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.change(|file| file.write(bytes, offset as usize))
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.change(|file| file.write(bytes, file.now.len()))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(|file| file.resize(len as usize))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.change(|file| file.resize(file.now.len().max(len as usize)))
    }

    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        let zeros = vec![0; (range.end - range.start) as usize];
        self.write_at(&zeros, range.start)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync(FileState::sync_data)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync(FileState::sync_all)
    }

    /// Syncs all files, but no names: a sync of their directory makes them durable.
    fn sync_file_system(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.count_operation()?;
        state.files.iter_mut().for_each(FileState::sync_all);
        Ok(())
    }

    fn file_system_id(&self) -> io::Result<u64> {
        Ok(0)
    }
}

#[derive(Clone)]
pub(crate) struct SimulatedDir {
    disk: SimulatedDisk,
    id: usize,
}

impl SimulatedDir {
    fn change(&self, change: impl FnOnce(&mut Names) -> Option<Change>) -> io::Result<()> {
        let mut state = self.disk.state();
        state.check_power()?;
        let names = &mut state.directories[self.id];
        let change = change(names).ok_or(io::ErrorKind::NotFound)?;
        names.change(change);
        state.count_operation()
    }

    fn make(&self, name: &[u8]) -> io::Result<usize> {
        let id = self.disk.state().files.len();
        self.disk.state().files.push(FileState::default());
        self.change(|_| Some(vec![(name.to_vec(), Some(id))]))?;
        Ok(id)
    }

    fn find(&self, name: &[u8]) -> io::Result<Option<usize>> {
        let state = self.disk.state();
        state.check_power()?;
        Ok(state.directories[self.id].now.get(name).copied())
    }

    /// Metadata tag of a file.
    pub(crate) fn tag(&self, name: &[u8]) -> Option<u64> {
        let id = self.find(name).unwrap()?;
        Some(self.disk.state().files[id].tag.0)
    }

    /// Makes a range of a file unreadable, and all other bytes readable.
    pub(crate) fn set_unreadable(&self, name: &[u8], bad: Range<usize>) {
        let id = self.find(name).unwrap().unwrap();
        self.disk.state().files[id].unreadable = bad;
    }

    /// Contents of a file.
    pub(crate) fn bytes(&self, name: &[u8]) -> Option<Vec<u8>> {
        let id = self.find(name).unwrap()?;
        Some(self.disk.state().files[id].now.clone())
    }
}

impl Directory for SimulatedDir {
    type File = SimulatedFile;

    fn open(&self, name: &[u8], open_mode: OpenMode) -> Result<Option<SimulatedFile>, OpenError> {
        let makes = matches!(
            open_mode,
            OpenMode::CreateExclusive | OpenMode::CreateAndWait
        );
        let id = match self.find(name)? {
            Some(id) => id,
            None if makes => self.make(name)?,
            None => return Ok(None),
        };
        let mut state = self.disk.state();
        let lock = (open_mode != OpenMode::Read).then_some(state.boots);
        let file = &mut state.files[id];
        file.lock = file.lock.acquire(open_mode).ok_or(OpenError::Busy)?;
        drop(state);
        let disk = self.disk.clone();
        Ok(Some(SimulatedFile { disk, id, lock }))
    }

    fn remove_unless_locked(&self, name: &[u8]) -> Result<(), OpenError> {
        match self.open(name, OpenMode::Exclusive)? {
            Some(_held) => Ok(self.remove(name)?),
            None => Ok(()),
        }
    }

    fn refers_to(&self, name: &[u8], file: &SimulatedFile) -> io::Result<bool> {
        Ok(self.find(name)? == Some(file.id))
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        self.change(|names| {
            let file = names.now.get(from).copied()?;
            Some(vec![(from.to_vec(), None), (to.to_vec(), Some(file))])
        })
    }

    fn remove(&self, name: &[u8]) -> io::Result<()> {
        self.change(|_| Some(vec![(name.to_vec(), None)]))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.count_operation()?;
        state.directories[self.id].sync();
        Ok(())
    }

    fn id(&self) -> (u64, u64) {
        (0, self.id as u64)
    }
}

#[test]
fn crash_keeps_synced_state_and_any_part_of_the_rest() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..1000 {
        let (disk, mut rng) = (SimulatedDisk::default(), SimRng(seed));
        let dir = disk.directory();
        let file = dir.open(b"a", OpenMode::CreateExclusive).unwrap().unwrap();
        file.write_at(&[1; 2 * SECTOR], 0).unwrap();
        file.sync_data().unwrap();
        dir.sync().unwrap();
        file.write_at(&[2; 2 * SECTOR], SECTOR as u64).unwrap();
        file.set_tag(7).unwrap();
        dir.rename(b"a", b"b").unwrap();
        disk.crash(&mut rng);
        let (a, b) = (dir.bytes(b"a"), dir.bytes(b"b"));
        assert_ne!(a.is_some(), b.is_some(), "a rename is whole");
        let renamed = b.is_some();
        let bytes = a.or(b).unwrap();
        assert_eq!(bytes[..SECTOR], [1; SECTOR]);
        let third = bytes.get(2 * SECTOR).copied();
        let label = dir.tag(if renamed { b"b" } else { b"a" });
        seen.insert((renamed, bytes[SECTOR], third, label));
    }
    assert_eq!(seen.len(), 2 * 2 * 3 * 2, "{seen:?}");
}
