// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--limit`: rate limit shared by all copies of a user on this host. They share a file of eight bytes. It holds the
//! time from which the next data may be sent. A process that wants to send locks the file, and moves this time on by
//! the time that its data takes. The kernel releases the lock of a killed process.

use anyhow::{Result, ensure};
use longhaul_command::exit::Refusal;
use longhaul_linux::clock;
use longhaul_scheduling::limit;
use longhaul_units::{BitRate, Time};
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread::sleep,
};

/// Directory of the shared file. It is in memory on every Linux, so a reboot removes the file. That is necessary: the
/// file has a time of the monotonic clock, which a reboot restarts.
const DIRECTORY: &str = "/dev/shm";

/// Rate limit of this user on this host.
#[derive(Debug)]
pub(super) struct RateLimit {
    file: Mutex<File>,
    rate: BitRate,
}

impl RateLimit {
    /// Opens the limit, in bits per second.
    pub(super) fn open(bits_per_s: u64) -> Result<Self> {
        let name = format!("longhaul-limit-{}", longhaul_linux::process::user());
        Self::open_in(Path::new(DIRECTORY), &name, bits_per_s)
    }

    fn open_in(directory: &Path, name: &str, bits_per_s: u64) -> Result<Self> {
        let path: PathBuf = directory.join(name);
        let file = open_owned(&path)
            .map_err(|error| Refusal::usage(format!("--limit: {}: {error:#}", path.display())))?;
        Ok(Self {
            file: Mutex::new(file),
            rate: BitRate::from_bits(bits_per_s),
        })
    }

    /// Waits until `bytes` may be sent.
    pub(super) fn wait_for(&self, bytes: u64) -> io::Result<()> {
        let now = clock::now();
        sleep(self.reserve(now, bytes)?.since(now).into());
        Ok(())
    }

    /// Reserves time for `bytes`; returns when they may be sent. The file lock excludes other processes, the
    /// mutex other threads.
    fn reserve(&self, now: Time, bytes: u64) -> io::Result<Time> {
        let file = self.file.lock();
        flock(&*file, FlockOperation::LockExclusive)?;
        let start = reserve_in(&file, now, self.rate, bytes);
        flock(&*file, FlockOperation::Unlock)?;
        start
    }
}

fn reserve_in(file: &File, now: Time, rate: BitRate, bytes: u64) -> io::Result<Time> {
    let mut next_send_at = [0; 8];
    // A new file is empty: data may be sent at once.
    let _ = file.read_exact_at(&mut next_send_at, 0);
    let next_send_at = Time::from_nanos(u64::from_le_bytes(next_send_at));
    let reservation = limit::reserve(now, next_send_at, rate, bytes);
    file.write_all_at(&reservation.end.as_nanos().to_le_bytes(), 0)?;
    Ok(reservation.start)
}

/// Opens or creates a file. Refuses a file of another user.
fn open_owned(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(path)?;
    let owner = file.metadata()?.uid();
    ensure!(
        owner == longhaul_linux::process::user(),
        "it belongs to user {owner}: remove it"
    );
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_copies_share_one_rate() {
        let directory = tempfile::tempdir().unwrap();
        let open = || RateLimit::open_in(directory.path(), "line", 8_000_000).unwrap();
        let (one, other) = (open(), open());
        let now = Time::from_secs(50);
        // A burst of 20 ms at 1 MB/s is free at first.
        let start = |limit: &RateLimit| limit.reserve(now, 10_000).unwrap();
        let starts = [start(&one), start(&other), start(&one), start(&other)];
        let delays_ms = starts.map(|start| start.since(now).as_nanos() / 1_000_000);
        assert_eq!(delays_ms, [0, 0, 0, 10]);
    }

    #[test]
    fn refuses_symlink() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("line");
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        let error = RateLimit::open_in(directory.path(), "line", 8_000_000).unwrap_err();
        assert!(error.to_string().contains("--limit: "), "{error}");
    }
}
