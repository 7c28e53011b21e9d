// SPDX-License-Identifier: MIT OR Apache-2.0
//! Account of the server: PostgreSQL refuses to run as root.

use std::{
    fs,
    os::unix::fs::chown,
    path::Path,
    process::{Command, Stdio},
};

/// Account for the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Account {
    /// Account of this process.
    Own,
    /// User and group to which root changes.
    Other(u32, u32),
    /// User of a nested user namespace, for root of a user namespace that has no other user. The nested one gives root
    /// another number.
    Nested,
}

impl Account {
    /// Chooses a usable account.
    pub(crate) fn choose() -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self::Own;
        }
        let accounts = ["postgres", "nobody"]
            .into_iter()
            .filter_map(user_and_group);
        let mut accounts = accounts.map(|(user, group)| Self::Other(user, group));
        accounts.find(Self::is_usable).unwrap_or(Self::Nested)
    }

    fn is_usable(&self) -> bool {
        let status = self
            .command(Path::new("true"))
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    }

    /// Returns a command that runs a program as this account.
    pub(crate) fn command(self, program: &Path) -> Command {
        let mut command = match self {
            Self::Own => return Command::new(program),
            Self::Other(user, group) => {
                let mut command = Command::new("setpriv");
                command.arg(format!("--reuid={user}"));
                command
                    .arg(format!("--regid={group}"))
                    .arg("--clear-groups");
                command
            }
            Self::Nested => {
                let mut command = Command::new("unshare");
                command.args(["--user", "--map-user=1000", "--map-group=1000"]);
                command
            }
        };
        command.arg("--").arg(program);
        command
    }

    /// Changes the owner of a file to this account.
    pub(crate) fn change_owner(self, path: &Path) {
        if let Self::Other(user, group) = self {
            chown(path, Some(user), Some(group)).unwrap();
        }
    }
}

/// Returns the user and group numbers of an account of this system.
fn user_and_group(name: &str) -> Option<(u32, u32)> {
    let text = fs::read_to_string("/etc/passwd").ok()?;
    let line = text
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}
