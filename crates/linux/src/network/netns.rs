// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network namespaces, named as iproute2 names them (`/run/netns/NAME`) or given by process.

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

/// What it takes to enter one that is not this process's own, for whom the kernel refuses.
pub const ENTER_HINT: &str = "entering a network namespace needs CAP_SYS_ADMIN: run it with sudo, outside of containers and user namespaces";

/// Where `ip netns` keeps its names.
pub const DIRECTORY: &str = "/run/netns";

/// An open network namespace. Cloning shares the descriptor; the namespace lives as long as any
/// clone, name or process holds it.
#[derive(Debug, Clone)]
pub struct Netns {
    file: Arc<File>,
    name: Option<String>,
}

impl Netns {
    /// The namespace of the calling thread.
    pub fn current() -> io::Result<Self> {
        Ok(Self {
            file: Arc::new(File::open("/proc/thread-self/ns/net")?),
            name: None,
        })
    }

    /// The namespace that `ip netns add NAME` made.
    pub fn named(name: &str) -> io::Result<Self> {
        let file = File::open(path_of(name))?;
        Ok(Self {
            file: Arc::new(file),
            name: Some(name.to_owned()),
        })
    }

    /// The namespace that the process `pid` lives in.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        let file = File::open(format!("/proc/{pid}/ns/net"))?;
        Ok(Self {
            file: Arc::new(file),
            name: None,
        })
    }

    /// Makes a namespace with its loopback down and pins it under `name`, as `ip netns add` does.
    /// Fails if the name is taken.
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

    /// The name that it was opened by, if it was.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Runs `work` on a thread of its own inside this namespace and waits for it. Descriptors that
    /// it opens (sockets, TUN devices) stay in this namespace for ever.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let inside = || {
            // The kernel wants CAP_SYS_ADMIN for the way into one, whether or not one is there already.
            if !self.is_current() {
                self.enter()?;
            }
            work()
        };
        std::thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|_| Err(io::Error::other("the namespace thread panicked")))
    }

    /// Whether the calling thread is in it.
    fn is_current(&self) -> bool {
        let numbers = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let here = stat("/proc/thread-self/ns/net").map(numbers);
        here.is_ok() && fstat(&*self.file).map(numbers) == here
    }

    /// Moves the calling thread into this namespace, for good.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(
            self.file.as_fd(),
            Some(LinkNameSpaceType::Network),
        )?)
    }

    /// The raw descriptor, for netlink messages that name a namespace by it.
    #[must_use]
    pub fn raw(&self) -> i32 {
        self.file.as_raw_fd()
    }
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
    fn work_in_ones_own_namespace_takes_no_rights() {
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
