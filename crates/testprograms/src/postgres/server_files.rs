// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of a server, their owner, and the programs.

use super::account::Account;
use std::{
    env,
    fs::{self, OpenOptions, Permissions},
    io::Write,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Directory of a server, its owner, and the directory of the programs.
pub(crate) struct ServerFiles {
    pub(crate) directory: PathBuf,
    pub(crate) account: Account,
    pub(crate) programs: PathBuf,
}

impl ServerFiles {
    pub(crate) fn new() -> Self {
        let programs = programs();
        let account = Account::choose();
        let directory = tempfile::Builder::new().prefix("longhaul-pg-").tempdir();
        // The guard process removes it.
        let directory = directory.unwrap().keep();
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
        account.change_owner(&directory);
        Self {
            directory,
            account,
            programs,
        }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = self.account.command(&self.programs.join(program));
        command
            .current_dir(&self.directory)
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn initialise(&self, password: &str) {
        self.write("password", password);
        let mut command = self.command("initdb");
        command.args([
            "-U",
            "longhaul",
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
        ]);
        command.args([
            "--pwfile=password",
            "--no-sync",
            "--no-locale",
            "-E",
            "UTF8",
            "-D",
        ]);
        let output = command.arg(self.data()).output().unwrap();
        assert!(
            output.status.success(),
            "initdb: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        fs::OpenOptions::new()
            .append(true)
            .open(self.data().join("pg_hba.conf"))
            .and_then(|mut file| file.write_all(b"host all all all scram-sha-256\n"))
            .unwrap();
    }

    /// Writes a file that only the server may read.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.directory.join(name);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        file.unwrap().write_all(text.as_bytes()).unwrap();
        self.account.change_owner(&path);
    }
}

/// Returns the directory of the newest server's programs. Debian has one for each version, outside of PATH.
///
/// # Panics
/// If there is none.
fn programs() -> PathBuf {
    let mut directories: Vec<PathBuf> = versions("/usr/lib/postgresql", "bin");
    let path = env::var_os("PATH").unwrap_or_default();
    directories.extend(env::split_paths(&path));
    directories.extend(["/usr/bin", "/usr/local/bin"].map(PathBuf::from));
    let found = directories.into_iter().find(|directory| has_all(directory));
    found.expect("PostgreSQL's server (initdb, postgres, psql) is missing: run scripts/setup")
}

fn has_all(directory: &Path) -> bool {
    let is_there = |program: &&str| directory.join(program).exists();
    ["initdb", "postgres", "psql"].iter().all(is_there)
}

/// Lists the directories of versions, newest first.
fn versions(parent: &str, inner: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join(inner)))
        })
        .collect();
    found.sort_unstable_by_key(|(version, _)| std::cmp::Reverse(*version));
    found.into_iter().map(|(_, path)| path).collect()
}
