// SPDX-License-Identifier: MIT OR Apache-2.0
//! A site that runs as a service with an account of its own, whose operator is root.

use crate::site_process::{
    Home, SiteProcess, WAIT_LIMIT,
    web::{curl, wait_until},
};
use rustix::{
    process::{Signal, geteuid},
    thread::{CapabilitySet, remove_capability_from_bounding_set},
};
use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        net::UnixDatagram,
    },
    process::Command,
    thread,
};

/// User and group that no other file of a test has.
const ACCOUNT: (u32, u32) = (1234, 1235);

const LOCK: &str = "<D:lockinfo xmlns:D='DAV:'><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/>\
                    </D:locktype></D:lockinfo>";

/// Creates a state directory that belongs to [`ACCOUNT`]. Returns whether that succeeded.
fn give_state_to_account(home: &Home) -> bool {
    fs::create_dir(home.state()).unwrap();
    fs::set_permissions(home.state(), fs::Permissions::from_mode(0o700)).unwrap();
    let given = chown(home.state(), Some(ACCOUNT.0), Some(ACCOUNT.1));
    longhaul_testprograms::skip::require(given.is_ok(), "root (CAP_CHOWN)")
}

/// Checks the owner of all files in the state directory. Each of `prefixes` must be the start of a file's name.
fn assert_owned_by_account(home: &Home, prefixes: &[&str]) {
    let entries = fs::read_dir(home.state()).unwrap();
    let files: Vec<_> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, (meta.uid(), meta.gid()), meta.mode() & 0o777)
        })
        .collect();
    for (name, owner, mode) in &files {
        assert_eq!((*owner, *mode), (ACCOUNT, 0o600), "{name}");
    }
    for prefix in prefixes {
        let mut names = files.iter().map(|(name, ..)| name);
        assert!(
            names.any(|name| name.starts_with(prefix)),
            "{prefix}: {files:?}"
        );
    }
}

#[test]
fn tokens_of_root_keep_the_owner_of_the_state_directory() {
    let home = Home::new();
    if !give_state_to_account(&home) {
        return;
    }
    home.token(&["new", "alice"]);
    assert_owned_by_account(&home, &["identity.pem", "tokens.toml"]);
    home.token(&["new", "bob", "--export", "data"]);
    home.token(&["remove", "alice"]);
    assert_owned_by_account(&home, &["identity.pem", "tokens.toml"]);
}

#[test]
fn site_of_root_keeps_the_owner_of_the_state_directory() {
    let home = Home::new();
    if !give_state_to_account(&home) {
        return;
    }
    let token = home.token(&["new", "me"]);
    let site = home.site(&["--http", "127.0.0.1:0"]);
    fs::write(home.data().join("old"), "old").unwrap();
    let bearer = format!("Authorization: Bearer {token}");
    let url = |name: &str| format!("{}/data/{name}", site.http.as_ref().unwrap());
    for (arguments, name, status) in [
        (&["-X", "LOCK", "-d", LOCK][..], "new", 201),
        (&["-X", "DELETE"], "old", 204),
    ] {
        let arguments = [&["-H", &bearer], arguments].concat();
        assert_eq!(curl(&arguments, &url(name)).0, status, "{name}");
    }
    assert_owned_by_account(&home, &["exports", "locks.json", "changes-", "claims-"]);
}

#[test]
fn names_a_new_state_directory_that_nobody_has_given() {
    let folder = tempfile::tempdir().unwrap();
    let new_token = |name: &str| {
        let mut command = Command::new(longhaul_testprograms::longhaul());
        command.args(["site", "token", "new", name]);
        command.env_remove("STATE_DIRECTORY");
        let output = command.env("XDG_STATE_HOME", folder.path()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let message = new_token("alice");
    let state = folder.path().join("longhaul/site");
    assert!(message.contains(state.to_str().unwrap()), "{message}");
    assert!(message.contains("--state"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert_eq!(new_token("bob"), "");
    // A directory that was given is no surprise.
    let output = Home::new().token_command(&["new", "alice"]);
    assert_eq!(output.stderr, b"", "{output:?}");
}

/// Starts a site that does not have root's right to write to any directory.
fn spawn_without_override(command: Command) -> SiteProcess {
    let spawn = move || {
        if geteuid().is_root() {
            // The thread's children inherit its bounding set.
            remove_capability_from_bounding_set(CapabilitySet::DAC_OVERRIDE).unwrap();
        }
        SiteProcess::spawn(command)
    };
    thread::spawn(spawn).join().unwrap()
}

#[test]
fn warns_at_start_of_exports_that_it_cannot_write() {
    let home = Home::new();
    let open = tempfile::tempdir().unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    let (closed, open) = (
        format!("closed={}", home.data().display()),
        format!("open={}", open.path().display()),
    );
    fs::set_permissions(home.data(), fs::Permissions::from_mode(0o555)).unwrap();
    let mut command = home.command(&["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    command.args(["--export-ro", &closed, "--export", &open]);
    command.stderr(log.reopen().unwrap());
    let site = spawn_without_override(command);
    wait_until(|| !site.http_processes().is_empty());
    assert!(site.end(Signal::TERM).success());
    let text = fs::read_to_string(log.path()).unwrap();
    let warnings: Vec<_> = text.lines().filter(|l| l.contains("export ")).collect();
    let [warning] = warnings[..] else {
        panic!("{text}");
    };
    for part in [
        "export data",
        home.data().to_str().unwrap(),
        "chown",
        "--export-ro",
    ] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
}

#[test]
fn reports_its_state_to_the_service_manager() {
    let home = Home::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    let receive = || {
        let mut bytes = [0; 4096];
        let len = manager.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    };
    let mut command = home.command(&["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", &path);
    let site = SiteProcess::spawn(command);
    let ready = receive();
    let status = ready.lines().find_map(|line| line.strip_prefix("STATUS="));
    let status = status.unwrap_or_else(|| panic!("{ready}"));
    assert!(ready.lines().any(|line| line == "READY=1"), "{ready}");
    let (address, http) = (site.address.to_string(), site.http.clone().unwrap());
    for part in [address.as_str(), &http, "data"] {
        assert!(status.contains(part), "{part}: {status}");
    }
    site.end(Signal::TERM);
    let stopping = receive();
    assert!(stopping.contains("STOPPING=1"), "{stopping}");
}

#[test]
fn names_its_processes_longhaul() {
    let home = Home::new();
    let site = home.site(&["--http", "127.0.0.1:0"]);
    wait_until(|| !site.http_processes().is_empty());
    for pid in site.http_processes() {
        let arguments = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        assert_eq!(arguments.split('\0').next(), Some("longhaul"));
    }
}
