// SPDX-License-Identifier: MIT OR Apache-2.0
//! WebDAV locks: only a client that sends the lock's token can change a locked resource, through any method.

use crate::site_process::{
    listing,
    web::{Web, curl, lock_body, names, wait_until},
};
use rustix::process::{Pid, Signal, kill_process};
use std::{fs, process::Command, time::Duration};

/// Starts a site with `file` and `directory/inner` in its export.
fn web_with_files() -> Web {
    let web = Web::new();
    fs::write(web.data("file"), "mine").unwrap();
    fs::create_dir(web.data("directory")).unwrap();
    fs::write(web.data("directory/inner"), "inner").unwrap();
    web
}

fn request(url: &str, token: &str, arguments: &[&str]) -> (u16, String) {
    let bearer = format!("Authorization: Bearer {token}");
    let (status, message) = curl(&[&["-k", "-H", &bearer], arguments].concat(), url);
    (status, String::from_utf8(message).unwrap())
}

/// Sends a LOCK. Returns the status, and an If header with the token.
fn lock(web: &Web, token: &str, path: &str, scope: &str, headers: &[&str]) -> (u16, String) {
    let body = lock_body(scope, "me");
    let mut arguments = vec!["-X", "LOCK", "--data-binary", &body];
    for header in headers {
        arguments.extend(["-H", header]);
    }
    let (status, message) = request(&web.url(path), token, &arguments);
    let named = message.split_once("<D:locktoken><D:href>");
    let named = named.map_or("", |(_, rest)| rest.split_once('<').unwrap().0);
    (status, format!("If: (<{named}>)"))
}

/// Takes a lock. Returns an If header with its token.
fn acquire_lock(web: &Web, path: &str, scope: &str, headers: &[&str]) -> String {
    let (status, if_header) = lock(web, &web.token, path, scope, headers);
    assert!([200, 201].contains(&status), "{path}: {status}");
    if_header
}

const PATCH: &str =
    "<D:propertyupdate xmlns:D='DAV:'><D:set><D:prop><x>1</x></D:prop></D:set></D:propertyupdate>";

/// Returns all requests that change a file or its name.
fn changes<'a>(path: &'a str, destination: &'a str) -> Vec<(Vec<&'a str>, &'a str)> {
    vec![
        (vec!["-X", "PUT", "-d", "theirs"], path),
        (vec!["-X", "PROPPATCH", "-d", PATCH], path),
        (vec!["-X", "MOVE", "-H", "Destination: /data/away"], path),
        (
            vec!["-X", "COPY", "-H", destination],
            "/data/directory/inner",
        ),
        (
            vec!["-X", "MOVE", "-H", destination],
            "/data/directory/inner",
        ),
        (vec!["-X", "DELETE"], path),
    ]
}

#[test]
fn refuses_changes_without_the_lock_token() {
    let web = web_with_files();
    let other = web.home.token(&["new", "you"]);
    let before = listing(&web.home.data());
    let if_header = acquire_lock(&web, "/data/file", "exclusive", &[]);
    let tagged = if_header.replace('(', &format!("<{}> (", web.url("/data/file")));
    for (arguments, path) in changes("/data/file", "Destination: /data/file") {
        // Without the lock's token; with it, but with another token of the site; with the token of another lock.
        assert_eq!(web.status(&arguments, path), 423, "{arguments:?}");
        let with_token = [&["-H", &tagged][..], &arguments].concat();
        assert_eq!(
            request(&web.url(path), &other, &with_token).0,
            423,
            "{arguments:?}"
        );
        let both = "If: (<urn:uuid:bogus>) (Not <DAV:no-lock>)";
        let with_both = [&["-H", both][..], &arguments].concat();
        assert_eq!(web.status(&with_both, path), 423, "{arguments:?}");
    }
    for scope in ["exclusive", "shared"] {
        assert_eq!(lock(&web, &other, "/data/file", scope, &[]).0, 423);
        assert_eq!(lock(&web, &web.token, "/data/file", scope, &[]).0, 423);
    }
    assert_eq!(listing(&web.home.data()), before);
    assert_eq!(web.curl(&[], "/data/file"), (200, b"mine".to_vec()));
    for (if_header, arguments) in [
        (&if_header, ["-X", "PUT", "-d", "1"]),
        (&tagged, ["-X", "PUT", "-d", "2"]),
        (&if_header, ["-X", "PROPPATCH", "-d", PATCH]),
    ] {
        let status = web.status(&[&["-H", if_header][..], &arguments].concat(), "/data/file");
        assert!([204, 207].contains(&status), "{arguments:?}: {status}");
    }
    assert_eq!(
        web.status(&["-X", "DELETE", "-H", &if_header], "/data/file"),
        204
    );
    // The lock is removed with the file.
    assert_eq!(web.status(&["-X", "PUT", "-d", "x"], "/data/file"), 201);
}

/// A condition that fails or can't be parsed must not be treated as missing.
#[test]
fn failed_conditions_change_nothing() {
    let web = web_with_files();
    let before = listing(&web.home.data());
    for (condition, wanted) in [
        ("If: (<urn:uuid:bogus>)", 412),
        ("If: (<DAV:no-lock>)", 412),
        ("If: ([\"bogus\"])", 412),
        ("If: (Not <DAV:no-lock> [\"bogus\"])", 412),
        ("If: </data/file> (<urn:uuid:bogus>)", 412),
        ("If: </data/none> ([\"bogus\"])", 412),
        ("If: <http://elsewhere/x> (<urn:uuid:bogus>)", 412),
        ("If: <urn:uuid:bogus>", 400),
        ("If: ((", 400),
        ("If: (<urn:uuid:bogus>", 400),
        ("If: bogus", 400),
    ] {
        for (arguments, path) in changes("/data/file", "Destination: /data/file") {
            let arguments = [&["-H", condition][..], &arguments].concat();
            assert_eq!(
                web.status(&arguments, path),
                wanted,
                "{condition}: {arguments:?}"
            );
        }
    }
    for (header, method) in [
        ("If-Match: \"bogus\"", "LOCK"),
        ("If-None-Match: *", "PROPPATCH"),
    ] {
        let body = lock_body("exclusive", "");
        let body = if method == "LOCK" { &body } else { PATCH };
        assert_eq!(
            web.status(&["-X", method, "-H", header, "-d", body], "/data/file"),
            412
        );
    }
    assert_eq!(listing(&web.home.data()), before);
    let tag = web.field("etag", "/data/file");
    let holds = format!("If: </data/none> (<urn:x>) </data/file> ([{tag}])");
    assert_eq!(
        web.status(&["-X", "PUT", "-d", "x", "-H", &holds], "/data/file"),
        204
    );
}

/// RFC 9110 §13: a weak tag matches in If-None-Match and not in If-Match. Dates count in both formats.
#[test]
fn conditions_apply_to_every_change() {
    let web = web_with_files();
    let before = listing(&web.home.data());
    let [tag, modified] = ["etag", "last-modified"].map(|name| web.field(name, "/data/file"));
    let lock = lock_body("exclusive", "");
    for condition in [
        format!("If-None-Match: W/{tag}"),
        "If-Match: \"ä\"".to_owned(),
        format!("If-Match: W/{tag}"),
        "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT".to_owned(),
        "If-Unmodified-Since: Sunday, 06-Nov-94 08:49:37 GMT".to_owned(),
    ] {
        for (method, body) in [
            ("PUT", "x"),
            ("DELETE", ""),
            ("LOCK", &*lock),
            ("PROPPATCH", PATCH),
        ] {
            let arguments = ["-X", method, "-H", &condition, "-d", body];
            let status = web.status(&arguments, "/data/file");
            assert_eq!(status, 412, "{method}: {condition}");
        }
    }
    assert_eq!(listing(&web.home.data()), before);
    let validators = format!("If-None-Match: \"x\", W/{tag}");
    let (status, message) = web.text(&["-i", "-H", &validators], "/data/file");
    assert!(
        status == 304 && message.contains(&format!("etag: {tag}")),
        "{message}"
    );
    for holds in [
        format!("If-Match: {tag}"),
        format!("If-Unmodified-Since: {modified}"),
    ] {
        assert_eq!(web.status(&["-H", &holds], "/data/file"), 200);
        let arguments = ["-X", "PROPPATCH", "-H", &holds, "-d", PATCH];
        assert_eq!(web.status(&arguments, "/data/file"), 207, "{holds}");
    }
}

/// A DELETE of a part of a directory removes nothing.
#[test]
fn refuses_partial_deletes_of_directories() {
    let web = web_with_files();
    let before = listing(&web.home.data());
    for depth in ["Depth: 0", "Depth: 1"] {
        let status = web.status(&["-X", "DELETE", "-H", depth], "/data/directory");
        assert_eq!(status, 400, "{depth}");
        assert_eq!(listing(&web.home.data()), before);
    }
    assert_eq!(
        web.status(&["-X", "DELETE", "-H", "Depth: 0"], "/data/file"),
        204
    );
    let all = ["-X", "DELETE", "-H", "Depth: Infinity"];
    assert_eq!(web.status(&all, "/data/directory"), 204);
}

/// RFC 4918 §7.4: a lock of a directory protects the names in it, whatever its depth.
#[test]
fn directory_locks_protect_names() {
    let web = web_with_files();
    fs::create_dir(web.data("directory/deep")).unwrap();
    fs::write(web.data("directory/deep/down"), "x").unwrap();
    let into = "Destination: /data/directory/new";
    let names = [
        (vec!["-X", "PUT", "-d", "x"], "/data/directory/new"),
        (vec!["-X", "MKCOL"], "/data/directory/new"),
        (vec!["-X", "COPY", "-H", into], "/data/file"),
        (vec!["-X", "MOVE", "-H", into], "/data/file"),
        (vec!["-X", "DELETE"], "/data/directory/inner"),
        (
            vec!["-X", "MOVE", "-H", "Destination: /data/away"],
            "/data/directory/inner",
        ),
        (vec!["-X", "DELETE"], "/data/directory"),
    ];
    for depth in ["Depth: 0", "Depth: infinity"] {
        let before = listing(&web.home.data());
        let if_header = acquire_lock(&web, "/data/directory", "exclusive", &[depth]);
        for (arguments, path) in &names {
            assert_eq!(web.status(arguments, path), 423, "{depth}: {arguments:?}");
        }
        assert_eq!(
            lock(&web, &web.token, "/data/directory/new", "exclusive", &[]).0,
            423
        );
        let deep = depth == "Depth: infinity";
        let wanted = if deep { 423 } else { 204 };
        assert_eq!(
            web.status(&["-X", "DELETE"], "/data/directory/deep/down"),
            wanted
        );
        assert_eq!(
            web.status(&["-X", "PUT", "-d", "inner"], "/data/directory/inner"),
            wanted
        );
        if deep {
            assert_eq!(listing(&web.home.data()), before);
        }
        // UNLOCK works only at a resource that the lock covers.
        let unlock = if_header.replace("If: (", "Lock-Token: ").replace(')', "");
        assert_eq!(
            web.status(&["-X", "UNLOCK", "-H", &unlock], "/data/file"),
            409
        );
        let at = if deep {
            "/data/directory/inner"
        } else {
            "/data/directory"
        };
        assert_eq!(web.status(&["-X", "UNLOCK", "-H", &unlock], at), 204);
        fs::write(web.data("directory/deep/down"), "x").unwrap();
    }
    // A lock of an entry also protects the directories above it.
    let if_header = acquire_lock(&web, "/data/directory/inner", "exclusive", &[]);
    assert_eq!(
        lock(&web, &web.token, "/data/directory", "exclusive", &[]).0,
        423
    );
    let moved = ["-X", "MOVE", "-H", "Destination: /data/away"];
    for arguments in [&["-X", "DELETE"][..], &moved] {
        assert_eq!(
            web.status(arguments, "/data/directory"),
            423,
            "{arguments:?}"
        );
    }
    let about = if_header.replace('(', "</data/directory/inner> (");
    let arguments = [&["-H", &about][..], &moved].concat();
    assert_eq!(web.status(&arguments, "/data/directory"), 201);
}

#[test]
fn shared_locks_exclude_clients_without_one() {
    let web = web_with_files();
    let other = web.home.token(&["new", "you"]);
    let mine = acquire_lock(&web, "/data/file", "shared", &[]);
    let (status, yours) = lock(&web, &other, "/data/file", "shared", &[]);
    assert_eq!(status, 200);
    assert_eq!(lock(&web, &other, "/data/file", "exclusive", &[]).0, 423);
    let put = ["-X", "PUT", "-d", "x"];
    for (token, if_header, wanted) in [
        (&web.token, None, 423),
        (&web.token, Some(&yours), 423),
        (&web.token, Some(&mine), 204),
        (&other, Some(&yours), 204),
    ] {
        let if_header = if_header.map_or(vec![], |if_header| vec!["-H", if_header]);
        let status = request(
            &web.url("/data/file"),
            token,
            &[&if_header[..], &put].concat(),
        )
        .0;
        assert_eq!(status, wanted, "{if_header:?}");
    }
    // A lock of another client is not removed.
    let unlock = yours.replace("If: (", "Lock-Token: ").replace(')', "");
    assert_eq!(
        web.status(&["-X", "UNLOCK", "-H", &unlock], "/data/file"),
        403
    );
    assert_eq!(
        request(
            &web.url("/data/file"),
            &other,
            &["-X", "UNLOCK", "-H", &unlock]
        )
        .0,
        204
    );
}

#[test]
fn locks_expire() {
    let web = web_with_files();
    let if_header = acquire_lock(&web, "/data/file", "exclusive", &["Timeout: Second-2"]);
    let refresh = ["-X", "LOCK", "-H", &if_header, "-H", "Timeout: Infinite"];
    let (status, message) = web.text(&refresh, "/data/file");
    assert_eq!(status, 200, "{message}");
    assert!(
        message.contains("<D:timeout>Second-3600</D:timeout>"),
        "{message}"
    );
    std::thread::sleep(Duration::from_millis(2500));
    let put = ["-X", "PUT", "-d", "x"];
    assert_eq!(web.status(&put, "/data/file"), 423);
    let refresh = ["-X", "LOCK", "-H", &if_header, "-H", "Timeout: Second-1"];
    assert_eq!(web.status(&refresh, "/data/file"), 200);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(web.status(&put, "/data/file"), 204);
    assert_eq!(web.status(&refresh, "/data/file"), 412);
    assert_eq!(web.status(&["-X", "LOCK"], "/data/file"), 412);
}

/// Locks hold at both listeners, which are separate processes, and in other exports with the same directory. They still
/// hold when a process was killed and replaced.
#[test]
fn processes_and_exports_share_locks() {
    let web = web_with_files();
    wait_until(|| web.site.http_processes().len() == 2);
    acquire_lock(&web, "/data/directory", "exclusive", &[]);
    let put = ["-X", "PUT", "-d", "x"];
    let https = web.site.https.clone().unwrap() + "/data/directory/inner";
    assert_eq!(request(&https, &web.token, &put).0, 423);
    for pid in web.site.http_processes() {
        kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
    }
    web.site.wait_for("http_exited");
    web.site.wait_for("http_exited");
    assert_eq!(web.status(&put, "/data/directory/inner"), 423);
    assert_eq!(request(&https, &web.token, &put).0, 423);
    assert_eq!(fs::read(web.data("directory/inner")).unwrap(), b"inner");
    // The directory is also locked in its own export, which does not disclose the parents.
    let propfind = ["-X", "PROPFIND", "-H", "Depth: 0"];
    let message = web.curl(&propfind, "/closed/directory/inner").1;
    let message = String::from_utf8(message).unwrap();
    assert!(
        message.contains("<D:lockroot><D:href>/closed/directory</D:href>"),
        "{message}"
    );
}

#[test]
fn lock_creates_an_empty_file() {
    let web = web_with_files();
    let if_header = acquire_lock(&web, "/data/new", "exclusive", &[]);
    assert_eq!(fs::read(web.data("new")).unwrap(), b"");
    let message = web.site.wait_for("request");
    assert_eq!(
        (&message["method"], &message["status"]),
        (&"LOCK".into(), &201.into())
    );
    assert_eq!(web.status(&["-X", "PUT", "-d", "x"], "/data/new"), 423);
    assert_eq!(
        web.status(&["-X", "PUT", "-d", "x", "-H", &if_header], "/data/new"),
        204
    );
    for (path, wanted) in [
        ("/data/none/new", 409),
        ("/data/other/", 409),
        ("/data/.longhaul-0.part", 403),
    ] {
        assert_eq!(
            lock(&web, &web.token, path, "exclusive", &[]).0,
            wanted,
            "{path}"
        );
    }
    assert_eq!(names(&web.home.data()), ["directory", "file", "new"]);
    // A refused LOCK leaves no lock.
    assert_eq!(web.status(&["-X", "MKCOL"], "/data/none"), 201);
    assert_eq!(web.status(&["-X", "PUT", "-d", "x"], "/data/none/new"), 201);
}

#[test]
fn copies_and_moves_do_not_carry_locks() {
    let web = web_with_files();
    let if_header = acquire_lock(&web, "/data/file", "exclusive", &[]);
    let copy = ["-X", "COPY", "-H", "Destination: /data/copy"];
    assert_eq!(web.status(&copy, "/data/file"), 201);
    assert_eq!(web.status(&["-X", "PUT", "-d", "x"], "/data/copy"), 204);
    let moved = [
        "-X",
        "MOVE",
        "-H",
        "Destination: /data/moved",
        "-H",
        &if_header,
    ];
    assert_eq!(web.status(&moved, "/data/file"), 201);
    for path in ["/data/moved", "/data/file"] {
        assert!(web.status(&["-X", "PUT", "-d", "x"], path) < 300, "{path}");
    }
    // The destination of a MOVE stays locked by its holder.
    let if_header = acquire_lock(&web, "/data/file", "exclusive", &[]);
    let onto = ["-X", "MOVE", "-H", "Destination: /data/file", "-H"];
    let about = if_header.replace('(', "</data/file> (");
    assert_eq!(
        web.status(&[&onto[..], &[&about]].concat(), "/data/moved"),
        204
    );
    assert_eq!(web.status(&["-X", "PUT", "-d", "x"], "/data/file"), 423);
    assert_eq!(
        web.status(&["-X", "PUT", "-d", "x", "-H", &if_header], "/data/file"),
        204
    );
}

/// Runs `longhaul site lock ARGUMENTS`. Returns its exit code and its output.
fn lock_command(web: &Web, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(longhaul_testprograms::longhaul());
    command.args(["site", "lock", "--state", &web.home.state()]);
    let output = command.args(arguments).output().unwrap();
    let message = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(message).unwrap())
}

/// A lock may block others although its client has disappeared.
#[test]
fn operator_breaks_a_lock() {
    let web = web_with_files();
    let (code, message) = lock_command(&web, &["list"]);
    assert!(
        code == Some(0) && message.contains("no locks in "),
        "{message}"
    );
    let if_header = acquire_lock(&web, "/data/file", "exclusive", &[]);
    let other = acquire_lock(&web, "/data/directory", "shared", &[]);
    let token = |if_header: &str| if_header[6..if_header.len() - 2].to_owned();
    let (code, message) = lock_command(&web, &["list"]);
    let place = web.data("file").display().to_string();
    let line = format!(
        "{}: {place} and what is below, exclusive, me's until ",
        token(&if_header)
    );
    assert_eq!((code, message.lines().count()), (Some(0), 2), "{message}");
    assert!(
        message.contains(&line) && message.contains(&token(&other)),
        "{message}: {line}"
    );
    assert_eq!(
        lock_command(&web, &["remove", &token(&if_header)]).0,
        Some(0)
    );
    assert_eq!(web.status(&["-X", "PUT", "-d", "x"], "/data/file"), 204);
    assert_eq!(web.status(&["-X", "DELETE"], "/data/directory"), 423);
    let (code, message) = lock_command(&web, &["remove", &token(&if_header)]);
    assert!(
        code == Some(2) && message.contains("lock list"),
        "{message}"
    );
}

#[test]
fn read_only_tokens_lock_nothing_and_locks_are_limited() {
    let web = web_with_files();
    let reader = web.home.token(&["new", "reader", "--read-only"]);
    assert_eq!(lock(&web, &reader, "/data/file", "exclusive", &[]).0, 403);
    assert_eq!(
        lock(&web, &web.token, "/closed/file", "exclusive", &[]).0,
        403
    );
    let long = lock_body("exclusive", &"x".repeat(2000));
    assert_eq!(web.status(&["-X", "LOCK", "-d", &long], "/data/file"), 413);
    for wrong in ["<D:x xmlns:D='DAV:'/>", "<a", "<lockinfo xmlns='DAV:'/>"] {
        assert_eq!(
            web.status(&["-X", "LOCK", "-d", wrong], "/data/file"),
            400,
            "{wrong}"
        );
    }
    assert_eq!(
        lock(&web, &web.token, "/data/file", "exclusive", &["Depth: 1"]).0,
        400
    );
    for _ in 0..256 {
        assert_eq!(lock(&web, &web.token, "/data/file", "shared", &[]).0, 200);
    }
    assert_eq!(lock(&web, &web.token, "/data/file", "shared", &[]).0, 507);
    assert_eq!(
        web.status(&["-X", "PUT", "-d", "x"], "/data/directory/inner"),
        204
    );
}
