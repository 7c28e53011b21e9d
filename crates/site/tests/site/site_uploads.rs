// SPDX-License-Identifier: MIT OR Apache-2.0
//! Terms of uploads, as clients name them: times, digests and lengths; and what the site says about itself.

use crate::site_process::web::Web;
use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

const HELLO: &[&str] = &["-X", "PUT", "-d", "hello"];

fn put(web: &Web, fields: &[&str], name: &str) -> (u16, String) {
    let fields = fields.iter().flat_map(|field| ["-H", field]);
    let arguments: Vec<&str> = HELLO.iter().copied().chain(["-i"]).chain(fields).collect();
    let (status, text) = web.curl(&arguments, name);
    (status, String::from_utf8_lossy(&text).to_ascii_lowercase())
}

/// Time of a file, in seconds since 1970.
fn modified(web: &Web, name: &str) -> u64 {
    let time = fs::metadata(web.data(name)).unwrap().modified().unwrap();
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

#[test]
fn file_has_the_time_that_the_client_names() {
    let web = Web::new();
    for name in ["/data/new", "/data/new"] {
        let (status, response) = put(&web, &["X-OC-Mtime: 981173106"], name);
        assert!(matches!(status, 201 | 204), "{response}");
        assert!(response.contains("x-oc-mtime: accepted"), "{response}");
        assert_eq!(modified(&web, "new"), 981_173_106);
    }
    let (_, response) = put(&web, &[], "/data/new");
    assert!(!response.contains("x-oc-mtime"), "{response}");
    assert!(modified(&web, "new") > 1_700_000_000);
    assert_eq!(put(&web, &["X-OC-Mtime: soon"], "/data/other").0, 400);
    // No file system of ours keeps the year 5138.
    let (status, response) = put(&web, &["X-OC-Mtime: 99999999999"], "/data/far");
    let is_kept = modified(&web, "far") == 99_999_999_999;
    assert_eq!((status, response.contains("x-oc-mtime")), (201, is_kept));
    assert!(!web.data("other").exists());
}

/// The inode of a replaced file is used again, and the client chooses the time.
#[test]
fn entity_tag_differs_for_each_version() {
    let web = Web::new();
    let mut tags = std::collections::HashSet::new();
    for version in 0..6 {
        let body = version.to_string();
        let upload = ["-X", "PUT", "-d", &body, "-H", "X-OC-Mtime: 1000000"];
        assert!(matches!(web.curl(&upload, "/data/file").0, 201 | 204));
        let response = web.text(&["-I"], "/data/file").1;
        let tag = response.lines().find(|line| line.starts_with("etag:"));
        assert!(tags.insert(tag.unwrap().to_owned()), "{response}");
    }
}

#[test]
fn body_that_does_not_match_its_digest_is_not_stored() {
    let web = Web::new();
    let right = "Content-MD5: XUFAKrxLKna5cZ2REBfFkg==";
    assert_eq!(put(&web, &[right], "/data/file").0, 201);
    for wrong in [
        "Content-MD5: XUFAKrxLKna5cZ2REBfFkQ==",
        "OC-Checksum: SHA1:aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434e",
        "Content-Digest: sha-256=:AAAAul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:",
    ] {
        let (status, response) = put(&web, &[wrong], "/data/wrong");
        assert_eq!(status, 400, "{wrong}");
        assert!(response.contains("does not match"), "{response}");
        assert!(!web.data("wrong").exists());
        assert_eq!(put(&web, &[wrong], "/data/file").0, 400);
        assert_eq!(fs::read(web.data("file")).unwrap(), b"hello");
    }
    let announced = ["Transfer-Encoding: chunked", "X-Expected-Entity-Length: 7"];
    let (status, response) = put(&web, &announced, "/data/short");
    assert_eq!(status, 400, "{response}");
    assert!(!web.data("short").exists());
}

/// Known digests of `hello`; longer files are compared with what `PUT` accepts.
#[test]
fn digests_are_sent_on_request() {
    let web = Web::new();
    fs::write(web.data("file"), "hello").unwrap();
    let get = |arguments: &[&str], path: &str| {
        let arguments: Vec<&str> = ["-i"].iter().chain(arguments).copied().collect();
        String::from_utf8_lossy(&web.curl(&arguments, path).1).into_owned()
    };
    const SHA256: &str = "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=";
    for (wanted, digest) in [
        (
            "Want-Digest: adler32, md5;q=0.5",
            "digest: adler32=062c0215",
        ),
        ("Want-Digest: SHA-256", &format!("digest: SHA-256={SHA256}")),
        (
            "Want-Repr-Digest: sha-256=1",
            &format!("repr-digest: sha-256=:{SHA256}:"),
        ),
        (
            "Want-Content-Digest: sha-256=3, md5=1",
            &format!("content-digest: sha-256=:{SHA256}:"),
        ),
    ] {
        for arguments in [&["-H", wanted][..], &["-I", "-H", wanted]] {
            let response = get(arguments, "/data/file");
            assert!(response.contains(digest), "{wanted}: {response}");
        }
    }
    let wants = [
        "-H",
        "Want-Repr-Digest: md5=1",
        "-H",
        "Want-Content-Digest: md5=1",
        "-r",
        "1-2",
    ];
    let part = get(&wants, "/data/file");
    assert!(part.contains("206") && part.ends_with("el"), "{part}");
    assert!(
        part.contains("repr-digest: md5=") && !part.contains("content-digest"),
        "{part}"
    );
    let wants = ["-H", "Want-Digest: md5, sha"];
    for path in ["/data/", "/data/none"] {
        assert!(!get(&wants, path).contains("digest"), "{path}");
    }
    // Longer than what is read at once.
    let long: Vec<u8> = (0..20_000_000_u32).map(|at| (at % 251) as u8).collect();
    let path = web.data("long");
    fs::write(&path, &long).unwrap();
    let response = get(&["-I", "-H", "Want-Digest: sha-512"], "/data/long");
    let digest = response
        .lines()
        .find(|line| line.starts_with("digest: sha-512="));
    let upload = ["-T", path.to_str().unwrap(), "-H", digest.unwrap()];
    assert_eq!(web.curl(&upload, "/data/copy").0, 201);
}

#[test]
fn site_names_its_methods_and_times_of_creation() {
    let web = Web::new();
    for path in ["/data/", "/data/file"] {
        let (_, response) = web.text(&["-i", "-X", "OPTIONS"], path);
        let allowed = response
            .lines()
            .find(|line| line.to_ascii_lowercase().starts_with("allow:"));
        for method in ["GET", "HEAD", "PROPFIND", "PROPPATCH"] {
            assert!(allowed.unwrap().contains(method), "{method}: {response}");
        }
    }
    put(&web, &["X-OC-Mtime: 981173106"], "/data/file");
    let (_, found) = web.text(&["-X", "PROPFIND", "-H", "Depth: 0"], "/data/file");
    let created = fs::metadata(web.data("file")).unwrap().created();
    // Some file systems do not keep it: then the earliest known time.
    let seconds = created.map_or(981_173_106, |time| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        since.unwrap().as_secs()
    });
    let date = Command::new("date")
        .args(["--utc", "+%FT%TZ", "-d", &format!("@{seconds}")])
        .output();
    let date = String::from_utf8(date.unwrap().stdout).unwrap();
    let property = format!("<D:creationdate>{}</D:creationdate>", date.trim());
    assert!(found.contains(&property), "{property}: {found}");
}

/// rclone compares sizes and times: a change of neither is seen only if uploads keep their times.
#[test]
#[ignore = "needs rclone: make test-peers"]
fn rclone_sync_sees_changes_of_the_same_size() {
    let web = Web::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    let sync = || {
        let mut rclone = Command::new("rclone");
        rclone.args([
            "sync",
            "--config",
            "/dev/null",
            "--webdav-vendor",
            "owncloud",
        ]);
        rclone.args([
            "--webdav-url",
            &web.url("/data"),
            "--webdav-bearer-token",
            &web.token,
        ]);
        let synced = rclone
            .arg(folder.path())
            .arg(":webdav:sub")
            .stdin(Stdio::null())
            .output();
        let synced = synced.unwrap();
        assert!(synced.status.success(), "{synced:?}");
        String::from_utf8_lossy(&synced.stderr).into_owned()
    };
    let write = |text: &str, seconds: u64| {
        fs::write(&file, text).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(time)
            .unwrap();
    };
    write("1", 1_700_000_000);
    sync();
    assert_eq!(modified(&web, "sub/f"), 1_700_000_000);
    write("2", 1_700_000_100);
    sync();
    assert_eq!(fs::read(web.data("sub/f")).unwrap(), b"2");
}
