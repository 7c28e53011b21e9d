// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul site --mirror`: what lands in an export is soon at the other site, whichever way it came and whoever died
//! meanwhile, and the site says so.

use crate::site_process::{Client, Home, Site, listing, make_tree, wait_for_the_end_of};
use rustix::process::Signal;
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// Never, as far as a test is concerned.
const NEVER: &str = "1000000s";

/// A site and the one that has all of it, too.
struct Pair {
    near: Home,
    far: Home,
    there: Option<Site>,
    /// Who the near site is to the far one.
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

    /// The near site, with these arguments, too.
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
fn what_comes_through_the_site_is_copied_on_at_once() {
    let pair = Pair::new();
    make_tree(&pair.near.data().join("before"));
    let site = pair.mirroring(NEVER, &["--http", "127.0.0.1:0"]);
    let arrived = site.says("arrived");
    assert_eq!(arrived["export"], "data");
    assert_eq!(arrived["to"], pair.there().at(""));
    pair.assert_same();
    // By a copy.
    let token = pair.near.token(&["new", "me"]);
    let folder = tempfile::tempdir().unwrap();
    make_tree(&folder.path().join("more"));
    let more = folder.path().join("more");
    Client::knowing(&[(&site, &token)]).copy(&[more.to_str().unwrap(), &site.at("")]);
    assert_eq!(site.says("arrived")["entries"], 8);
    pair.assert_same();
    // By HTTP.
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

/// Whichever export it came through.
#[test]
fn what_comes_through_an_export_in_another_is_copied_on_at_once() {
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
fn what_others_put_there_is_found() {
    let pair = Pair::new();
    let site = pair.mirroring("200ms", &["--mirror-delete"]);
    site.says("arrived");
    make_tree(&pair.near.data().join("tree"));
    // It may be found half made.
    while listing(&pair.far.data()) != listing(&pair.near.data()) {
        site.says("arrived");
    }
    fs::remove_dir_all(pair.near.data().join("tree/a")).unwrap();
    while pair.far.data().join("tree/a").exists() {
        site.says("arrived");
    }
    pair.assert_same();
}

/// Who may write what the export lies in may have put the link there.
#[test]
fn nothing_is_copied_from_where_a_link_leads() {
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
fn nothing_is_removed_unless_that_is_asked_for() {
    let pair = Pair::new();
    fs::write(pair.far.data().join("theirs"), "x").unwrap();
    fs::write(pair.near.data().join("ours"), "x").unwrap();
    let site = pair.mirroring(NEVER, &[]);
    site.says("arrived");
    assert!(pair.far.data().join("theirs").exists());
    assert!(pair.far.data().join("ours").exists());
}

#[test]
fn either_site_may_be_away_for_a_while() {
    let mut pair = Pair::new();
    let address = pair.there().address.to_string();
    let site = pair.mirroring("100ms", &[]);
    site.says("arrived");
    // The other one is away.
    pair.there.take().unwrap().end(Signal::KILL);
    site.says("behind");
    fs::write(pair.near.data().join("file"), vec![1; 20 << 20]).unwrap();
    pair.there = Some(Site::spawn(pair.far.command(&["--listen", &address])));
    site.says("arrived");
    while listing(&pair.far.data()) != listing(&pair.near.data()) {
        site.says("arrived");
    }
    // This one is killed, its copies with it, and begins again.
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
fn a_mirror_that_cannot_be_is_refused() {
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
    // It has a token, but not for that: the site runs, and says so.
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
