// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounds on one HTTP client: it can neither stop the site, nor block other clients, nor cause unbounded work.

use crate::site_process::{
    Client, Home, WAIT_LIMIT, make_tree, wait_for_exit,
    web::{Web, curl, lock_body, wait_until},
};
use rustix::process::{Pid, Signal, kill_process};
use socket2::{Domain, Socket, Type};
use std::{
    fs,
    io::Read,
    net::{SocketAddr, TcpStream},
    thread::sleep,
    time::{Duration, Instant},
};

const METHODS: [&str; 8] = [
    "PROPFIND",
    "PROPPATCH",
    "LOCK",
    "REPORT",
    "MKCOL",
    "MKCALENDAR",
    "SEARCH",
    "ACL",
];

fn request_status(web: &Web, method: &str, body: &str) -> u16 {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), body).unwrap();
    let body = format!("@{}", file.path().display());
    let arguments = ["-X", method, "-H", "Depth: 0", "--data-binary", &body];
    web.status(&arguments, "/data/file")
}

#[test]
fn refuses_nested_xml_and_keeps_serving() {
    let web = Web::new();
    fs::write(web.data("file"), "x").unwrap();
    let nested = |depth: usize, inner: &str| {
        let (open, close) = ("<a>".repeat(depth), "</a>".repeat(depth));
        format!("<D:propfind xmlns:D='DAV:'><D:prop>{open}{inner}{close}</D:prop></D:propfind>")
    };
    wait_until(|| web.site.http_processes().len() == 2);
    let processes = web.site.http_processes();
    for method in METHODS {
        for body in [
            nested(8000, ""),
            "<a>".repeat(8000),
            "<a b=''>".repeat(8000),
            format!("<!-- x -->{}", "<a>".repeat(8000)),
            format!(
                "<!DOCTYPE a [<!ENTITY b '{}'>]><a>&b;</a>",
                "<c>".repeat(5000)
            ),
            nested(0, &"<a/>".repeat(8000)),
            "x".repeat(70_000),
        ] {
            let status = request_status(&web, method, &body);
            assert!((400..500).contains(&status), "{method}: {status}");
        }
    }
    assert_eq!(request_status(&web, "PROPFIND", &nested(20, "")), 207);
    assert_eq!(web.site.http_processes(), processes);
}

/// A request of 64 KiB that repeats a long name does not cause a response of hundreds of megabytes.
#[test]
fn bounds_responses_to_small_requests() {
    let web = Web::new();
    fs::write(web.data("file"), "x").unwrap();
    let propfind = |namespace: &str, names: &str| {
        format!(
            "<D:propfind xmlns:D='DAV:' xmlns:x='{namespace}'><D:prop>{names}</D:prop></D:propfind>"
        )
    };
    let declarations: String = (0..3900).map(|at| format!(" xmlns:a{at:x}='u'")).collect();
    let long = |len: usize| propfind(&">".repeat(len), &"<x:a/>".repeat(1000));
    let distinct: String = (0..1000).map(|at| format!("<x:a{at}/>")).collect();
    let attributes: String = (0..3000).map(|at| format!(" x:a{at}=''")).collect();
    for (body, wanted) in [
        (long(55_000), 400),
        (propfind(&">".repeat(3000), &distinct), 413),
        (format!("<a{declarations}>{}</a>", "<b/>".repeat(1000)), 400),
        (
            propfind(&">".repeat(20_000), &format!("<x:a{attributes}/>")),
            400,
        ),
        (propfind("urn:x", &distinct), 207),
    ] {
        assert_eq!(
            request_status(&web, "PROPFIND", &body),
            wanted,
            "{}",
            &body[..100]
        );
    }
    let lock = lock_body("shared", "me");
    for _ in 0..16 {
        assert_eq!(request_status(&web, "LOCK", &lock), 200);
    }
    let value = "v".repeat(3000);
    let set = format!(
        "<D:propertyupdate xmlns:D='DAV:'><D:set><D:prop><a xmlns='urn:x'>{value}</a></D:prop></D:set></D:propertyupdate>"
    );
    let found = web
        .text(&["-X", "PROPFIND", "-H", "Depth: 0"], "/data/file")
        .1;
    let token = found.split("urn:uuid:").nth(1).unwrap();
    let token = token.split('<').next().unwrap();
    let if_header = format!("If: (<urn:uuid:{token}>)");
    assert_eq!(
        web.status(
            &["-X", "PROPPATCH", "-H", &if_header, "-d", &set],
            "/data/file"
        ),
        207
    );
    for name in ["<D:lockdiscovery/>", "<x:a/>", "<D:getetag/>", "<x:none/>"] {
        let response = |count: usize| {
            let body = propfind("urn:x", &name.repeat(count));
            let (status, answer) = web.curl(
                &["-X", "PROPFIND", "-H", "Depth: 0", "-d", &body],
                "/data/file",
            );
            assert_eq!(status, 207);
            answer
        };
        assert_eq!(response(1000).len(), response(1).len(), "{name}");
    }
}

/// Clients that request a large directory and read nothing block other clients only if they use the same token.
#[test]
fn limits_listings_of_one_token() {
    let web = Web::new();
    let other = web.home.token(&["new", "other"]);
    let large = web.data("large");
    fs::create_dir(&large).unwrap();
    for number in 0..100_000 {
        fs::File::create(large.join(number.to_string())).unwrap();
    }
    fs::create_dir(web.data("small")).unwrap();
    let greedy: Vec<_> = (0..25)
        .map(|_| {
            web.send(
                "PROPFIND /data/large",
                "Depth: 1\r\nContent-Length: 0\r\n",
                "",
            )
        })
        .collect();
    let bearer = format!("Authorization: Bearer {other}");
    let arguments = ["-X", "PROPFIND", "-H", "Depth: 1", "-H", &bearer];
    // These requests come while the greedy listings are read, and while those wait for their clients.
    for _ in 0..12 {
        let begin = Instant::now();
        assert_eq!(curl(&arguments, &web.url("/data/small")).0, 207);
        assert!(
            begin.elapsed() < Duration::from_secs(8),
            "the request waits for the greedy ones"
        );
        sleep(Duration::from_secs(1));
    }
    drop(greedy);
}

#[test]
fn restarts_the_http_process() {
    let home = Home::new();
    let token = home.token(&["new", "me"]);
    let site = home.site(&["--http", "127.0.0.1:0", "--https", "127.0.0.1:0"]);
    wait_until(|| site.http_processes().len() == 2);
    let from = home.data().parent().unwrap().join("from");
    make_tree(&from);
    let client = Client::with_tokens(&[(&site, &token)]);
    let source = from.to_str().unwrap().to_owned();
    let slowly = ["--limit", "40Mbit/s", &source, &site.at("")];
    let mut copy = client.command(&slowly).spawn().unwrap();
    site.wait_for("copy_started");
    for pid in site.http_processes() {
        // A stack overflow in the process has the same effect.
        let pid = Pid::from_raw(pid.cast_signed()).unwrap();
        kill_process(pid, Signal::ABORT).unwrap();
    }
    let listeners: Vec<_> = (0..2)
        .map(|_| {
            site.wait_for("http_exited")["listener"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert!(listeners.contains(&"http".to_owned()) && listeners.contains(&"https".to_owned()));
    // The listener stays open: a new client waits for the next process.
    fs::write(home.data().join("file"), "x").unwrap();
    let user = format!("me:{token}");
    for url in [&site.http, &site.https] {
        let url = format!("{}/data/file", url.as_ref().unwrap());
        let response = curl(&["--insecure", "-u", &user], &url);
        assert_eq!(response, (200, b"x".to_vec()), "{url}");
    }
    assert!(copy.wait().unwrap().success());
    assert_eq!(site.end(Signal::TERM).code(), Some(0));
}

#[test]
fn stops_the_http_process_at_shutdown() {
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let home = Home::new();
        let any_port = "127.0.0.1:0";
        let site = home.site(&["--http", any_port, "--https", any_port]);
        wait_until(|| site.http_processes().len() == 2);
        let processes = site.http_processes();
        site.end(signal);
        for pid in processes {
            wait_for_exit(pid);
        }
    }
}

/// 128 connections from one address leave room for connections from other addresses.
#[test]
fn limits_https_connections_of_one_host() {
    let web = Web::new();
    fs::write(web.data("file"), "x").unwrap();
    let url = web.site.https.clone().unwrap();
    let at: SocketAddr = url.trim_start_matches("https://").parse().unwrap();
    let connect = |_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let source = SocketAddr::from(([127, 0, 0, 3], 0));
        socket.bind(&source.into()).unwrap();
        socket.connect(&at.into()).unwrap();
        TcpStream::from(socket)
    };
    let mut idle: Vec<_> = (0..128).map(connect).collect();
    let user = format!("me:{}", web.token);
    let others = ["--insecure", "-u", &user, "--interface", "127.0.0.2"];
    assert_eq!(curl(&others, &format!("{url}/data/file")).0, 200);
    // Connections beyond the host's share are closed.
    let refused = web.site.wait_for("refused");
    assert!(
        refused["client"]
            .as_str()
            .unwrap()
            .starts_with("127.0.0.3:")
    );
    let last = idle.last_mut().unwrap();
    last.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    // Reset or closed.
    assert_eq!(last.read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn refuses_many_and_overlapping_ranges() {
    let web = Web::new();
    fs::write(web.data("file"), vec![b'x'; 10_000]).unwrap();
    let ranges = |count: usize, step: usize, len: usize| {
        let specs: Vec<_> = (0..count)
            .map(|at| format!("{}-{}", at * step, at * step + len - 1))
            .collect();
        format!("Range: bytes={}", specs.join(","))
    };
    let status = |header: &str| web.status(&["-H", header], "/data/file");
    assert_eq!(status(&ranges(1300, 1, 5000)), 416);
    assert_eq!(status(&ranges(1300, 3, 2)), 416);
    assert_eq!(status(&ranges(3, 1, 5000)), 416);
    assert_eq!(status("Range: bytes=0-,0-,0-"), 416);
    assert_eq!(status(&ranges(2, 100, 10)), 206);
    assert_eq!(status(&ranges(1, 1, 10)), 206);
    let head = web.curl(&["-i", "-H", "Range: bytes=0-,0-,0-"], "/data/file");
    let head = String::from_utf8(head.1).unwrap();
    assert!(head.contains("content-range: bytes */10000"), "{head}");
}
