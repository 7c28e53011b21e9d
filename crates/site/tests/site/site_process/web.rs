// SPDX-License-Identifier: MIT OR Apache-2.0
//! Site accessed over HTTP with curl.

use super::{Home, SiteProcess, WAIT_LIMIT};
pub(crate) use longhaul_testprograms::wait::wait_until;
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
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
        let at = "127.0.0.1:0";
        let site = home.site(&["--export-ro", &closed, "--http", at, "--https", at]);
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

    pub(crate) fn text(&self, arguments: &[&str], path: &str) -> (u16, String) {
        let (status, text) = self.curl(arguments, path);
        (status, String::from_utf8(text).unwrap())
    }

    /// Returns a header field of a file.
    pub(crate) fn field(&self, name: &str, path: &str) -> String {
        let head = self.text(&["--head"], path).1;
        let mut lines = head.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.expect(&head).to_owned()
    }

    /// Sends the head of a request and a part of its body on a connection of its own.
    pub(crate) fn send(&self, line: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.url("").replace("http://", "")).unwrap();
        stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        let token = &self.token;
        write!(
            stream,
            "{line} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{headers}\r\n{body}"
        )
        .unwrap();
        stream
    }

    pub(crate) fn status(&self, arguments: &[&str], path: &str) -> u16 {
        self.curl(arguments, path).0
    }

    /// Returns the status of a request with curl's arguments `-X`, `-H` and `-d`, but starts no process: some tests send
    /// hundreds of them.
    pub(crate) fn status_without_curl(&self, arguments: &[&str], path: &str) -> u16 {
        let (url, token) = (self.url(""), &self.token);
        let address = url.trim_start_matches("http://");
        let fields = format!("Host: {address}\r\nAuthorization: Bearer {token}\r\n");
        let request = format_request(arguments, &fields, path);
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        let line = String::from_utf8_lossy(&response);
        line.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn data(&self, name: &str) -> PathBuf {
        self.home.data().join(name)
    }
}

/// Formats a request with curl's arguments `-X`, `-H` and `-d`.
fn format_request(arguments: &[&str], fields: &str, path: &str) -> String {
    let (mut method, mut headers, mut body) = ("GET", fields.to_owned(), "");
    for pair in arguments.chunks(2) {
        match *pair {
            ["-X", value] => method = value,
            ["-H", value] => headers += &format!("{value}\r\n"),
            ["-d", value] => body = value,
            _ => panic!("{pair:?}"),
        }
    }
    if !body.is_empty() {
        headers += &format!("Content-Length: {}\r\n", body.len());
    }
    format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n{body}")
}

pub(crate) fn curl(arguments: &[&str], url: &str) -> (u16, Vec<u8>) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--path-as-is", "--max-time", "60"]);
    command.args(["--write-out", "%{stderr}%{http_code}"]);
    let output = command.args(arguments).arg(url).output().unwrap();
    let status = String::from_utf8(output.stderr).unwrap();
    (status.parse().unwrap(), output.stdout)
}

/// Body of a LOCK.
pub(crate) fn lock_body(scope: &str, owner: &str) -> String {
    format!(
        "<D:lockinfo xmlns:D='DAV:'><D:lockscope><D:{scope}/></D:lockscope><D:locktype><D:write/></D:locktype>\
         <D:owner>{owner}</D:owner></D:lockinfo>"
    )
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
