// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul site --mirror`: changes in an export soon reach the other site, through any path and after either site
//! was killed, and records report it.

use crate::site_process::{Client, Home, Site, listing, make_tree, wait_for_the_end_of};
use rustix::process::Signal;
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// An interval longer than any test.
const NEVER: &str = "1000000s";

/// Site and the site that it mirrors to.
struct Pair {
    near: Home,
    far: Home,
    there: Option<Site>,
    /// Client of the far site, as which the near site copies.
    client: Client,
    token: String,
}

impl Pair {
    fn new() -> Self {
        let (near, far) = (Home::new(), Home::new());
        let token = far.token(&["new", "near"]);
        let there = far.site(&[]);
        let client = Client::knowing(&[(&there, &token)]);
        Self {
            near,
            far,
            there: Some(there),
            client,
            token,
        }
    }

    fn there(&self) -> &Site {
        self.there.as_ref().unwrap()
    }

    /// Starts the near site with additional arguments.
    fn mirroring(&self, every: &str, arguments: &[&str]) -> Site {
        let to = format!("data={}", self.there().at(""));
        let mirror = [
            "--listen",
            "127.0.0.1:0",
            "--mirror",
            &to,
            "--mirror-every",
            every,
        ];
        let mut command = self.near.command(&[&mirror, arguments].concat());
        self.client.known_to(&mut command);
        Site::spawn(command)
    }

    fn assert_same(&self) {
        assert_eq!(listing(&self.far.data()), listing(&self.near.data()));
    }
}

#[test]
fn mirrors_changes_through_the_site_at_once() {
    let pair = Pair::new();
    make_tree(&pair.near.data().join("before"));
    let site = pair.mirroring(NEVER, &["--http", "127.0.0.1:0"]);
    let arrived = site.says("arrived");
    assert_eq!(arrived["export"], "data");
    assert_eq!(arrived["to"], pair.there().at(""));
    pair.assert_same();
    // Through a copy.
    let token = pair.near.token(&["new", "me"]);
    let folder = tempfile::tempdir().unwrap();
    make_tree(&folder.path().join("more"));
    let more = folder.path().join("more");
    Client::knowing(&[(&site, &token)]).copy(&[more.to_str().unwrap(), &site.at("")]);
    assert_eq!(site.says("arrived")["entries"], 8);
    pair.assert_same();
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
    site.says("arrived");
    assert!(pair.far.data().join("file").exists());
}

/// The export that received the change does not matter.
#[test]
fn mirrors_changes_through_a_nested_export_at_once() {
    let pair = Pair::new();
    fs::create_dir(pair.near.data().join("dir")).unwrap();
    let inner = format!("inner={}", pair.near.data().join("dir").display());
    let site = pair.mirroring(NEVER, &["--http", "127.0.0.1:0", "--export", &inner]);
    site.says("arrived");
    let token = pair.near.token(&["new", "me"]);
    let bearer = format!("Authorization: Bearer {token}");
    let url = format!("{}/inner/file", site.http.as_ref().unwrap());
    let put = ["-H", &bearer, "-X", "PUT", "-d", "x"];
    assert_eq!(crate::site_process::web::curl(&put, &url).0, 201);
    site.says("arrived");
    assert!(pair.far.data().join("dir/file").exists());
}

#[test]
fn mirrors_changes_of_other_programs() {
    let pair = Pair::new();
    let site = pair.mirroring("200ms", &["--mirror-delete"]);
    site.says("arrived");
    make_tree(&pair.near.data().join("tree"));
    // A scan may find it unfinished.
    while listing(&pair.far.data()) != listing(&pair.near.data()) {
        site.says("arrived");
    }
    fs::remove_dir_all(pair.near.data().join("tree/a")).unwrap();
    while pair.far.data().join("tree/a").exists() {
        site.says("arrived");
    }
    pair.assert_same();
}

/// A user who may write to the parent directory may have created the link.
#[test]
fn mirrors_nothing_through_a_link() {
    let pair = Pair::new();
    let site = pair.mirroring("200ms", &[]);
    site.says("arrived");
    let elsewhere = pair.near.data().with_file_name("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("secret"), "x").unwrap();
    fs::rename(pair.near.data(), pair.near.data().with_file_name("away")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, pair.near.data()).unwrap();
    while !site.says("behind")["why"]
        .as_str()
        .unwrap()
        .contains("symbolic link")
    {}
    assert!(!pair.far.data().join("secret").exists());
}

#[test]
fn removes_nothing_without_mirror_delete() {
    let pair = Pair::new();
    fs::write(pair.far.data().join("theirs"), "x").unwrap();
    fs::write(pair.near.data().join("ours"), "x").unwrap();
    let site = pair.mirroring(NEVER, &[]);
    site.says("arrived");
    assert!(pair.far.data().join("theirs").exists());
    assert!(pair.far.data().join("ours").exists());
}

#[test]
fn mirrors_after_either_site_was_down() {
    let mut pair = Pair::new();
    let address = pair.there().address.to_string();
    let site = pair.mirroring("100ms", &[]);
    site.says("arrived");
    // The far site is down.
    pair.there.take().unwrap().end(Signal::KILL);
    site.says("behind");
    fs::write(pair.near.data().join("file"), vec![1; 20 << 20]).unwrap();
    pair.there = Some(Site::spawn(pair.far.command(&["--listen", &address])));
    site.says("arrived");
    while listing(&pair.far.data()) != listing(&pair.near.data()) {
        site.says("arrived");
    }
    // The near site is killed with its copies, and restarted.
    fs::write(pair.near.data().join("more"), vec![2; 60 << 20]).unwrap();
    let copies = site.ends();
    site.end(Signal::KILL);
    for copy in copies {
        wait_for_the_end_of(copy);
    }
    let site = pair.mirroring(NEVER, &[]);
    site.says("arrived");
    pair.assert_same();
    assert!(site.end(Signal::TERM).success());
}

#[test]
fn refuses_invalid_mirrors() {
    let pair = Pair::new();
    let refused = |arguments: &[&str]| {
        let mut command = pair.near.command(arguments);
        pair.client.known_to(&mut command);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        said
    };
    let to = pair.there().at("");
    assert!(refused(&["--mirror", &format!("other={to}")]).contains("no export of that name"));
    assert!(refused(&["--mirror", "data=/srv"]).contains("want NAME=longhaul://"));
    assert!(refused(&["--mirror", "data=longhaul://x"]).contains("no export"));
    let said = refused(&["--mirror", "data=longhaul://elsewhere/data"]);
    assert!(said.contains("no token for elsewhere"), "{said}");
    assert!(refused(&["--mirror-delete"]).contains("--mirror"));
    assert!(!Path::new(&pair.near.state()).exists());
    // The token does not cover the export: the site runs, and reports it.
    pair.far.token(&["remove", "near"]);
    let site = pair.mirroring(NEVER, &[]);
    let behind = site.says("behind");
    assert!(
        behind["why"].as_str().unwrap().contains("not one of its"),
        "{behind}"
    );
    let said = serde_json::to_string(&behind).unwrap();
    assert!(!said.contains(&pair.token));
}
