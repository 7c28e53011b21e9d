// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files for transfers: incompressible payloads with their SHA-256, and files for received data.
//! They are in memory if there is room, so that no disk limits a transfer. Otherwise they are
//! unnamed files of the output directory, which vanish with the lab.

use anyhow::{Context, Result, ensure};
use longhaul_command::exit::Refusal;
use longhaul_linux::sandbox;
use longhaul_units::Bytes;
use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

/// Bytes written or hashed at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes of memory that must remain free for sockets and links.
const FREE_MEMORY_MIN: u64 = 1 << 30;

/// Directory of the files for transfers.
#[derive(Debug)]
pub(crate) struct PayloadStore {
    directory: PathBuf,
    disk: Option<PathBuf>,
    /// Unnamed files, kept open as long as the store exists.
    unnamed_files: Vec<File>,
    payloads: BTreeMap<Bytes, [u8; 32]>,
}

impl PayloadStore {
    /// Opens a store for `needed` bytes: in memory if they fit, else below `disk`.
    pub(crate) fn open(directory: &Path, disk: &Path, needed: Bytes) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let memory = memory_available()?;
        let fits = memory >= needed.get().saturating_add(FREE_MEMORY_MIN);
        if fits {
            sandbox::mount_tmpfs(directory, needed + Bytes::new(FREE_MEMORY_MIN))?;
        } else {
            check_disk_space(disk, needed, memory)?;
        }
        let disk = (!fits).then(|| disk.to_owned());
        Ok(Self {
            directory: directory.to_owned(),
            disk,
            unnamed_files: Vec::new(),
            payloads: BTreeMap::new(),
        })
    }

    /// Directory of the payloads for servers.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Scratch directory of the commands on `host`.
    pub(crate) fn scratch(&self, host: &str) -> PathBuf {
        self.directory.join("scratch").join(host)
    }

    /// Creates empty scratch directories for `hosts`, without files of an earlier run.
    pub(crate) fn clear_scratch<'a>(
        &self,
        hosts: impl IntoIterator<Item = &'a String>,
    ) -> Result<()> {
        for directory in hosts.into_iter().map(|host| self.scratch(host)) {
            if directory.exists() {
                fs::remove_dir_all(&directory)?;
            }
            fs::create_dir_all(&directory)
                .with_context(|| format!("cannot create {}", directory.display()))?;
        }
        Ok(())
    }

    /// Whether the files are on a disk, which may limit transfers.
    pub(crate) fn on_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Writes a payload of `size` that depends only on `seed`, unless it exists.
    pub(crate) fn add_payload(&mut self, size: Bytes, seed: u64) -> Result<()> {
        if self.payloads.contains_key(&size) {
            return Ok(());
        }
        let mut file = self.create(&payload_name(size))?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ size.get());
        let mut hash = Sha256::new();
        write_chunks(&mut file, size, |chunk| {
            random.fill_bytes(chunk);
            hash.update(chunk);
        })?;
        self.payloads.insert(size, hash.finalize().into());
        Ok(())
    }

    /// SHA-256 of the payload of `size`, if it exists.
    pub(crate) fn hash(&self, size: Bytes) -> Option<[u8; 32]> {
        self.payloads.get(&size).copied()
    }

    /// Creates the file that receives the transfer `name`.
    pub(crate) fn sink(&mut self, name: &str) -> Result<Sink> {
        self.create(&format!("sink-{name}"))?;
        Ok(Sink {
            path: self.directory.join(format!("sink-{name}")),
        })
    }

    fn create(&mut self, name: &str) -> Result<File> {
        let path = self.directory.join(name);
        let Some(disk) = &self.disk else {
            return File::create(&path)
                .with_context(|| format!("cannot create {}", path.display()));
        };
        let visible = disk.join(format!(".{name}.{}", std::process::id()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&visible);
        let file = file.with_context(|| format!("cannot create {}", visible.display()))?;
        fs::remove_file(&visible)?;
        let fd_path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let _ = fs::remove_file(&path);
        std::os::unix::fs::symlink(fd_path, &path)?;
        // The symbolic link refers to the descriptor of `file`: keep it open, and return a clone.
        let clone = file.try_clone()?;
        self.unnamed_files.push(file);
        Ok(clone)
    }
}

/// Refuses files that fit neither into memory nor on the disk, before the disk is full.
fn check_disk_space(disk: &Path, needed: Bytes, memory: u64) -> Result<()> {
    let place = || format!("cannot read the free space of {}", disk.display());
    let file_system = rustix::fs::statvfs(disk).with_context(place)?;
    let free = file_system.f_bavail.saturating_mul(file_system.f_frsize);
    if free >= needed.get() {
        Ok(())
    } else {
        Err(Refusal::unsupported(format!(
            "the sent and received files need {needed}, but neither memory has room for them ({} free, of which {} must \
         stay free) nor the disk of {} ({} free); give a smaller size, or another --out",
            Bytes::new(memory),
            Bytes::new(FREE_MEMORY_MIN),
            disk.display(),
            Bytes::new(free)
        )))
    }
}

/// File name of the payload of `size`.
pub(crate) fn payload_name(size: Bytes) -> String {
    format!("payload-{}", size.get())
}

/// File that receives a transfer. Its pages are allocated before the transfer, so that allocation
/// does not slow it down.
#[derive(Debug)]
pub(crate) struct Sink {
    path: PathBuf,
}

impl Sink {
    /// Fills it with `size` zeros, so that no earlier transfer is taken for this one.
    pub(crate) fn clear(&self, size: Bytes) -> Result<()> {
        let mut file = self.writer()?;
        write_chunks(&mut file, size, |_| {})?;
        Ok(file.set_len(size.get())?)
    }

    /// File name in the directory of the payloads.
    pub(crate) fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Opens it for writing from its first byte, keeping its pages.
    pub(crate) fn writer(&self) -> Result<File> {
        let file = OpenOptions::new().write(true).open(&self.path);
        file.with_context(|| format!("cannot open {}", self.path.display()))
    }

    /// Checks that the content is `size` bytes with this SHA-256.
    pub(crate) fn verify(&self, size: Bytes, expected: [u8; 32]) -> Result<()> {
        verify(&self.path, size, expected)
    }
}

/// Checks that the file is `size` bytes with this SHA-256.
pub(crate) fn verify(path: &Path, size: Bytes, expected: [u8; 32]) -> Result<()> {
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let (mut hash, mut chunk, mut total) = (Sha256::new(), vec![0; CHUNK_BYTES], 0);
    loop {
        match file.read(&mut chunk)? {
            0 => break,
            n => {
                hash.update(&chunk[..n]);
                total += n as u64;
            }
        }
    }
    ensure!(
        total == size.get(),
        "{total} bytes arrived instead of {}",
        size.get()
    );
    let found: [u8; 32] = hash.finalize().into();
    ensure!(
        found == expected,
        "wrong content: SHA-256 {} instead of {}",
        hex(&found),
        hex(&expected)
    );
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write_chunks(file: &mut File, size: Bytes, mut fill: impl FnMut(&mut [u8])) -> Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut left = size.get();
    while left > 0 {
        let part = &mut chunk[..left.min(CHUNK_BYTES as u64) as usize];
        fill(part);
        file.write_all(part)
            .context("cannot write the files to transfer")?;
        left -= part.len() as u64;
    }
    Ok(())
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn memory_available() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kib.context("/proc/meminfo has no MemAvailable")? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_files_larger_than_the_disk() {
        let disk = tempfile::tempdir().unwrap();
        check_disk_space(disk.path(), Bytes::new(1), 0).unwrap();
        let error = check_disk_space(disk.path(), Bytes::new(1 << 60), 0).unwrap_err();
        assert!(
            error.to_string().contains("neither memory has room"),
            "{error}"
        );
    }

    fn store(directory: &Path, disk: Option<&Path>) -> PayloadStore {
        let (directory, disk) = (directory.to_owned(), disk.map(Path::to_owned));
        PayloadStore {
            directory,
            disk,
            unnamed_files: Vec::new(),
            payloads: BTreeMap::new(),
        }
    }

    #[test]
    fn accepts_a_copy_and_refuses_one_wrong_byte() {
        let directory = tempfile::tempdir().unwrap();
        let size = Bytes::new(3 * CHUNK_BYTES as u64 + 7);
        for disk in [None, Some(directory.path())] {
            let mut store = store(directory.path(), disk);
            store.add_payload(size, 1).unwrap();
            let hash = store.hash(size).unwrap();
            let sink = store.sink("x").unwrap();
            sink.clear(size).unwrap();
            assert!(sink.verify(size, hash).is_err());

            let mut content = fs::read(directory.path().join(payload_name(size))).unwrap();
            sink.writer().unwrap().write_all(&content).unwrap();
            sink.verify(size, hash).unwrap();

            content[CHUNK_BYTES] ^= 1;
            sink.writer().unwrap().write_all(&content).unwrap();
            let error = sink.verify(size, hash).unwrap_err().to_string();
            assert!(error.contains("SHA-256"), "{error}");
            sink.clear(size).unwrap();
            assert!(sink.verify(size, hash).is_err());
        }
        assert!(fs::read_dir(directory.path()).unwrap().all(|entry| {
            !entry
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with('.')
        }));
    }

    #[test]
    fn payloads_depend_on_their_seed() {
        let hash = |seed| {
            let directory = tempfile::tempdir().unwrap();
            let mut store = store(directory.path(), None);
            store.add_payload(Bytes::new(1000), seed).unwrap();
            store.hash(Bytes::new(1000)).unwrap()
        };
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }
}
