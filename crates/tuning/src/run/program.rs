// SPDX-License-Identifier: MIT OR Apache-2.0
//! Program to run. It is found and checked before anything is changed.

use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_linux::account::Account;
use rustix::fs::{Access, access};
use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

/// Program to run, and the account to run it as.
#[derive(Debug)]
pub(super) struct Program {
    name: OsString,
    path: PathBuf,
    arguments: Vec<OsString>,
    pub(super) account: Option<Account>,
}

impl Program {
    /// Finds the program; `words` is the command line, the program first.
    pub(super) fn new(words: &[OsString], user: Option<&str>) -> Result<Self> {
        let (name, arguments) = words.split_first().expect("clap asks for one");
        Ok(Self {
            name: name.clone(),
            path: find_program(name)?,
            arguments: arguments.to_vec(),
            account: user.map(find_account).transpose()?,
        })
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.arg0(&self.name).args(&self.arguments);
        if let Some(account) = &self.account {
            command
                .env("HOME", &account.home)
                .env("SHELL", &account.shell)
                .env("USER", &account.name)
                .env("LOGNAME", &account.name);
        }
        command
    }

    pub(super) fn name(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }
}

fn find_account(name: &str) -> Result<Account> {
    let found = Account::of(name)?;
    let account =
        found.ok_or_else(|| Refusal::usage(format!("--user {name}: there is no such user")))?;
    match longhaul_linux::process::user() {
        0 => Ok(account),
        _ => Err(Refusal::unsupported(format!(
            "--user {name}: only root can run a program as another user: use sudo"
        ))),
    }
}

/// Finds a program as execvp(3) does: a name with a slash is a path, any other is searched in PATH.
fn find_program(name: &OsStr) -> Result<PathBuf> {
    let file = Path::new(name);
    let text = file.display();
    if file.as_os_str().as_encoded_bytes().contains(&b'/') {
        return if is_executable(file) {
            Ok(file.to_owned())
        } else {
            Err(Refusal::usage(format!(
                "{text}: no such program, or not executable"
            )))
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let mut candidates = env::split_paths(&path).map(|directory| directory.join(file));
    candidates.find(|file| is_executable(file)).ok_or_else(|| {
        Refusal::usage(format!(
            "{text}: no such program in PATH (sudo may have another PATH)"
        ))
    })
}

fn is_executable(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_programs_in_path_as_execvp_does() {
        assert!(find_program(OsStr::new("sh")).unwrap().is_absolute());
        assert_eq!(
            find_program(OsStr::new("/bin/sh")).unwrap(),
            Path::new("/bin/sh")
        );
        for missing in [
            "no-such-program",
            "/no/such/program",
            "/etc/passwd",
            "/",
            "",
        ] {
            let message = find_program(OsStr::new(missing)).unwrap_err().to_string();
            assert!(message.contains("no such program"), "{message}");
        }
    }
}
