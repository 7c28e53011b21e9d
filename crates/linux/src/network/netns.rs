// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network namespaces, by iproute2's names (`/run/netns/NAME`) or by process.

use rustix::{
    fs::{fstat, stat},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Hint for a user whom the kernel refuses to enter another network namespace.
pub const ENTER_HINT: &str = "entering a network namespace needs CAP_SYS_ADMIN: run it with sudo, outside of containers and user namespaces";

/// Directory of the names of `ip netns`.
pub const DIRECTORY: &str = "/run/netns";

/// An open network namespace. Cloning shares the descriptor; the namespace lives as long as any
/// clone, name or process refers to it.
#[derive(Debug, Clone)]
pub struct Netns {
    file: Arc<File>,
    name: Option<String>,
}

impl Netns {
    /// Opens the namespace of the calling thread.
    pub fn current() -> io::Result<Self> {
        Ok(Self {
            file: Arc::new(File::open("/proc/thread-self/ns/net")?),
            name: None,
        })
    }

    /// Opens the namespace that `ip netns add NAME` created. The error names that command.
    pub fn named(name: &str) -> io::Result<Self> {
        let file = File::open(path_of(name)).map_err(|error| {
            let text = format!(
                "network namespace {name:?} in {DIRECTORY}: {error}; create it with: ip netns add {name}"
            );
            io::Error::new(error.kind(), text)
        })?;
        Ok(Self {
            file: Arc::new(file),
            name: Some(name.to_owned()),
        })
    }

    /// Opens the namespace of the process `pid`.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        let file = File::open(format!("/proc/{pid}/ns/net"))?;
        Ok(Self {
            file: Arc::new(file),
            name: None,
        })
    }

    /// Creates a namespace with its loopback down and pins it under `name`, as `ip netns add` does.
    /// Fails if the name exists.
    pub fn create(name: &str) -> io::Result<Self> {
        std::fs::create_dir_all(DIRECTORY)?;
        let pin = path_of(name);
        File::create_new(&pin)?;
        let made = std::thread::scope(|scope| scope.spawn(|| create_and_pin(&pin)).join());
        made.unwrap_or_else(|_| Err(io::Error::other("the namespace thread panicked")))
            .inspect_err(|_| drop(std::fs::remove_file(&pin)))?;
        Self::named(name)
    }

    /// Removes the name; the namespace ends with its last user.
    pub fn delete(name: &str) -> io::Result<()> {
        let pin = path_of(name);
        rustix::mount::unmount(&pin, rustix::mount::UnmountFlags::DETACH)?;
        std::fs::remove_file(pin)
    }

    /// Returns the name by which it was opened, if any.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Runs `work` on a thread of its own inside this namespace and waits for it. Descriptors that
    /// it opens (sockets, TUN devices) stay in this namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let inside = || {
            // setns(2) needs CAP_SYS_ADMIN, even for the current namespace.
            if !self.is_current() {
                self.enter()?;
            }
            work()
        };
        std::thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|_| Err(io::Error::other("the namespace thread panicked")))
    }

    /// Whether the calling thread is in this namespace.
    fn is_current(&self) -> bool {
        self.is_at(Path::new("/proc/thread-self/ns/net"))
    }

    /// Whether `path` refers to this namespace.
    fn is_at(&self, path: &Path) -> bool {
        let found = stat(path).map(identity);
        found.is_ok() && fstat(&*self.file).map(identity) == found
    }

    /// Whether both are the same namespace.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let own = fstat(&*self.file).map(identity);
        own.is_ok() && own == fstat(&*other.file).map(identity)
    }

    /// Whether the name by which it was opened refers to it no longer: `ip netns del` removed it. The namespace itself
    /// lives on while it is open.
    #[must_use]
    pub fn has_lost_name(&self) -> bool {
        let name = self.name.as_deref();
        name.is_some_and(|name| !self.is_at(&path_of(name)))
    }

    /// Moves the calling thread into this namespace permanently.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(
            self.file.as_fd(),
            Some(LinkNameSpaceType::Network),
        )?)
    }

    /// Returns the raw descriptor, for netlink messages that identify a namespace by it.
    #[must_use]
    pub fn raw(&self) -> i32 {
        self.file.as_raw_fd()
    }
}

/// Numbers of a file, which every path to it shares.
fn identity(stat: rustix::fs::Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

fn path_of(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

fn create_and_pin(pin: &Path) -> io::Result<()> {
    // SAFETY: only this thread's network namespace changes, and the thread ends right after.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET)? };
    Ok(rustix::mount::mount_bind("/proc/thread-self/ns/net", pin)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

    #[test]
    fn runs_in_the_current_namespace_without_rights() {
        let here = Netns::current().unwrap();
        let without_rights = || {
            let none = CapabilitySet::empty();
            let none = CapabilitySets {
                effective: none,
                permitted: none,
                inheritable: none,
            };
            set_capabilities(None, none)?;
            here.run(|| Ok(()))
        };
        let done = std::thread::scope(|scope| scope.spawn(without_rights).join());
        done.unwrap().unwrap();
    }
}
