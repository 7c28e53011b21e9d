// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul site --mirror`: changes in an export soon reach the other site. It does not matter how the data came into the
//! export, or whether one of the sites was killed meanwhile. Records report the state of the mirror.

use crate::site_process::{Client, Home, SiteProcess, listing, make_tree, wait_for_exit};
use rustix::process::Signal;
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// An interval longer than any test.
const NEVER: &str = "1000000s";

/// Site and the site that it mirrors to.
struct MirrorPair {
    near: Home,
    far: Home,
    far_process: Option<SiteProcess>,
    /// The near site as a client of the far site: its token.
    client: Client,
    token: String,
}

impl MirrorPair {
    fn new() -> Self {
        let (near, far) = (Home::new(), Home::new());
        let token = far.token(&["new", "near"]);
        let far_process = far.site(&[]);
        let client = Client::with_tokens(&[(&far_process, &token)]);
        Self {
            near,
            far,
            far_process: Some(far_process),
            client,
            token,
        }
    }

    fn far_site(&self) -> &SiteProcess {
        self.far_process.as_ref().unwrap()
    }

    /// Starts the near site with additional arguments.
    fn start_near(&self, every: &str, arguments: &[&str]) -> SiteProcess {
        let to = format!("data={}", self.far_site().at(""));
        let mirror = [
            "--listen",
            "127.0.0.1:0",
            "--mirror",
            &to,
            "--mirror-interval",
            every,
        ];
        let mut command = self.near.command(&[&mirror, arguments].concat());
        self.client.set_environment(&mut command);
        SiteProcess::spawn(command)
    }

    fn assert_in_sync(&self) {
        assert_eq!(listing(&self.far.data()), listing(&self.near.data()));
    }
}

#[test]
fn mirrors_changes_through_the_site_at_once() {
    let pair = MirrorPair::new();
    make_tree(&pair.near.data().join("before"));
    let site = pair.start_near(NEVER, &["--http", "127.0.0.1:0"]);
    let synced = site.wait_for("synced");
    assert_eq!(synced["export"], "data");
    assert_eq!(synced["target"], pair.far_site().at(""));
    pair.assert_in_sync();
    // Through a copy.
    let token = pair.near.token(&["new", "me"]);
    let folder = tempfile::tempdir().unwrap();
    make_tree(&folder.path().join("more"));
    let more = folder.path().join("more");
    Client::with_tokens(&[(&site, &token)]).copy(&[more.to_str().unwrap(), &site.at("")]);
    assert_eq!(site.wait_for("synced")["entries"], 8);
    pair.assert_in_sync();
    // Through HTTP.
    let url = format!("{}/data/file", site.http.as_ref().unwrap());
    let put = more.join("a/small");
    let curl = Command::new("curl")
        .args([
            "-sfT",
            put.to_str().unwrap(),
            "-u",
            &format!("me:{token}"),
            &url,
        ])
        .status();
    assert!(curl.unwrap().success());
    site.wait_for("synced");
    assert!(pair.far.data().join("file").exists());
}

/// A mirrored export may contain the directory of another export. Changes through either are mirrored.
#[test]
fn mirrors_changes_through_a_nested_export_at_once() {
    let pair = MirrorPair::new();
    fs::create_dir(pair.near.data().join("dir")).unwrap();
    let inner = format!("inner={}", pair.near.data().join("dir").display());
    let site = pair.start_near(NEVER, &["--http", "127.0.0.1:0", "--export", &inner]);
    site.wait_for("synced");
    let token = pair.near.token(&["new", "me"]);
    let bearer = format!("Authorization: Bearer {token}");
    let url = format!("{}/inner/file", site.http.as_ref().unwrap());
    let put = ["-H", &bearer, "-X", "PUT", "-d", "x"];
    assert_eq!(crate::site_process::web::curl(&put, &url).0, 201);
    site.wait_for("synced");
    assert!(pair.far.data().join("dir/file").exists());
}

#[test]
fn mirrors_changes_of_other_programs() {
    let pair = MirrorPair::new();
    let site = pair.start_near("200ms", &["--mirror-delete"]);
    site.wait_for("synced");
    make_tree(&pair.near.data().join("tree"));
    // A scan may find the tree half-written.
    while listing(&pair.far.data()) != listing(&pair.near.data()) {
        site.wait_for("synced");
    }
    fs::remove_dir_all(pair.near.data().join("tree/a")).unwrap();
    while pair.far.data().join("tree/a").exists() {
        site.wait_for("synced");
    }
    pair.assert_in_sync();
}

/// At the next start, the disk of the export is not mounted: its mount point is empty.
#[test]
fn removes_nothing_if_the_export_is_another_directory() {
    let pair = MirrorPair::new();
    for number in 0..5 {
        fs::write(pair.near.data().join(number.to_string()), "x").unwrap();
    }
    let site = pair.start_near(NEVER, &["--mirror-delete"]);
    site.wait_for("synced");
    assert!(site.end(Signal::TERM).success());
    let away = pair.near.data().with_file_name("away");
    fs::rename(pair.near.data(), &away).unwrap();
    fs::create_dir(pair.near.data()).unwrap();
    let site = pair.start_near("100ms", &["--mirror-delete"]);
    let lagging = site.wait_for("lagging");
    let reason = lagging["reason"].as_str().unwrap();
    assert!(reason.contains("is its disk mounted?"), "{reason}");
    // Other files are no proof either.
    fs::write(pair.near.data().join("another"), "x").unwrap();
    site.wait_for("lagging");
    assert_eq!(listing(&pair.far.data()), listing(&away));
    // The disk is mounted while the site runs.
    fs::remove_dir_all(pair.near.data()).unwrap();
    fs::rename(&away, pair.near.data()).unwrap();
    fs::remove_file(pair.near.data().join("0")).unwrap();
    site.wait_for("synced");
    while pair.far.data().join("0").exists() {
        site.wait_for("synced");
    }
    pair.assert_in_sync();
}

/// Files of the export disappear, by whatever accident, while the site runs.
#[test]
fn mirror_that_would_remove_most_lags_until_allowed() {
    let pair = MirrorPair::new();
    for number in 0..20 {
        fs::write(pair.near.data().join(number.to_string()), "x").unwrap();
    }
    let site = pair.start_near("100ms", &["--mirror-delete"]);
    site.wait_for("synced");
    for number in 5..20 {
        fs::remove_file(pair.near.data().join(number.to_string())).unwrap();
    }
    let mut reason = String::new();
    while !reason.contains("15 of 20 entries") {
        reason = site.wait_for("lagging")["reason"].to_string();
    }
    assert!(
        reason.contains("--mirror-max-delete 15 allows it"),
        "{reason}"
    );
    assert!(pair.far.data().join("19").exists());
    assert!(site.end(Signal::TERM).success());
    let allowed = [
        "--mirror-delete",
        "--mirror-max-delete",
        "15",
        "--mirror-trash",
        "1d",
    ];
    let site = pair.start_near(NEVER, &allowed);
    site.wait_for("synced");
    pair.assert_in_sync();
    let trash = pair.far.data().join(".longhaul-trash");
    let kept = fs::read_dir(trash).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::read_dir(kept).unwrap().count(), 15);
}

/// A user who may write to the parent directory may have created the link.
#[test]
fn mirrors_nothing_through_a_link() {
    let pair = MirrorPair::new();
    let site = pair.start_near("200ms", &[]);
    site.wait_for("synced");
    let elsewhere = pair.near.data().with_file_name("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("secret"), "x").unwrap();
    fs::rename(pair.near.data(), pair.near.data().with_file_name("away")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, pair.near.data()).unwrap();
    while !site.wait_for("lagging")["reason"]
        .as_str()
        .unwrap()
        .contains("symbolic link")
    {}
    assert!(!pair.far.data().join("secret").exists());
}

#[test]
fn removes_nothing_without_mirror_delete() {
    let pair = MirrorPair::new();
    fs::write(pair.far.data().join("theirs"), "x").unwrap();
    fs::write(pair.near.data().join("ours"), "x").unwrap();
    let site = pair.start_near(NEVER, &[]);
    site.wait_for("synced");
    assert!(pair.far.data().join("theirs").exists());
    assert!(pair.far.data().join("ours").exists());
}

#[test]
fn mirrors_after_either_site_was_down() {
    let mut pair = MirrorPair::new();
    let address = pair.far_site().address.to_string();
    let site = pair.start_near("100ms", &[]);
    site.wait_for("synced");
    // The far site is down.
    pair.far_process.take().unwrap().end(Signal::KILL);
    site.wait_for("lagging");
    fs::write(pair.near.data().join("file"), vec![1; 20 << 20]).unwrap();
    pair.far_process = Some(SiteProcess::spawn(
        pair.far.command(&["--listen", &address]),
    ));
    site.wait_for("synced");
    while listing(&pair.far.data()) != listing(&pair.near.data()) {
        site.wait_for("synced");
    }
    // The near site is killed with its copies, and restarted.
    fs::write(pair.near.data().join("more"), vec![2; 60 << 20]).unwrap();
    let copies = site.child_processes();
    site.end(Signal::KILL);
    for copy in copies {
        wait_for_exit(copy);
    }
    let site = pair.start_near(NEVER, &[]);
    site.wait_for("synced");
    pair.assert_in_sync();
    assert!(site.end(Signal::TERM).success());
}

#[test]
fn refuses_invalid_mirrors() {
    let pair = MirrorPair::new();
    let refused = |arguments: &[&str]| {
        let mut command = pair.near.command(arguments);
        pair.client.set_environment(&mut command);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        message
    };
    let to = pair.far_site().at("");
    assert!(refused(&["--mirror", &format!("other={to}")]).contains("no export of that name"));
    assert!(refused(&["--mirror", "data=/srv"]).contains("want NAME=longhaul://"));
    assert!(refused(&["--mirror", "data=longhaul://x"]).contains("no export"));
    let message = refused(&["--mirror", "data=longhaul://elsewhere/data"]);
    assert!(message.contains("no token for elsewhere"), "{message}");
    assert!(refused(&["--mirror-delete"]).contains("--mirror"));
    assert!(!Path::new(&pair.near.state()).exists());
    // The token does not cover the export: the site runs, and reports it.
    pair.far.token(&["remove", "near"]);
    let site = pair.start_near(NEVER, &[]);
    let lagging = site.wait_for("lagging");
    assert!(
        lagging["reason"]
            .as_str()
            .unwrap()
            .contains("not valid at this site"),
        "{lagging}"
    );
    let message = serde_json::to_string(&lagging).unwrap();
    assert!(!message.contains(&pair.token));
}
