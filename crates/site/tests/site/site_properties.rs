// SPDX-License-Identifier: MIT OR Apache-2.0
//! WebDAV properties: those that clients set stay with the file, and missing ones are reported as missing.

use crate::site_process::{
    Client, succeed,
    web::{Web, curl, names},
};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::fs;

fn web() -> Web {
    let web = Web::new();
    fs::write(web.data("file"), "x").unwrap();
    fs::create_dir_all(web.data("tree/inner")).unwrap();
    fs::write(web.data("tree/inner/file"), "x").unwrap();
    web
}

fn patch(web: &Web, path: &str, actions: &str) -> (u16, String) {
    let body =
        format!("<D:propertyupdate xmlns:D='DAV:' xmlns:x='urn:x'>{actions}</D:propertyupdate>");
    let (status, message) = web.curl(&["-X", "PROPPATCH", "--data-binary", &body], path);
    (status, String::from_utf8(message).unwrap())
}

fn set(web: &Web, path: &str, property: &str) {
    let action = format!("<D:set><D:prop>{property}</D:prop></D:set>");
    let (status, message) = patch(web, path, &action);
    assert!(
        status == 207 && message.contains("200 OK") && !message.contains("HTTP/1.1 4"),
        "{status}: {message}"
    );
}

fn find(web: &Web, path: &str, question: &str) -> String {
    let body = format!("<D:propfind xmlns:D='DAV:' xmlns:x='urn:x'>{question}</D:propfind>");
    let (status, message) = web.text(&["-X", "PROPFIND", "-H", "Depth: 0", "-d", &body], path);
    assert_eq!(status, 207, "{message}");
    message
}

/// Returns whether the property `x:a` is set.
fn is_set(web: &Web, path: &str) -> bool {
    find(web, path, "<D:prop><x:a/></D:prop>").contains(">of a<")
}

/// Splits a response into found and missing properties.
fn split_found_missing(message: &str) -> (&str, &str) {
    match message.split_once("<D:status>HTTP/1.1 200 OK</D:status>") {
        Some(parts) => parts,
        None => ("", message),
    }
}

#[test]
fn returns_properties_that_a_client_set() {
    let web = web();
    for path in ["/data/file", "/data/tree", "/data/"] {
        set(
            &web,
            path,
            "<x:a xml:lang='de'>of <x:b>\u{1f600} &amp;</x:b></x:a><c/><D:displayname>shown</D:displayname>",
        );
        let all = find(&web, path, "<D:allprop/>");
        assert!(
            all.contains(" xml:lang=\"de\"") && all.contains("\u{1f600} &amp;"),
            "{all}"
        );
        assert!(
            all.contains("<c") && all.contains(">shown</D:displayname>"),
            "{all}"
        );
        assert!(
            all.contains("<D:getetag>") && !all.contains("HTTP/1.1 404"),
            "{all}"
        );
        let found = find(
            &web,
            path,
            "<D:prop><x:a/><x:none/><c/><D:getetag/><D:none/><none/></D:prop>",
        );
        let (there, missing) = split_found_missing(&found);
        assert_eq!(there.matches("xml:lang").count(), 1, "{found}");
        assert!(
            there.contains("<c") && there.contains("<D:getetag>\""),
            "{found}"
        );
        assert!(
            missing.contains("<none xmlns=\"urn:x\"/><D:none/><none/>"),
            "{found}"
        );
        assert!(
            missing.contains("404 Not Found") && !missing.contains("getetag"),
            "{found}"
        );
        let names = find(&web, path, "<D:propname/>");
        assert!(
            names.contains("<a xmlns=\"urn:x\"/>") && names.contains("<D:displayname/>"),
            "{names}"
        );
        assert!(
            !names.contains("shown") && !names.contains("\u{1f600}"),
            "{names}"
        );
        let (_, message) = patch(
            &web,
            path,
            "<D:remove><D:prop><x:a/><D:displayname/><x:never/></D:prop></D:remove>",
        );
        assert!(message.matches("200 OK").count() == 3, "{message}");
        let found = find(&web, path, "<D:prop><x:a/><D:displayname/><c/></D:prop>");
        assert_eq!(
            split_found_missing(&found).0.matches("<c").count(),
            1,
            "{found}"
        );
        assert!(!found.contains("shown"), "{found}");
    }
    assert_eq!(names(&web.home.data()), ["file", "tree"]);
}

#[test]
fn properties_follow_their_file() {
    let web = web();
    for path in [
        "/data/file",
        "/data/tree",
        "/data/tree/inner",
        "/data/tree/inner/file",
    ] {
        set(&web, path, "<x:a>of a</x:a>");
    }
    assert_eq!(web.status(&["-X", "PUT", "-d", "new"], "/data/file"), 204);
    assert!(is_set(&web, "/data/file"));
    for (method, from, to) in [
        ("COPY", "/data/file", "/data/second"),
        ("COPY", "/data/tree", "/data/copy"),
        ("MOVE", "/data/file", "/data/moved"),
        ("MOVE", "/data/tree", "/data/away"),
    ] {
        let to = format!("Destination: {to}");
        assert_eq!(web.status(&["-X", method, "-H", &to], from), 201);
    }
    // To an existing destination.
    fs::write(web.data("old"), "old").unwrap();
    assert_eq!(
        web.status(
            &["-X", "COPY", "-H", "Destination: /data/old"],
            "/data/moved"
        ),
        204
    );
    let tops = [
        "copy",
        "copy/inner",
        "copy/inner/file",
        "away",
        "away/inner",
        "away/inner/file",
    ];
    for name in ["second", "moved", "old"].iter().chain(&tops) {
        assert!(is_set(&web, &format!("/data/{name}")), "{name}");
    }
    let client = Client::with_tokens(&[(&web.site, &web.token)]);
    let (from, to) = (web.site.at("/copy"), web.site.at("/by-longhaul"));
    succeed(client.command(&[&from, &to]));
    for name in ["", "/inner", "/inner/file"] {
        assert!(is_set(&web, &format!("/data/by-longhaul{name}")), "{name}");
    }
}

/// RFC 4918 §9.2: all changes are made, or none.
#[test]
fn changes_properties_atomically() {
    let web = web();
    for protected in [
        "<D:getetag>x</D:getetag>",
        "<D:unknown/>",
        "<D:lockdiscovery/>",
    ] {
        let action = format!("<D:set><D:prop><x:a>of a</x:a>{protected}</D:prop></D:set>");
        let (status, message) = patch(&web, "/data/file", &action);
        assert_eq!(status, 207);
        assert!(
            message.contains("403 Forbidden") && message.contains("424 Failed Dependency"),
            "{message}"
        );
        assert!(!is_set(&web, "/data/file"));
    }
    let long = format!(
        "<D:set><D:prop><x:a>of a</x:a><x:b>{}</x:b></D:prop></D:set>",
        "b".repeat(20_000)
    );
    let (status, message) = patch(&web, "/data/file", &long);
    assert!(
        status == 207 && message.matches("507 Insufficient Storage").count() == 2,
        "{message}"
    );
    assert!(!is_set(&web, "/data/file"));
    for wrong in ["", "<D:set/>", "<x:set><D:prop><x:a/></D:prop></x:set>"] {
        assert_eq!(patch(&web, "/data/file", wrong).0, 400, "{wrong}");
    }
    assert_eq!(
        patch(
            &web,
            "/data/none",
            "<D:remove><D:prop><x:a/></D:prop></D:remove>"
        )
        .0,
        404
    );
    assert_eq!(
        patch(
            &web,
            "/closed/file",
            "<D:remove><D:prop><x:a/></D:prop></D:remove>"
        )
        .0,
        403
    );
}

/// Each property is refused, and other requests succeed.
#[test]
fn refuses_properties_without_attributes() {
    let web = web();
    let at = web.data("ramfs");
    fs::create_dir(&at).unwrap();
    let none = rustix::mount::MountFlags::empty();
    rustix::mount::mount("ramfs", &at, "ramfs", none, None).unwrap();
    fs::write(at.join("file"), "x").unwrap();
    let (status, message) = patch(
        &web,
        "/data/ramfs/file",
        "<D:set><D:prop><x:a>of a</x:a></D:prop></D:set>",
    );
    let found = find(&web, "/data/ramfs/file", "<D:allprop/>");
    let put = web.status(&["-X", "PUT", "-d", "new"], "/data/ramfs/file");
    set(&web, "/data/file", "<x:a>of a</x:a>");
    let copied = web.status(
        &["-X", "COPY", "-H", "Destination: /data/ramfs/copy"],
        "/data/file",
    );
    rustix::mount::unmount(&at, rustix::mount::UnmountFlags::DETACH).unwrap();
    assert!(
        status == 207 && message.contains("403 Forbidden"),
        "{message}"
    );
    assert!(found.contains("<D:getcontentlength>1<"), "{found}");
    assert_eq!((put, copied), (204, 201));
}

/// Other programs can write the attribute, too.
#[test]
fn lists_files_with_an_invalid_attribute() {
    let web = web();
    let name = "user.longhaul.properties";
    let evil = "[{\"namespace\":\"urn:x\",\"name\":\"a\",\"text\":\"</D:prop><x>\"}]";
    for junk in ["junk", "", "[]", evil] {
        setxattr(web.data("file"), name, junk.as_bytes(), XattrFlags::empty()).unwrap();
        let (status, message) = web.text(&["-X", "PROPFIND"], "/data/");
        assert!(
            status == 207 && !message.contains("</D:prop><x>"),
            "{message}"
        );
        xmltree::Element::parse(message.as_bytes()).unwrap();
    }
    set(&web, "/data/file", "<x:a>of a</x:a>");
    assert!(is_set(&web, "/data/file"));
}

#[test]
fn keeps_user_attributes_when_contents_change() {
    let web = web();
    let name = "user.comment";
    for path in [
        web.data("file"),
        web.data("tree"),
        web.data("tree/inner/file"),
    ] {
        setxattr(path, name, b"seen", XattrFlags::empty()).unwrap();
    }
    assert_eq!(web.status(&["-X", "PUT", "-d", "new"], "/data/file"), 204);
    for (from, to) in [("file", "second"), ("tree", "copy")] {
        let to = format!("Destination: /data/{to}");
        assert_eq!(
            web.status(&["-X", "COPY", "-H", &to], &format!("/data/{from}")),
            201
        );
    }
    for kept in ["file", "second", "copy", "copy/inner/file"] {
        let mut value = [0; 16];
        let len = getxattr(web.data(kept), name, &mut value[..]).expect(kept);
        assert_eq!(&value[..len], b"seen", "{kept}");
    }
}

#[test]
fn lists_exports_as_a_directory() {
    let web = web();
    let send_request = |token: &str, arguments: &[&str]| {
        let bearer = format!("Authorization: Bearer {token}");
        let (status, message) = curl(&[&["-H", &bearer], arguments].concat(), &web.url("/"));
        (status, String::from_utf8(message).unwrap())
    };
    let (status, message) = send_request(&web.token, &["-X", "PROPFIND"]);
    assert_eq!(status, 207);
    for href in ["/", "/data/", "/closed/"] {
        assert!(
            message.contains(&format!("<D:href>{href}</D:href>")),
            "{message}"
        );
    }
    assert_eq!(message.matches("<D:collection/>").count(), 3, "{message}");
    xmltree::Element::parse(message.as_bytes()).unwrap();
    let one = web.home.token(&["new", "one", "--export", "closed"]);
    let (_, message) = send_request(&one, &["-X", "PROPFIND", "-H", "Depth: 1"]);
    assert!(
        message.contains("/closed/") && !message.contains("/data/"),
        "{message}"
    );
    let (_, message) = send_request(&web.token, &["-X", "PROPFIND", "-H", "Depth: 0"]);
    assert_eq!(message.matches("<D:response>").count(), 1, "{message}");
    for (arguments, wanted) in [
        (&["-X", "PROPFIND", "-H", "Depth: infinity"][..], 403),
        (&["-X", "PROPFIND", "-H", "Depth: 7"], 400),
        (&["-X", "PROPFIND", "-d", "<a"], 400),
    ] {
        assert_eq!(
            send_request(&web.token, arguments).0,
            wanted,
            "{arguments:?}"
        );
    }
    assert_eq!(curl(&["-X", "PROPFIND"], &web.url("/")).0, 401);
    for path in ["/", "/data/"] {
        let (status, head) = web.text(&["-X", "OPTIONS", "-i"], path);
        assert_eq!(status, 200, "{head}");
        assert!(
            head.contains("dav: 1, 2, 3\r\n") && head.contains("PROPFIND"),
            "{head}"
        );
        let allowed = head.lines().find_map(|line| line.strip_prefix("allow: "));
        let mut methods = allowed.unwrap().trim().split(',');
        assert!(methods.all(|method| method != "PATCH"), "{head}");
    }
}

/// See RFC 4331. A client without quota properties reports a full disk.
#[test]
fn reports_quota_of_directories() {
    let web = web();
    let stat = rustix::fs::statvfs(web.home.data()).unwrap();
    let all = stat.f_blocks * stat.f_frsize;
    let question = "<D:prop><D:quota-available-bytes/><D:quota-used-bytes/></D:prop>";
    for path in ["/", "/data/", "/data/tree"] {
        let message = find(&web, path, question);
        let number = |name: &str| -> u64 {
            let rest = message
                .split_once(&format!("<D:{name}>"))
                .expect(&message)
                .1;
            rest.split_once('<').unwrap().0.parse().unwrap()
        };
        let (available, used) = (number("quota-available-bytes"), number("quota-used-bytes"));
        assert!(
            available > 0 && used > 0 && available + used <= all,
            "{message}"
        );
    }
    assert!(
        split_found_missing(&find(&web, "/data/file", question))
            .0
            .is_empty()
    );
    assert!(!find(&web, "/data/", "<D:allprop/>").contains("quota"));
}
