// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exports of `longhaul site` over HTTP and WebDAV, requested with curl.

use crate::site_process::{
    Home, make_tree,
    web::{Web, curl, names, wait_until},
};
use std::{
    fs::{self, Permissions},
    io::Read,
    net::Shutdown,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    process::Command,
};

#[test]
fn serves_whole_files_and_ranges() {
    let web = Web::new();
    make_tree(&web.data("tree"));
    let large = fs::read(web.data("tree/a/b/large")).unwrap();
    assert_eq!(web.curl(&[], "/data/tree/a/b/large"), (200, large.clone()));
    assert_eq!(
        web.curl(&["-r", "5-999"], "/data/tree/a/b/large"),
        (206, large[5..1000].to_vec())
    );
    let end = large.len() - 9;
    for (range, from) in [
        ("0-18446744073709551615".to_owned(), 0),
        ("1-18446744073709551615".to_owned(), 1),
        (format!("{end}-18446744073709551615"), end),
        ("3-99999999999999999999".to_owned(), 3),
        ("-18446744073709551615".to_owned(), 0),
    ] {
        let (status, bytes) = web.curl(&["-r", &range], "/data/tree/a/b/large");
        assert!(status == 206 && bytes == large[from..], "{range}: {status}");
    }
    assert_eq!(
        web.curl(&["-r", "-7"], "/data/tree/a/b/large").1,
        large[large.len() - 7..]
    );
    assert_eq!(
        web.status(&["-r", "99999999-"], "/data/tree/a/b/large"),
        416
    );
    assert_eq!(web.curl(&[], "/data/tree/empty"), (200, Vec::new()));
    let (status, head) = web.text(&["--head"], "/closed/tree/a/b/large");
    assert_eq!(status, 200);
    assert!(
        head.contains("content-length: 9437184") && head.contains("accept-ranges: bytes"),
        "{head}"
    );
    assert!(head.contains("content-security-policy: sandbox"), "{head}");
    // An interrupted download resumes, unless the file has changed.
    let here = web.home.data().parent().unwrap().join("here");
    fs::write(&here, &large[..1234]).unwrap();
    web.curl(
        &["-C", "-", "-o", here.to_str().unwrap()],
        "/data/tree/a/b/large",
    );
    assert_eq!(fs::read(&here).unwrap(), large);
    let etag = head
        .lines()
        .find_map(|line| line.strip_prefix("etag: "))
        .unwrap();
    let same = format!("If-None-Match: {etag}");
    assert_eq!(web.status(&["-H", &same], "/data/tree/a/b/large"), 304);
    fs::write(web.data("tree/a/b/new"), &large).unwrap();
    fs::rename(web.data("tree/a/b/new"), web.data("tree/a/b/large")).unwrap();
    let part = format!("If-Range: {etag}");
    assert_eq!(
        web.status(&["-H", &part, "-r", "5-9"], "/data/tree/a/b/large"),
        200
    );
}

#[test]
fn lists_directories_as_html_and_xml() {
    let web = Web::new();
    make_tree(&web.data("tree"));
    fs::write(web.data("tree/a/<b>"), "x").unwrap();
    fs::write(web.data("tree/a/.longhaul-0.part"), "x").unwrap();
    let page = web.text(&[], "/data/tree/a/").1;
    assert!(
        page.contains("small") && page.contains("&lt;b&gt;"),
        "{page}"
    );
    assert!(
        !page.contains("longhaul-") && !page.contains("link"),
        "{page}"
    );
    let arguments = ["-X", "PROPFIND", "-H", "Depth: 1"];
    let (status, list) = web.text(&arguments, "/data/tree/a/");
    assert_eq!(status, 207);
    assert_eq!(list.matches("<D:href>").count(), 4, "{list}");
    assert!(list.contains("<D:getcontentlength>1000<"), "{list}");
    let all = [
        "-X",
        "PROPFIND",
        "-H",
        "Depth: infinity",
        "-H",
        "X-Litmus: x",
    ];
    let (status, text) = web.text(&all, "/data/");
    assert_eq!(status, 403, "{text}");
    assert!(text.contains("<D:propfind-finite-depth/>"), "{text}");
}

#[test]
fn lists_permitted_exports_at_the_root() {
    let web = Web::new();
    let (status, page) = web.text(&[], "/");
    assert_eq!(status, 200);
    for link in ["href=\"/data/\"", "href=\"/closed/\""] {
        assert!(page.contains(link), "{page}");
    }
    let one = web.home.token(&["new", "one", "--export", "closed"]);
    let (_, page) = curl(
        &["-H", &format!("Authorization: Bearer {one}")],
        &web.url("/"),
    );
    let page = String::from_utf8(page).unwrap();
    assert!(
        page.contains("/closed/") && !page.contains("/data/"),
        "{page}"
    );
    assert_eq!(curl(&[], &web.url("/")).0, 401);
    for other in [&["-X", "DELETE"][..], &["-X", "PUT", "-d", "x"]] {
        assert!(web.status(other, "/") >= 400, "{other:?}");
    }
}

#[test]
fn stores_uploads_atomically() {
    let web = Web::new();
    let here = web.home.data().parent().unwrap().join("here");
    let contents: Vec<u8> = (0..3 << 20).map(|at: u32| (at % 251) as u8).collect();
    fs::write(&here, &contents).unwrap();
    let put = ["-T", here.to_str().unwrap()];
    assert_eq!(web.status(&put, "/data/file"), 201);
    fs::set_permissions(web.data("file"), Permissions::from_mode(0o640)).unwrap();
    assert_eq!(web.status(&put, "/data/file"), 204);
    assert_eq!(fs::read(web.data("file")).unwrap(), contents);
    let mode = fs::metadata(web.data("file")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o640);
    // A PUT without a length works, too.
    let chunked = [&put[..], &["-H", "Transfer-Encoding: chunked"]].concat();
    assert_eq!(web.status(&chunked, "/data/chunked"), 201);
    assert_eq!(fs::read(web.data("chunked")).unwrap(), contents);
    assert_eq!(web.status(&put, "/data/no/such/file"), 409);
    let part = [&put[..], &["-H", "Content-Range: bytes 5-3145732/9999999"]].concat();
    assert_eq!(web.status(&part, "/data/file"), 400);
    for (length, half) in [
        ("Content-Length: 1000\r\n", "half"),
        ("Transfer-Encoding: chunked\r\n", "4\r\nhalf\r\n"),
    ] {
        interrupt_upload(&web, length, half);
        assert_eq!(fs::read(web.data("file")).unwrap(), contents);
    }
    assert_eq!(names(&web.home.data()), ["chunked", "file"]);
}

/// Sends half of a file, waits until it has arrived, and disconnects.
fn interrupt_upload(web: &Web, length: &str, half: &str) {
    let mut socket = web.send("PUT /data/file", length, half);
    let is_under_way = || {
        let names = names(&web.home.data());
        names.iter().any(|name| name.ends_with(".put"))
    };
    wait_until(is_under_way);
    socket.shutdown(Shutdown::Write).unwrap();
    let _ = socket.read_to_end(&mut Vec::new());
    wait_until(|| !is_under_way());
}

#[test]
fn creates_moves_copies_and_removes_directories() {
    let web = Web::new();
    assert_eq!(web.status(&["-X", "MKCOL"], "/data/dir"), 201);
    let (status, response) = web.text(&["-i", "-X", "MKCOL"], "/data/dir");
    assert!(
        status == 405 && response.contains("allow: OPTIONS, GET"),
        "{response}"
    );
    assert_eq!(web.status(&["-X", "MKCOL"], "/data/no/dir"), 409);
    fs::write(web.data("dir/file"), "x").unwrap();
    // The manifest of a copy into it.
    fs::write(web.data("dir/.longhaul-manifest"), "").unwrap();
    symlink("../nowhere", web.data("dir/link")).unwrap();
    let to = |path: &str| format!("Destination: {}", web.url(path));
    assert_eq!(
        web.status(&["-X", "COPY", "-H", &to("/data/copied")], "/data/dir/file"),
        201
    );
    assert_eq!(fs::read_to_string(web.data("copied")).unwrap(), "x");
    assert_eq!(
        web.status(&["-X", "MOVE", "-H", &to("/data/moved")], "/data/dir"),
        201
    );
    assert_eq!(names(&web.home.data()), ["copied", "moved"]);
    assert_eq!(web.status(&["-X", "DELETE"], "/data/moved"), 204);
    assert_eq!(names(&web.home.data()), ["copied"]);
    // A directory with an active copy stays.
    fs::create_dir(web.data("busy")).unwrap();
    fs::write(web.data("busy/.longhaul-0.part"), "").unwrap();
    assert!(web.status(&["-X", "DELETE"], "/data/busy") >= 400);
    assert_eq!(names(&web.data("busy")), [".longhaul-0.part"]);
}

#[test]
fn serves_nothing_outside_the_export() {
    let web = Web::new();
    let outside = web.home.data().parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    symlink("../outside", web.data("link")).unwrap();
    symlink("../outside/secret", web.data("file")).unwrap();
    fs::write(web.data(".longhaul-0.part"), "secret").unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        web.data("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let here = outside.join("here");
    fs::write(&here, "x").unwrap();
    let put = ["-T", here.to_str().unwrap()];
    for path in [
        "/data/link/secret",
        "/data/file",
        "/data/.longhaul-0.part",
        "/data/fifo",
        "/data/../outside/secret",
        "/data/%2e%2e/outside/secret",
        "/data/..%2foutside/secret",
        "/data/%2fetc/passwd",
        "//etc/passwd",
        "/../data",
        "/none/x",
    ] {
        for arguments in [
            &[][..],
            &["--head"],
            &put,
            &["-X", "DELETE"],
            &["-X", "MKCOL"],
            &["-X", "PROPFIND"],
        ] {
            // MKCOL of an existing name is 405, and no status is 2xx.
            let (status, text) = web.curl(arguments, path);
            assert!(status >= 400, "{arguments:?} {path}: {status}");
            assert!(
                !String::from_utf8_lossy(&text).contains("secret\n"),
                "{path}"
            );
        }
        let to = format!("Destination: {}", web.url(path));
        fs::write(web.data("plain"), "x").unwrap();
        let moved = web.status(&["-X", "MOVE", "-H", &to], "/data/plain");
        assert!(moved >= 400, "MOVE to {path}: {moved}");
    }
    assert_eq!(
        fs::read_to_string(outside.join("secret")).unwrap(),
        "secret"
    );
    assert_eq!(names(&outside), ["here", "secret"]);
    assert_eq!(
        names(&web.home.data()),
        [".longhaul-0.part", "fifo", "file", "link", "plain"]
    );
}

/// Requests that can't be parsed do not stop the site.
#[test]
fn responds_to_invalid_requests() {
    let web = Web::new();
    fs::write(web.data("file"), "x").unwrap();
    let to = |to: &str| format!("Destination: {to}");
    for (destination, status) in [
        ("/data", 403),
        ("/data/", 403),
        ("/data//", 403),
        ("/", 403),
        ("*", 400),
        ("x", 400),
        ("/closed/x", 502),
        ("/data/%2e%2e/x", 400),
    ] {
        for method in ["MOVE", "COPY"] {
            let arguments = ["-X", method, "-H", &to(destination)];
            assert_eq!(
                web.status(&arguments, "/data/file"),
                status,
                "{destination}"
            );
        }
    }
    for header in [
        "If-Match: \"",
        "If: ((",
        "Range: x",
        "Depth: 7",
        "Timeout: x",
    ] {
        for method in [
            "GET",
            "PROPFIND",
            "LOCK",
            "UNLOCK",
            "PROPPATCH",
            "REPORT",
            "DELETE",
        ] {
            let arguments = ["-X", method, "-H", header, "-d", "<a"];
            let (status, _) = web.curl(&arguments, "/data/nothing");
            assert!(
                status >= 400 && status != 500,
                "{method} {header}: {status}"
            );
        }
    }
    assert_eq!(web.curl(&[], "/data/file"), (200, b"x".to_vec()));
    assert_eq!(names(&web.home.data()), ["file"]);
}

#[test]
fn read_only_tokens_change_nothing() {
    let web = Web::new();
    fs::write(web.data("file"), "x").unwrap();
    let reader = web.home.token(&["new", "reader", "--read-only"]);
    let bearer = format!("Authorization: Bearer {reader}");
    let file = web.data("file");
    let to = ["Destination: /data/other", "Destination: /closed/other"];
    let requests = [
        &["-T", file.to_str().unwrap()][..],
        &["-X", "DELETE"],
        &["-X", "MOVE", "-H", to[0]],
        &["-X", "MOVE", "-H", to[1]],
        &["-X", "COPY", "-H", to[0]],
        &["-X", "COPY", "-H", to[1]],
    ];
    for arguments in requests {
        let status = web.status(arguments, "/closed/file");
        assert!(status >= 400, "{arguments:?}: {status}");
        let arguments = [&["-H", &bearer], arguments].concat();
        let (status, _) = curl(&arguments, &web.url("/data/file"));
        assert!(status >= 400, "{arguments:?}: {status}");
    }
    assert_eq!(web.status(&["-X", "MKCOL"], "/closed/dir"), 403);
    assert_eq!(
        curl(&["-H", &bearer], &web.url("/data/file")),
        (200, b"x".to_vec())
    );
    assert_eq!(names(&web.home.data()), ["file"]);
}

#[test]
fn requires_a_token() {
    let web = Web::new();
    fs::write(web.data("file"), "x").unwrap();
    let other = web.home.token(&["new", "other", "--export", "closed"]);
    let stranger = Home::new().token(&["new", "me"]);
    let (key, _) = web.token.rsplit_once('.').unwrap();
    let (_, secret) = stranger.rsplit_once('.').unwrap();
    let basic = |token: &str| curl(&["-u", &format!("me:{token}")], &web.url("/data/file")).0;
    assert_eq!(curl(&[], &web.url("/data/file")).0, 401);
    assert_eq!(basic(&web.token), 200);
    assert_eq!(basic(&other), 404);
    assert_eq!(basic(&stranger), 401);
    assert_eq!(basic(&format!("{key}.{secret}")), 401);
    assert_eq!(basic("x"), 401);
    web.home.token(&["remove", "me"]);
    assert_eq!(web.status(&[], "/data/file"), 401);
}

#[test]
fn serves_https_with_the_site_key() {
    let web = Web::new();
    fs::write(web.data("file"), "x").unwrap();
    let url = format!("{}/data/file", web.site.https.as_ref().unwrap());
    let user = format!("me:{}", web.token);
    let pin = format!(
        "sha256//{}=",
        web.site.fingerprint.replace('-', "+").replace('_', "/")
    );
    let with = |pin: &str| curl(&["--insecure", "--pinnedpubkey", pin, "-u", &user], &url);
    assert_eq!(with(&pin), (200, b"x".to_vec()));
    assert_eq!(
        with("sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=").0,
        0
    );
    assert_eq!(curl(&["-u", &user], &url).0, 0, "nobody vouches for it");
}

#[test]
fn serves_the_configured_certificate() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let home = Home::new();
    let file = home.data().parent().unwrap().join("cert.pem");
    fs::write(&file, made.cert.pem() + &made.signing_key.serialize_pem()).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let file = file.to_str().unwrap();
    let token = home.token(&["new", "me"]);
    let site = home.site(&["--https", "127.0.0.1:0", "--certificate", file]);
    let url = site
        .https
        .clone()
        .unwrap()
        .replace("127.0.0.1", "localhost")
        + "/data/";
    let user = format!("me:{token}");
    assert_eq!(curl(&["-4", "--cacert", file, "-u", &user], &url).0, 200);
}

/// Returns the message of a site that refuses to start.
fn refusal_message(home: &Home, arguments: &[&str]) -> String {
    let mut command = Command::new("timeout");
    let site = home.command(arguments);
    command
        .arg("60")
        .arg(site.get_program())
        .args(site.get_args());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    text
}

#[test]
fn refuses_readable_or_exported_keys() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let home = Home::new();
    let [outside, inside] = ["../cert.pem", "cert.pem"].map(|name| {
        let file = home.data().join(name);
        fs::write(&file, made.cert.pem() + &made.signing_key.serialize_pem()).unwrap();
        file
    });
    let with = |file: &Path, mode: u32| {
        fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
        let file = file.to_str().unwrap();
        refusal_message(&home, &["--https", "127.0.0.1:0", "--certificate", file])
    };
    for mode in [0o644, 0o640, 0o604] {
        let text = with(&outside, mode);
        assert!(text.contains("others may read it"), "{text}");
        assert!(text.contains("chmod 600"), "{text}");
    }
    let text = with(&inside, 0o600);
    assert!(text.contains("export data"), "{text}");
    assert!(!Path::new(&home.state()).exists());
}

#[test]
fn refuses_to_export_key_and_tokens() {
    let home = Home::new();
    let top = home.data().parent().unwrap().to_owned();
    let link = top.join("link");
    symlink(&top, &link).unwrap();
    // The state directory does not exist yet, exists, and is the export itself.
    let check = |export: &Path| {
        for kind in ["--export", "--export-ro"] {
            let export = format!("all={}", export.display());
            let text = refusal_message(&home, &["--listen", "127.0.0.1:0", kind, &export]);
            assert!(
                text.contains("export all") && text.contains("--state"),
                "{text}"
            );
        }
    };
    for export in [&top, &link, Path::new("/")] {
        check(export);
    }
    home.token(&["new", "me"]);
    let below = Path::new(&home.state()).join("below");
    fs::create_dir(&below).unwrap();
    for export in [&top, Path::new(&home.state()), &below] {
        check(export);
    }
}

#[test]
fn refuses_unencrypted_or_useless_listeners() {
    let home = Home::new();
    let refused = |arguments: &[&str]| refusal_message(&home, arguments);
    assert!(refused(&["--http", "0.0.0.0:0"]).contains("tokens would be sent unencrypted"));
    assert!(refused(&["--certificate", longhaul_testprograms::longhaul()]).contains("--https"));
    let text = refused(&["--https", "127.0.0.1:0", "--certificate", "/nonexistent"]);
    assert!(text.contains("/nonexistent: No such file"), "{text}");
    let empty = tempfile::NamedTempFile::new().unwrap();
    refused(&[
        "--https",
        "127.0.0.1:0",
        "--certificate",
        empty.path().to_str().unwrap(),
    ]);
    assert!(!Path::new(&home.state()).exists());
}
