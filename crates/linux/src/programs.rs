// SPDX-License-Identifier: MIT OR Apache-2.0
//! Start of programs by name. An ordinary user's `PATH` often lacks the directories of servers and administration
//! tools (Debian), so these are searched too, after `PATH`.

use rustix::fs::{Access, access};
use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

/// Directories of servers and administration tools.
const SYSTEM_DIRECTORIES: &str = "/usr/local/sbin:/usr/sbin:/sbin";
/// The search path of execvp(3) if `PATH` is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Returns a command for the program `name`, which is searched in [`search_path`]. The program gets that as its `PATH`.
#[must_use]
pub fn command(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", search_path());
    command
}

/// Returns `PATH`, followed by the directories of servers and administration tools.
#[must_use]
pub fn search_path() -> OsString {
    with_system_directories(env::var_os("PATH"))
}

fn with_system_directories(path: Option<OsString>) -> OsString {
    let mut path = path.unwrap_or_else(|| DEFAULT_PATH.into());
    path.push(":");
    path.push(SYSTEM_DIRECTORIES);
    path
}

/// Finds a program as execvp(3) does: a name with a slash is a path, any other is searched in [`search_path`].
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let may_run = |file: &PathBuf| file.is_file() && access(file, Access::EXEC_OK).is_ok();
    if name.contains('/') {
        return Some(Path::new(name).to_owned()).filter(may_run);
    }
    let path = search_path();
    let mut files = env::split_paths(&path).map(|directory| directory.join(name));
    files.find(may_run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn searches_system_directories_after_path() {
        let path = with_system_directories(Some("/home/me/bin:/usr/bin".into()));
        let expected = "/home/me/bin:/usr/bin:/usr/local/sbin:/usr/sbin:/sbin";
        assert_eq!(path, expected);
        let default = with_system_directories(None);
        assert_eq!(default, "/bin:/usr/bin:/usr/local/sbin:/usr/sbin:/sbin");
    }

    #[test]
    fn command_searches_the_whole_path() {
        let path = search_path();
        let command = command("nft");
        let variables: Vec<_> = command.get_envs().collect();
        assert_eq!(variables, [(OsStr::new("PATH"), Some(path.as_os_str()))]);
    }

    #[test]
    fn finds_names_and_paths() {
        assert!(find("sh").unwrap().is_absolute());
        assert_eq!(find("/bin/sh").unwrap(), Path::new("/bin/sh"));
        for missing in ["no-such-program", "/no/such/program", "/etc/passwd", "/"] {
            assert_eq!(find(missing), None, "{missing}");
        }
    }
}
