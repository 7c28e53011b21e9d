// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data that WebDAV requests must not lose: the export itself, the parents of a path, and destinations of COPY and
//! MOVE.

use crate::site_process::{
    Home, listing,
    web::{Web, curl, lock_body, names},
};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{self, File, Permissions},
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

/// Creates `p/c/file`, `p/other`, `q/file` and `plain` in the export.
fn web_with_files() -> Web {
    let web = Web::new();
    plant(&web.home.data());
    web
}

fn plant(data: &Path) {
    for (name, contents) in [
        ("p/c/file", "c"),
        ("p/other", "other"),
        ("q/file", "q"),
        ("plain", "plain"),
    ] {
        let path = data.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    fs::write(data.join(".longhaul-0.part"), "part").unwrap();
    symlink("p", data.join("link")).unwrap();
}

fn statuses(web: &Web, arguments: &[&str], path: &str, wanted: &[u16]) {
    let before = listing(&web.home.data());
    let status = web.status_without_curl(arguments, path);
    assert!(wanted.contains(&status), "{arguments:?} {path}: {status}");
    assert_eq!(listing(&web.home.data()), before, "{arguments:?} {path}");
}

const ROOTS: [&str; 5] = ["/data", "/data/", "/data//", "/data?x", "/data/?x"];

#[test]
fn refuses_to_delete_or_move_the_root_of_an_export() {
    let web = web_with_files();
    let to = |path: &str| format!("Destination: {}", web.url(path));
    for root in ROOTS {
        for depth in ["0", "1", "infinity"] {
            let depth = format!("Depth: {depth}");
            statuses(&web, &["-X", "DELETE", "-H", &depth], root, &[403]);
        }
        statuses(&web, &["-X", "DELETE"], root, &[403]);
        for destination in ["/data/p", "/data/new", "/data/p/c", "/data/plain"] {
            for overwrite in ["Overwrite: T", "Overwrite: F"] {
                for method in ["MOVE", "COPY"] {
                    let to = to(destination);
                    let arguments = ["-X", method, "-H", &to, "-H", overwrite];
                    statuses(&web, &arguments, root, &[403]);
                }
            }
        }
    }
}

#[test]
fn refuses_to_create_or_replace_the_root_of_an_export() {
    let web = web_with_files();
    for root in ROOTS {
        statuses(&web, &["-X", "MKCOL"], root, &[405]);
        statuses(&web, &["-X", "PUT", "-d", "x"], root, &[405]);
        let patch = "<D:propertyupdate xmlns:D='DAV:'><D:set><D:prop><D:getetag>x</D:getetag>\
                     </D:prop></D:set></D:propertyupdate>";
        statuses(&web, &["-X", "PROPPATCH", "-d", patch], root, &[207]);
        statuses(&web, &["-X", "POST", "-d", "x"], root, &[405, 501]);
    }
    // All spellings name the same resource.
    for (root, status) in ROOTS.into_iter().zip([200, 423, 423, 423, 423]) {
        let lock = lock_body("exclusive", "me");
        statuses(&web, &["-X", "LOCK", "-d", &lock], root, &[status]);
    }
}

/// A name with a trailing slash names a directory, and not the file of that name.
#[test]
fn refuses_a_trailing_slash_on_files() {
    let web = web_with_files();
    let to = format!("Destination: {}", web.url("/data/new"));
    for method in ["GET", "PROPFIND", "DELETE", "PROPPATCH"] {
        statuses(&web, &["-X", method], "/data/plain/", &[404]);
    }
    for method in ["COPY", "MOVE"] {
        statuses(&web, &["-X", method, "-H", &to], "/data/plain/", &[404]);
    }
    for name in ["plain/", "new/", "p/"] {
        statuses(
            &web,
            &["-X", "PUT", "-d", "x"],
            &format!("/data/{name}"),
            &[409],
        );
    }
    assert_eq!(web.status(&["-X", "DELETE"], "/data/p/"), 204);
}

/// The encoded bytes would be stored as the file, without a record of the coding.
#[test]
fn refuses_content_codings() {
    let web = web_with_files();
    let put = ["-X", "PUT", "-d", "x", "-H"];
    let coded = |header: &'static str| [&put[..], &[header]].concat();
    statuses(
        &web,
        &coded("Content-Encoding: gzip"),
        "/data/plain",
        &[415],
    );
    statuses(
        &web,
        &coded("Transfer-Encoding: gzip, chunked"),
        "/data/plain",
        &[501],
    );
    let plain = coded("Content-Encoding: identity");
    assert_eq!(web.status(&plain, "/data/plain"), 204);
}

#[test]
fn refuses_to_copy_or_move_onto_an_ancestor_or_into_itself() {
    let web = web_with_files();
    let base = web.url("");
    let port = base.rsplit(':').next().unwrap();
    // The source, and a destination that it must not replace.
    for (source, destination) in [
        ("/data/p/c", "/data/p"),
        ("/data/p/c", "/data/p/"),
        ("/data/p/c/", "/data//p"),
        ("/data/p/c", "/data/%70"),
        ("/data/p/c", "/data"),
        ("/data/p/c", "/data/"),
        ("/data/p/c", "/data//"),
        ("/data/p/c", "/"),
        ("/data/p/c/file", "/data/p"),
        ("/data/p/c/file", "/data/p/c"),
        ("/data/p/c/file", "/data/p/c/"),
        ("/data/%70/c/file", "/data/p"),
        ("/data/plain", "/data"),
        ("/data/p", "/data/p"),
        ("/data/p", "/data/p/"),
        ("/data/plain", "/data/plain"),
        ("/data/p", "/data/p/c"),
        ("/data/p", "/data/p/other"),
        ("/data/p", "/data/p/c/new"),
        ("/data/p/", "/data/p/new"),
        ("/data/plain", "/data/plain/x"),
    ] {
        let spelled = [
            destination.to_owned(),
            format!("{base}{destination}"),
            format!("HTTP://127.0.0.1:{port}{destination}"),
            format!("http://me@127.0.0.1:{port}{destination}"),
        ];
        for to in spelled {
            let to = format!("Destination: {to}");
            for overwrite in ["Overwrite: T", "Overwrite: F", "X-None: x"] {
                for method in ["MOVE", "COPY"] {
                    let arguments = ["-X", method, "-H", &to, "-H", overwrite];
                    statuses(&web, &arguments, source, &[403, 409]);
                }
                let arguments = ["-X", "COPY", "-H", &to, "-H", overwrite, "-H", "Depth: 0"];
                statuses(&web, &arguments, source, &[403, 409]);
            }
        }
    }
}

#[test]
fn refuses_destinations_on_other_hosts_and_in_other_exports() {
    let web = web_with_files();
    let base = web.url("");
    let port = base.rsplit(':').next().unwrap();
    for destination in [
        "http://elsewhere.example/data/new",
        "https://elsewhere.example/data/new",
        &format!("http://elsewhere.example:{port}/data/new"),
        "http://127.0.0.1/data/new",
        "http://127.0.0.1:1/data/new",
        &format!("http://127.0.0.1:{port}@elsewhere.example/data/new"),
        "//elsewhere.example/data/new",
        "//data/new",
        "/closed/new",
        &format!("{base}/closed/new"),
        "/closed",
    ] {
        let to = format!("Destination: {destination}");
        for method in ["MOVE", "COPY"] {
            statuses(&web, &["-X", method, "-H", &to], "/data/plain", &[502]);
        }
    }
    for destination in [
        "",
        "*",
        "x",
        "new",
        "data/new",
        "ftp://127.0.0.1/data/new",
        "file:///data/new",
        "/data/new#x",
        "/data/new?x",
        "/data/../new",
        "/data/%2e%2e/new",
        "/data/a%2fb",
        "/data/a%00b",
        "http:\\\\127.0.0.1\\data\\new",
    ] {
        let to = format!("Destination: {destination}");
        for method in ["MOVE", "COPY"] {
            statuses(&web, &["-X", method, "-H", &to], "/data/plain", &[400]);
        }
    }
    let two = ["-H", "Destination: /data/a", "-H", "Destination: /data/b"];
    for method in ["MOVE", "COPY"] {
        let arguments = [&["-X", method][..], &two].concat();
        statuses(&web, &arguments, "/data/plain", &[400]);
        statuses(&web, &["-X", method], "/data/plain", &[400]);
    }
}

#[test]
fn accepts_all_spellings_of_destinations_on_this_host() {
    let web = web_with_files();
    let base = web.url("");
    let port = base.rsplit(':').next().unwrap();
    for (number, destination) in [
        "/data/new".to_owned(),
        "/data//new".to_owned(),
        "/data/%6eew".to_owned(),
        "/data/new/".to_owned(),
        format!("{base}/data/new"),
        format!("hTTp://127.0.0.1:{port}/data/new"),
        format!("https://127.0.0.1:{port}/data/new"),
        format!("http://me:secret@127.0.0.1:{port}/data/new"),
    ]
    .iter()
    .enumerate()
    {
        let to = format!("Destination: {destination}");
        let source = format!("/data/from{number}");
        fs::write(web.home.data().join(&source["/data/".len()..]), "x").unwrap();
        let status = web.status(&["-X", "MOVE", "-H", &to], &source);
        assert_eq!(status, 201, "{destination}");
        assert_eq!(fs::read_to_string(web.data("new")).unwrap(), "x");
        fs::remove_file(web.data("new")).unwrap();
    }
    for (host, destination) in [
        ("a.example", "http://A.example:80/data/new"),
        ("a.example:80", "http://a.example/data/new"),
        ("a.example:443", "https://a.example/data/new"),
    ] {
        let (host, to) = (
            format!("Host: {host}"),
            format!("Destination: {destination}"),
        );
        let arguments = ["-X", "COPY", "-H", &host, "-H", &to];
        assert!([201, 204].contains(&web.status(&arguments, "/data/plain")));
    }
}

/// A header that can't be parsed must not be treated as missing.
#[test]
fn refuses_invalid_overwrite_and_depth() {
    let web = web_with_files();
    for header in [
        "Overwrite: x",
        "Overwrite: false",
        "Overwrite: T, F",
        "Depth: 7",
    ] {
        for method in ["MOVE", "COPY"] {
            let arguments = ["-X", method, "-H", "Destination: /data/q", "-H", header];
            statuses(&web, &arguments, "/data/plain", &[400]);
        }
    }
    for header in ["Depth: 7", "Depth: 1", "Depth: none"] {
        statuses(&web, &["-X", "DELETE", "-H", header], "/data/p", &[400]);
    }
    let twice = ["-X", "DELETE", "-H", "Depth: 0", "-H", "Depth: infinity"];
    statuses(&web, &twice, "/data/p", &[400]);
    for no in ["Overwrite: F", "Overwrite: f"] {
        for method in ["MOVE", "COPY"] {
            let arguments = ["-X", method, "-H", "Destination: /data/q", "-H", no];
            statuses(&web, &arguments, "/data/plain", &[412]);
        }
    }
}

#[test]
fn replaces_destinations() {
    for method in ["COPY", "MOVE"] {
        for (source, destination) in [
            ("plain", "q/file"),
            ("plain", "q"),
            ("p", "q"),
            ("p", "plain"),
            ("p/c", "q"),
        ] {
            let web = web_with_files();
            let contents = |name: &str| {
                if web.data(name).is_dir() {
                    listing(&web.data(name))
                        .into_iter()
                        .map(|(path, what)| (path, what.split(' ').next().unwrap().to_owned()))
                        .collect()
                } else {
                    vec![(PathBuf::new(), fs::read_to_string(web.data(name)).unwrap())]
                }
            };
            let wanted = contents(source);
            let to = format!("Destination: /data/{destination}");
            let status = web.status(&["-X", method, "-H", &to], &format!("/data/{source}"));
            assert_eq!(status, 204, "{method} {source} {destination}");
            assert_eq!(contents(destination), wanted);
            assert_eq!(web.data(source).exists(), method == "COPY");
            let hidden = walk(&web.home.data());
            assert!(hidden.is_empty(), "{hidden:?}");
        }
    }
}

/// Returns internal files below a directory, except the one that existed before.
fn walk(top: &std::path::Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(top).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().contains(".longhaul-") {
            found.extend(Some(path).filter(|path| !path.ends_with("data/.longhaul-0.part")));
        } else if path.is_dir() && !path.is_symlink() {
            found.extend(walk(&path));
        }
    }
    found
}

/// One destination is on another file system, which rename(2) can't reach; one directory has two names.
#[test]
fn keeps_a_destination_that_cannot_be_replaced() {
    let web = web_with_files();
    fs::create_dir(web.data("mount")).unwrap();
    fs::create_dir(web.data("bound")).unwrap();
    let mount = |from: &str, to: &str| {
        let (from, to) = (web.data(from), web.data(to));
        rustix::mount::mount_bind(from, to).unwrap();
    };
    let tmpfs = || {
        let none = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", web.data("mount"), "tmpfs", none, None).unwrap();
    };
    tmpfs();
    mount("p", "bound");
    fs::write(web.data("mount/file"), "mounted").unwrap();
    let undo = Unmounted(vec![web.data("mount"), web.data("bound")]);
    for (source, destination) in [
        // rename(2) can't cross file systems.
        ("mount/file", "plain"),
        ("plain", "mount/file"),
        ("p", "mount/file"),
    ] {
        let to = format!("Destination: /data/{destination}");
        statuses(
            &web,
            &["-X", "MOVE", "-H", &to],
            &format!("/data/{source}"),
            &[502],
        );
    }
    for (source, destination) in [
        ("plain", "mount"),
        ("q", "mount"),
        ("p/c", "bound"),
        ("bound/c", "p"),
    ] {
        let to = format!("Destination: /data/{destination}");
        for method in ["MOVE", "COPY"] {
            statuses(
                &web,
                &["-X", method, "-H", &to],
                &format!("/data/{source}"),
                &[403, 409, 500, 502],
            );
        }
    }
    assert!(walk(&web.home.data()).is_empty());
    drop(undo);
}

struct Unmounted(Vec<PathBuf>);

impl Drop for Unmounted {
    fn drop(&mut self) {
        for path in &self.0 {
            let lazily = rustix::mount::UnmountFlags::DETACH;
            let _ = rustix::mount::unmount(path, lazily);
        }
    }
}

/// An active copy into the destination keeps it in place.
#[test]
fn keeps_a_destination_with_an_active_copy() {
    let web = web_with_files();
    fs::create_dir(web.data("q/deep")).unwrap();
    fs::write(web.data("q/deep/.longhaul-1.part"), "").unwrap();
    for method in ["MOVE", "COPY"] {
        let arguments = ["-X", method, "-H", "Destination: /data/q"];
        statuses(&web, &arguments, "/data/p", &[403, 409, 423]);
    }
    statuses(&web, &["-X", "DELETE"], "/data/q", &[403, 409, 423]);
    assert_eq!(
        walk(&web.home.data()),
        [web.data("q/deep/.longhaul-1.part")]
    );
}

#[test]
fn changes_nothing_for_read_only_tokens_or_through_links() {
    let web = web_with_files();
    let reader = web.home.token(&["new", "reader", "--read-only"]);
    let bearer = format!("Authorization: Bearer {reader}");
    let file = web.data("plain");
    let before = listing(&web.home.data());
    for (export, with) in [("data", Some(&bearer)), ("closed", None)] {
        for path in [
            "", "/", "/p", "/p/", "/p/c", "/plain", "/new", "/link", "/link/c",
        ] {
            for destination in [
                "", "/p", "/q", "/q/file", "/plain", "/new", "/p/c/new", "/link",
            ] {
                let to = format!("Destination: /{export}{destination}");
                for method in ["MOVE", "COPY"] {
                    assert_refused(
                        &web,
                        with,
                        &["-X", method, "-H", &to],
                        &format!("/{export}{path}"),
                    );
                }
            }
            for arguments in [
                &["-X", "DELETE"][..],
                &["-X", "MKCOL"],
                &["-T", file.to_str().unwrap()],
            ] {
                assert_refused(&web, with, arguments, &format!("/{export}{path}"));
            }
        }
    }
    for arguments in [
        &["-X", "DELETE"][..],
        &["-X", "MOVE", "-H", "Destination: /data/new"],
        &["-X", "COPY", "-H", "Destination: /data/new"],
    ] {
        assert_refused(&web, None, arguments, "/data/link/c");
        assert_refused(&web, None, arguments, "/data/link");
    }
    for arguments in [
        &["-X", "DELETE"][..],
        &["-X", "MOVE", "-H", "Destination: /data/new"],
        &["-X", "COPY", "-H", "Destination: /data/new"],
        &["-X", "PUT", "-d", "x"],
        &["-X", "MKCOL"],
    ] {
        assert_refused(&web, None, arguments, "/data/.longhaul-0.part");
    }
    for destination in [
        "/data/.longhaul-0.part",
        "/data/.longhaul-0.x/y",
        "/data/link",
        "/data/link/new",
        "/data/link/c",
    ] {
        let to = format!("Destination: {destination}");
        assert_refused(&web, None, &["-X", "MOVE", "-H", &to], "/data/q");
        assert_refused(&web, None, &["-X", "COPY", "-H", &to], "/data/q");
    }
    assert_eq!(listing(&web.home.data()), before);
}

fn assert_refused(web: &Web, bearer: Option<&String>, arguments: &[&str], path: &str) {
    let status = match bearer {
        Some(bearer) => curl(&[&["-H", bearer][..], arguments].concat(), &web.url(path)).0,
        None => web.status(arguments, path),
    };
    assert!(
        (400..500).contains(&status),
        "{arguments:?} {path}: {status}"
    );
}

/// A path in the copy would be longer than 4096 bytes.
#[test]
fn keeps_a_destination_if_the_copy_is_incomplete() {
    let web = web_with_files();
    let deep: PathBuf = std::iter::repeat_n("d".repeat(250), 16).collect();
    fs::create_dir_all(web.data("tree").join(&deep)).unwrap();
    let long = "n".repeat(200);
    fs::create_dir(web.data(&long)).unwrap();
    fs::rename(web.data("q"), web.data(&long).join("q")).unwrap();
    let to = format!("Destination: /data/{long}/q");
    let status = web.status(&["-X", "COPY", "-H", &to], "/data/tree");
    assert!(status == 207 || status >= 400, "{status}");
    let kept = fs::read_to_string(web.data(&long).join("q/file"));
    assert_eq!(kept.unwrap(), "q");
    assert!(walk(&web.home.data()).is_empty());
}

/// A nested export stays, whichever of the two is accessed.
#[test]
fn keeps_nested_exports() {
    let home = Home::new();
    plant(&home.data());
    let token = home.token(&["new", "me"]);
    let inner = format!("inner={}", home.data().join("p/c").display());
    let site = home.site(&["--export-ro", &inner, "--http", "127.0.0.1:0"]);
    let web = Web { home, site, token };
    for path in ["/data/p", "/data/p/", "/data/p/c", "/data/p/c/"] {
        statuses(&web, &["-X", "DELETE"], path, &[403]);
        let away = ["-X", "MOVE", "-H", "Destination: /data/away"];
        statuses(&web, &away, path, &[403]);
        let to = format!("Destination: {path}");
        for (method, from) in [
            ("MOVE", "/data/q"),
            ("COPY", "/data/q"),
            ("COPY", "/data/plain"),
        ] {
            statuses(&web, &["-X", method, "-H", &to], from, &[403]);
        }
    }
    let copied = ["-X", "COPY", "-H", "Destination: /data/copied"];
    assert_eq!(web.status(&copied, "/data/p"), 201);
    for path in ["/data/p/c/file", "/data/p/other", "/data/q", "/data/copied"] {
        assert_eq!(web.status(&["-X", "DELETE"], path), 204, "{path}");
    }
    assert_eq!(web.status(&[], "/inner/"), 200);
}

#[test]
fn copies_keep_the_rights_of_the_original() {
    let web = web_with_files();
    let set = |name: &str, mode| {
        fs::set_permissions(web.data(name), Permissions::from_mode(mode)).unwrap();
    };
    let mode = |name: &str| web.data(name).metadata().unwrap().mode() & 0o7777;
    for (name, given) in [
        ("plain", 0o600),
        ("p", 0o700),
        ("p/c", 0o750),
        ("p/other", 0o755),
    ] {
        set(name, given);
    }
    let copy = |from: &str, to: &str| {
        let to = format!("Destination: {to}");
        web.status(&["-X", "COPY", "-H", &to], from)
    };
    // To a new name, and to an existing one.
    for (destination, status) in [("new", 201), ("q", 204)] {
        assert_eq!(copy("/data/p", &format!("/data/{destination}")), status);
        let at = |name: &str| mode(&format!("{destination}{name}"));
        assert_eq!([at(""), at("/c"), at("/other")], [0o700, 0o750, 0o755]);
    }
    assert_eq!(copy("/data/plain", "/data/second"), 201);
    assert_eq!(mode("second"), 0o600);
    assert_eq!(copy("/data/plain", "/data/new/other"), 204);
    assert_eq!(mode("new/other"), 0o600);
    set("p/c", 0o550);
    assert_eq!(copy("/data/p/c", "/data/third"), 201);
    assert_eq!((mode("third"), mode("third/file")), (0o750, 0o644));
    set("plain", 0o4711);
    assert_eq!(copy("/data/plain", "/data/fourth"), 201);
    assert_eq!(mode("fourth"), 0o711);
}

/// A client that mirrors a partial listing would remove its own files.
#[test]
fn refuses_partial_listings() {
    let web = web_with_files();
    let large = web.data("large");
    fs::create_dir(&large).unwrap();
    for number in 0..100_001 {
        File::create(large.join(number.to_string())).unwrap();
    }
    let show = |arguments: &[&str], path: &str| {
        let (status, text) = web.curl(arguments, path);
        (status, String::from_utf8(text).unwrap())
    };
    let propfind = ["-X", "PROPFIND"];
    let deeper = ["-X", "PROPFIND", "-H", "Depth: 1"];
    let (status, text) = show(&[], "/data/large/");
    assert!(
        status == 507 && text.contains("100,000"),
        "{status}: {text}"
    );
    for arguments in [&propfind[..], &deeper] {
        let (status, text) = show(arguments, "/data/large/");
        let count = text.matches("<D:response>").count();
        assert_eq!((status, count), (207, 100_002));
        assert!(text.ends_with("</D:multistatus>\n"));
    }
    assert_eq!(
        show(&["-X", "PROPFIND", "-H", "Depth: 0"], "/data/large/").0,
        207
    );
    assert_eq!(show(&["-X", "DELETE"], "/data/large").0, 204);
    assert!(!large.exists());
    rustix::fs::mknodat(
        rustix::fs::CWD,
        web.data("q/fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    for arguments in [&propfind[..], &deeper] {
        let (status, text) = show(arguments, "/data/q/");
        let shown = text.matches("<D:href>/data/q/").count();
        assert_eq!((status, shown), (207, 2), "itself and the file: {text}");
    }
}

/// A path has up to 2,048 names.
#[test]
fn reports_failures_of_deep_copies() {
    let web = web_with_files();
    let at = web.data("deep");
    fs::create_dir(&at).unwrap();
    let mut directory = rustix::fs::open(&at, rustix::fs::OFlags::DIRECTORY, 0.into()).unwrap();
    for _ in 0..2100 {
        rustix::fs::mkdirat(&directory, "d", 0o755.into()).unwrap();
        directory =
            rustix::fs::openat(&directory, "d", rustix::fs::OFlags::DIRECTORY, 0.into()).unwrap();
    }
    let to = ["-X", "COPY", "-H", "Destination: /data/copied"];
    assert_eq!(web.status(&to, "/data/deep"), 207);
}

#[test]
fn refuses_to_move_a_tree_with_an_active_copy() {
    let web = web_with_files();
    fs::write(web.data("q/.longhaul-0.part"), "part").unwrap();
    for destination in ["/data/new", "/data/p"] {
        let to = format!("Destination: {destination}");
        statuses(&web, &["-X", "MOVE", "-H", &to], "/data/q", &[423]);
    }
    statuses(&web, &["-X", "DELETE"], "/data/q", &[423]);
    statuses(
        &web,
        &["-X", "MOVE", "-H", "Destination: /data/q"],
        "/data/p",
        &[423],
    );
}

/// The file of an upload whose process has ended is not in use.
#[test]
fn removes_directories_with_abandoned_uploads() {
    let web = web_with_files();
    let left = web.data("q/.longhaul-0123456789abcdef.put");
    fs::write(&left, "half").unwrap();
    let held = File::open(&left).unwrap();
    flock(&held, FlockOperation::LockShared).unwrap();
    statuses(&web, &["-X", "DELETE"], "/data/q", &[423]);
    drop(held);
    let onto = ["-X", "MOVE", "-H", "Destination: /data/q"];
    assert_eq!(web.status(&onto, "/data/p"), 204);
    assert!(web.data("q/c/file").exists() && !left.exists());
    fs::write(web.data("q/c/.longhaul-0123456789abcdef.put"), "half").unwrap();
    assert_eq!(web.status(&["-X", "DELETE"], "/data/q"), 204);
    assert!(!web.data("q").exists());
}

/// A "#" that is not escaped does not belong to the name, and the part before it is another name.
#[test]
fn refuses_unescaped_fragments() {
    let web = web_with_files();
    let address = web.url("");
    let before = listing(&web.home.data());
    for (method, path) in [
        ("DELETE", "/data/plain#x"),
        ("MOVE", "/data/p#x"),
        ("PUT", "/data/plain#x"),
        ("GET", "/data/plain#"),
    ] {
        let mut stream = TcpStream::connect(address.strip_prefix("http://").unwrap()).unwrap();
        let token = &web.token;
        // The second request of a connection is checked, too.
        for (line, wanted) in [
            ("HEAD /data/plain", "200"),
            (&*format!("{method} {path}"), "400"),
        ] {
            let head = format!(
                "{line} HTTP/1.1\r\nHost: x\r\nDestination: /data/new\r\nContent-Length: 0\r\n"
            );
            write!(stream, "{head}Authorization: Bearer {token}\r\n\r\n").unwrap();
            let mut read = [0; 4096];
            let len = stream.read(&mut read).unwrap();
            let message = String::from_utf8_lossy(&read[..len]);
            assert!(
                message.starts_with(&format!("HTTP/1.1 {wanted}")),
                "{line}: {message}"
            );
        }
    }
    assert_eq!(listing(&web.home.data()), before);
}

#[test]
fn keeps_directories_with_active_uploads() {
    let web = web_with_files();
    let mut upload = web.send("PUT /data/q/new", "Content-Length: 4\r\n", "ab");
    let is_own = |name: &String| name.ends_with(".put");
    crate::site_process::web::wait_until(|| names(&web.data("q")).iter().any(is_own));
    for arguments in [
        &["-X", "DELETE"][..],
        &["-X", "MOVE", "-H", "Destination: /data/new"],
    ] {
        assert_eq!(web.status(arguments, "/data/q"), 423, "{arguments:?}");
    }
    upload.write_all(b"cd").unwrap();
    crate::site_process::web::wait_until(|| web.data("q/new").exists());
    assert_eq!(fs::read(web.data("q/new")).unwrap(), b"abcd");
}

/// In any order, nothing is lost, and nothing stays under an internal name.
#[test]
fn concurrent_requests_lose_nothing() {
    let web = web_with_files();
    let requests = [
        ("MOVE", "/data/p", "/data/q/p"),
        ("MOVE", "/data/q/p", "/data/p"),
        ("MOVE", "/data/q", "/data/p/q"),
        ("MOVE", "/data/p/q", "/data/q"),
        ("COPY", "/data/p", "/data/copy"),
        ("COPY", "/data/q", "/data/copy"),
        ("MOVE", "/data/copy", "/data/copy2"),
        ("COPY", "/data/copy2", "/data/copy/in"),
    ];
    let bearer = format!("Authorization: Bearer {}", web.token);
    let send_request = |url: &str, (method, from, to): (&str, &str, &str)| {
        let to = format!("Destination: {to}");
        let overwrite = if from.contains("copy") || to.contains("copy") {
            "Overwrite: T"
        } else {
            "Overwrite: F"
        };
        let headers = [
            "-k", "-X", method, "-H", &bearer, "-H", &to, "-H", overwrite,
        ];
        for _ in 0..20 {
            let status = curl(&headers, &format!("{url}{from}")).0;
            assert!(status < 500, "{method} {from} {to}: {status}");
        }
    };
    let send_request = &send_request;
    std::thread::scope(|scope| {
        // Each listener is a process.
        for url in [&web.site.http, &web.site.https] {
            let url = url.as_ref().unwrap();
            for request in &requests {
                scope.spawn(move || send_request(url, *request));
            }
        }
    });
    let own = walk(&web.home.data());
    assert!(own.is_empty(), "{own:?}");
    let found = |name: &str| {
        let tops = ["p", "q/p", "p/q/p", "q", "p/q", "q/p/q"];
        tops.iter().any(|top| web.data(top).join(name).exists())
    };
    assert!(found("c/file") && found("other"), "p is somewhere");
}
