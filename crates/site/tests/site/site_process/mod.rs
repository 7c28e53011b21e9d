// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes of `longhaul site` with exports and tokens, and of `longhaul copy` from and to them.
pub(crate) mod web;

pub(crate) use longhaul_testprograms::{process::children, wait::WAIT_LIMIT};
use longhaul_testprograms::{
    process::{Running, has_ended},
    wait::wait_until,
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
};
use tempfile::TempDir;

/// Directory of a site, running or not: `state`, and `data`, which it exports.
pub(crate) struct Home(TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        let home = Self(TempDir::new().unwrap());
        fs::create_dir(home.data()).unwrap();
        home
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    pub(crate) fn state(&self) -> String {
        self.0.path().join("state").to_str().unwrap().to_owned()
    }

    pub(crate) fn token_command(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = Command::new(longhaul_testprograms::longhaul());
        command.args(["site", "token"]).args(arguments);
        command.args(["--state", &self.state()]).output().unwrap()
    }

    /// Runs `longhaul site token ARGUMENTS`, and returns its output.
    pub(crate) fn token(&self, arguments: &[&str]) -> String {
        let output = self.token_command(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Returns `longhaul site` with `data` exported.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(longhaul_testprograms::longhaul());
        let export = format!("data={}", self.data().display());
        command.args(["site", "--json", "--as-root", "--state", &self.state()]);
        command.args(["--export", &export]).args(arguments);
        command
    }

    /// Starts a site on a free port of loopback.
    pub(crate) fn site(&self, arguments: &[&str]) -> SiteProcess {
        let any_port = ["--listen", "127.0.0.1:0"];
        SiteProcess::spawn(self.command(&[&any_port, arguments].concat()))
    }
}

/// Running site, killed on drop.
pub(crate) struct SiteProcess {
    child: Running,
    pub(crate) address: SocketAddr,
    pub(crate) http: Option<String>,
    pub(crate) https: Option<String>,
    pub(crate) fingerprint: String,
    events: Receiver<Value>,
}

impl SiteProcess {
    /// Starts a site and waits until it listens.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, events) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap());
            }
        });
        let ready: Value = events.recv_timeout(WAIT_LIMIT).expect("the site starts");
        assert_eq!(ready["event"], "ready");
        let url = |kind: &str| ready[kind].as_str().map(|at| format!("{kind}://{at}"));
        Self {
            child: Running(child),
            http: url("http"),
            https: url("https"),
            address: ready["listening"].as_str().unwrap().parse().unwrap(),
            fingerprint: ready["fingerprint"].as_str().unwrap().to_owned(),
            events,
        }
    }

    /// Returns the URL of a path in the export `data`, as `longhaul copy` takes it.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("longhaul://{}/data{path}", self.address)
    }

    /// Waits for the next event of a kind.
    pub(crate) fn wait_for(&self, kind: &str) -> Value {
        loop {
            let event = self.events.recv_timeout(WAIT_LIMIT).expect(kind);
            if event["event"] == kind {
                return event;
            }
        }
    }

    /// Waits for the next event of any kind.
    pub(crate) fn next(&self) -> Value {
        self.events.recv_timeout(WAIT_LIMIT).expect("an event")
    }

    /// Returns the processes that serve the site's HTTP listeners.
    pub(crate) fn http_processes(&self) -> Vec<u32> {
        let serves = |pid: &u32| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains("--serve")
        };
        self.child_processes().into_iter().filter(serves).collect()
    }

    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Returns the processes that the site has started.
    pub(crate) fn child_processes(&self) -> Vec<u32> {
        children(self.child.id())
    }

    /// Sends a signal, and waits until the site has ended.
    pub(crate) fn end(mut self, signal: rustix::process::Signal) -> ExitStatus {
        rustix::process::kill_process(self.pid(), signal).unwrap();
        self.child.wait().unwrap()
    }
}

/// Waits until a process that is not a child of this one has ended.
pub(crate) fn wait_for_exit(pid: u32) {
    wait_until(|| has_ended(pid));
}

/// Client of sites: a directory with a `sites.toml`.
pub(crate) struct Client(TempDir);

impl Client {
    /// Creates a client with tokens for these sites.
    pub(crate) fn with_tokens(sites: &[(&SiteProcess, &str)]) -> Self {
        let client = Self(TempDir::new().unwrap());
        let folder = client.0.path().join("longhaul");
        fs::create_dir(&folder).unwrap();
        let entry = |(site, token): &(&SiteProcess, &str)| {
            format!("\"{}\".token = \"{token}\"\n", site.address)
        };
        let entries: String = sites.iter().map(entry).collect();
        let file = folder.join("sites.toml");
        fs::write(&file, format!("[sites]\n{entries}")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        client
    }

    /// Returns `longhaul copy` with a timeout.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["120", longhaul_testprograms::longhaul(), "copy", "--json"])
            .args(arguments);
        self.set_environment(&mut command);
        command
    }

    /// Sets the environment, so that a command finds the tokens.
    pub(crate) fn set_environment(&self, command: &mut Command) {
        command
            .env("XDG_CONFIG_HOME", self.0.path())
            .env_remove("LONGHAUL_TOKEN");
    }

    pub(crate) fn copy(&self, arguments: &[&str]) -> Value {
        succeed(self.command(arguments))
    }

    /// Runs a copy that ends with `code`. Returns its messages.
    pub(crate) fn copy_fails(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        stderr
    }
}

pub(crate) fn succeed(mut command: Command) -> Value {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Creates files shorter and longer than a block, a hard link, a symbolic link and an unwritable directory.
pub(crate) fn make_tree(top: &Path) {
    fs::create_dir_all(top.join("a/b")).unwrap();
    for (name, length) in [("empty", 0), ("a/small", 1000), ("a/b/large", 9 << 20)] {
        let contents: Vec<u8> = (0..length).map(|at: u32| (at ^ (at >> 9)) as u8).collect();
        fs::write(top.join(name), contents).unwrap();
    }
    fs::hard_link(top.join("a/small"), top.join("a/b/again")).unwrap();
    std::os::unix::fs::symlink("../nowhere", top.join("a/link")).unwrap();
    fs::set_permissions(top.join("a/b"), fs::Permissions::from_mode(0o500)).unwrap();
}

/// Returns contents, mode, time and number of links of a tree's entries, by path.
pub(crate) fn listing(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut directories = vec![top.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(top).unwrap().to_owned();
            if name.to_string_lossy().contains(".longhaul-") {
                continue;
            }
            let meta = fs::symlink_metadata(&path).unwrap();
            let contents = match meta.file_type() {
                kind if kind.is_symlink() => format!("{:?}", fs::read_link(&path).unwrap()),
                kind if kind.is_file() => digest(&fs::read(&path).unwrap()),
                _ => String::new(),
            };
            let links = if meta.is_dir() { 0 } else { meta.nlink() };
            let (mode, time) = (meta.mode(), (meta.mtime(), meta.mtime_nsec()));
            all.insert(name, format!("{contents} {mode:o} {time:?} {links}"));
            if meta.is_dir() {
                directories.push(path);
            }
        }
    }
    all
}

fn digest(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    format!("{:x?}", Sha256::digest(bytes))
}
