// SPDX-License-Identifier: MIT OR Apache-2.0
//! Site accessed over HTTP with curl.

use super::{Home, SiteProcess};
pub(crate) use longhaul_testprograms::wait::wait_until;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Site with the exports `data` and, read-only, `closed`, and a token for it.
pub(crate) struct Web {
    pub(crate) home: Home,
    pub(crate) site: SiteProcess,
    pub(crate) token: String,
}

impl Web {
    pub(crate) fn new() -> Self {
        let home = Home::new();
        let token = home.token(&["new", "me"]);
        let closed = format!("closed={}", home.data().display());
        let anywhere = "127.0.0.1:0";
        let site = home.site(&[
            "--export-ro",
            &closed,
            "--http",
            anywhere,
            "--https",
            anywhere,
        ]);
        Self { home, site, token }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.site.http.as_ref().unwrap())
    }

    /// Runs curl with arguments on a path. Returns the status and the output.
    pub(crate) fn curl(&self, arguments: &[&str], path: &str) -> (u16, Vec<u8>) {
        let bearer = format!("Authorization: Bearer {}", self.token);
        curl(&[&["-H", &bearer][..], arguments].concat(), &self.url(path))
    }

    pub(crate) fn status(&self, arguments: &[&str], path: &str) -> u16 {
        self.curl(arguments, path).0
    }

    pub(crate) fn data(&self, name: &str) -> PathBuf {
        self.home.data().join(name)
    }
}

pub(crate) fn curl(arguments: &[&str], url: &str) -> (u16, Vec<u8>) {
    let mut command = Command::new("curl");
    command.args([
        "--silent",
        "--path-as-is",
        "--max-time",
        "60",
        "--write-out",
        "%{stderr}%{http_code}",
    ]);
    let output = command.args(arguments).arg(url).output().unwrap();
    let status = String::from_utf8(output.stderr).unwrap();
    (status.parse().unwrap(), output.stdout)
}

/// Returns the names in a directory, internal ones included.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
