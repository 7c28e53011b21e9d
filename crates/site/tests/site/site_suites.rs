// SPDX-License-Identifier: MIT OR Apache-2.0
//! Third-party programs against the site's WebDAV: litmus, rclone, cadaver and davfs2.

use crate::site_process::web::{Web, wait_until};
use longhaul_testprograms::{process::is_installed, skip};
use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};
use tempfile::TempDir;

/// Returns the exit status and the output of a command.
fn run(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
#[ignore = "needs WebDAV clients: make test-peers"]
fn passes_litmus() {
    if !is_installed("litmus") {
        return;
    }
    let (web, folder) = (Web::new(), TempDir::new().unwrap());
    let mut litmus = Command::new("litmus");
    litmus.args(["-k", &web.url("/data/"), "me", &web.token]);
    let (succeeded, output) = run(litmus.current_dir(&folder));
    assert!(succeeded, "{output}");
    let summary = |suite: &str| {
        let begin = format!("<- summary for `{suite}': ");
        let found = output.lines().find_map(|line| line.strip_prefix(&begin));
        found
            .unwrap_or_else(|| panic!("{suite}: {output}"))
            .to_owned()
    };
    for suite in ["basic", "copymove", "props", "locks", "http"] {
        let summary = summary(suite);
        assert!(summary.contains(" 0 failed. 100.0%"), "{suite}: {output}");
    }
    assert!(
        !output.contains("SKIPPED") && !output.contains("WARNING"),
        "{output}"
    );
}

#[test]
#[ignore = "needs WebDAV clients: make test-peers"]
fn rclone_syncs_both_directions() {
    if !is_installed("rclone") {
        return;
    }
    let (web, folder) = (Web::new(), TempDir::new().unwrap());
    let source = folder.path().join("source");
    fs::create_dir_all(source.join("a & b/ü#?%")).unwrap();
    for (name, len) in [("empty", 0), ("a & b/one", 1), ("a & b/ü#?%/much", 3 << 20)] {
        fs::write(source.join(name), vec![b'x'; len]).unwrap();
    }
    let rclone = |arguments: &[&str]| {
        let mut command = Command::new("rclone");
        command.args(arguments).env("HOME", folder.path());
        for (name, value) in [
            ("TYPE", "webdav"),
            ("VENDOR", "other"),
            ("URL", &web.url("")),
            ("BEARER_TOKEN", &web.token),
        ] {
            command.env(format!("RCLONE_CONFIG_SITE_{name}"), value);
        }
        let (succeeded, output) = run(&mut command);
        assert!(succeeded, "{arguments:?}: {output}");
        output
    };
    let source = source.to_str().unwrap();
    // The exports are directories at the root.
    assert!(rclone(&["lsf", "site:"]).contains("data/\n"));
    rclone(&["sync", source, "site:data/copy"]);
    rclone(&["check", "--download", source, "site:data/copy"]);
    rclone(&["moveto", "site:data/copy", "site:data/moved"]);
    rclone(&["check", "--download", source, "site:data/moved"]);
    assert!(rclone(&["about", "site:data"]).contains("Free:"));
    rclone(&["purge", "site:data/moved"]);
    assert!(crate::site_process::web::names(&web.home.data()).is_empty());
}

#[test]
#[ignore = "needs WebDAV clients: make test-peers"]
fn cadaver_locks_and_sets_properties() {
    if !is_installed("cadaver") {
        return;
    }
    let (web, folder) = (Web::new(), TempDir::new().unwrap());
    let host = web.url("/data/");
    let login = format!("machine 127.0.0.1 login me password {}\n", web.token);
    let netrc = folder.path().join(".netrc");
    fs::write(&netrc, login).unwrap();
    fs::set_permissions(&netrc, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(folder.path().join("here"), "by cadaver").unwrap();
    let mut cadaver = Command::new("cadaver");
    cadaver
        .arg(&host)
        .env("HOME", folder.path())
        .current_dir(&folder);
    cadaver
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut cadaver = cadaver.spawn().unwrap();
    let commands = "put here there\nlock there\nput here there\npropset there colour blue\npropget there colour\n\
                    unlock there\nmkcol in\nmove there in/there\nls in\ncopy in second\nrmcol in\nquit\n";
    cadaver
        .stdin
        .take()
        .unwrap()
        .write_all(commands.as_bytes())
        .unwrap();
    let output = cadaver.wait_with_output().unwrap();
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.contains("failed"), "{output}");
    assert!(output.contains("blue"), "{output}");
    assert_eq!(fs::read(web.data("second/there")).unwrap(), b"by cadaver");
    assert!(!web.data("in").exists());
}

/// The mount namespace ends with the commands.
#[test]
#[ignore = "needs WebDAV clients: make test-peers"]
fn davfs2_mounts_the_root_and_writes() {
    if !is_installed("mount.davfs")
        || !skip::require_privileged(!skip::is_in_user_namespace(), "davfs2's user")
        || !skip::require(Path::new("/dev/fuse").exists(), "/dev/fuse")
    {
        return;
    }
    let (web, folder) = (Web::new(), TempDir::new().unwrap());
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(at("mount")).unwrap();
    let url = web.url("/");
    fs::write(at("secrets"), format!("{url} me {}\n", web.token)).unwrap();
    fs::set_permissions(at("secrets"), fs::Permissions::from_mode(0o600)).unwrap();
    // Newer kernels request more of a directory at once than fits its buffer.
    let config = format!(
        "buf_size 64\nuse_locks 1\nask_auth 0\nsecrets {}\n",
        at("secrets")
    );
    fs::write(at("config"), config).unwrap();
    let script = format!(
        "set -e; mount --make-rprivate /; mount.davfs -o conf={} {url} {mount} </dev/null; df --output=pcent {mount}; \
         cd {mount}/data; echo hello >new; mkdir dir; mv new dir/moved; cat dir/moved; cd /; umount {mount}",
        at("config"),
        mount = at("mount"),
    );
    let (succeeded, output) = run(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
    assert!(succeeded, "{output}");
    assert!(
        output.contains("hello") && !output.contains("100%"),
        "{output}"
    );
    wait_until(|| fs::read(web.data("dir/moved")).is_ok_and(|read| read == b"hello\n"));
    // The lock was removed.
    assert_eq!(web.status(&["-X", "DELETE"], "/data/dir"), 204);
}
