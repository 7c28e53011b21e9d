// SPDX-License-Identifier: MIT OR Apache-2.0
//! Testbed for copies over the loopback interface of a network namespace. Its counters measure the bytes on the wire, and
//! no process may stay in it.
pub(crate) mod disk;
pub(crate) mod durable;
pub(crate) mod hosts;
pub(crate) mod mounted;
pub(crate) mod tree;

use longhaul_testnet::namespace::{Namespace, set_sysctl};
pub(crate) use longhaul_testprograms::{
    process::{children, kill},
    wait::{WAIT_LIMIT, finish, wait_until},
};
use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

pub(crate) const BLOCK: u64 = 4 << 20;

/// Maximum buffer of a socket in a testbed, in bytes, in each direction.
pub(crate) const SOCKET_LEN: u64 = 256 << 10;

/// Network namespace and directory for copies.
pub(crate) struct LoopbackTestbed {
    pub(crate) netns: Namespace,
    pub(crate) folder: tempfile::TempDir,
}

impl LoopbackTestbed {
    pub(crate) fn new() -> Self {
        let testbed = Self {
            netns: Namespace::new("copy"),
            folder: tempfile::tempdir().unwrap(),
        };
        for setting in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
            let value = format!("4096 65536 {SOCKET_LEN}");
            set_sysctl(&testbed.netns, setting, &value);
        }
        testbed
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a command that runs in the namespace.
    pub(crate) fn within(&self, program: &str) -> Command {
        self.netns.command(program)
    }

    /// Starts a copy.
    pub(crate) fn start(&self, arguments: &[&str], from: &Path, to: &Path) -> Child {
        let mut command = self.within(longhaul_testprograms::longhaul());
        command.args(["copy", "--json"]).args(arguments);
        command.args([from, to]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Returns the bytes that the loopback interface has carried.
    pub(crate) fn wire_bytes(&self) -> u64 {
        self.netns.traffic("lo").received_bytes
    }
}
