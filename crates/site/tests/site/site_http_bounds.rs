// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one client of HTTP can't do to a site: end it, keep the others out, or have it work without end.

use crate::site_process::{
    Client, Home, PATIENCE, make_tree, wait_for_the_end_of,
    web::{Web, curl, until},
};
use rustix::process::{Pid, Signal, kill_process};
use socket2::{Domain, Socket, Type};
use std::{
    fs,
    io::Read,
    net::{SocketAddr, TcpStream},
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

fn ask(web: &Web, method: &str, body: &str) -> u16 {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), body).unwrap();
    let body = format!("@{}", file.path().display());
    let arguments = ["-X", method, "-H", "Depth: 0", "--data-binary", &body];
    web.status(&arguments, "/data/file")
}

#[test]
fn refuses_nested_xml_and_stays() {
    let web = Web::new();
    fs::write(web.data("file"), "x").unwrap();
    let nested = |depth: usize, inner: &str| {
        let (open, close) = ("<a>".repeat(depth), "</a>".repeat(depth));
        format!("<D:propfind xmlns:D='DAV:'><D:prop>{open}{inner}{close}</D:prop></D:propfind>")
    };
    until(|| web.site.http_processes().len() == 2);
    let served = web.site.http_processes();
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
            let status = ask(&web, method, &body);
            assert!((400..500).contains(&status), "{method}: {status}");
        }
    }
    assert_eq!(ask(&web, "PROPFIND", &nested(20, "")), 207);
    assert_eq!(web.site.http_processes(), served);
}

#[test]
fn survives_the_end_of_what_serves_http() {
    let home = Home::new();
    let token = home.token(&["new", "me"]);
    let site = home.site(&["--http", "127.0.0.1:0", "--https", "127.0.0.1:0"]);
    until(|| site.http_processes().len() == 2);
    let from = home.data().parent().unwrap().join("from");
    make_tree(&from);
    let client = Client::knowing(&[(&site, &token)]);
    let source = from.to_str().unwrap().to_owned();
    let slowly = ["--limit", "40Mbit/s", &source, &site.at("")];
    let mut copy = client.command(&slowly).spawn().unwrap();
    site.says("began");
    for pid in site.http_processes() {
        // What a process does that has no stack left.
        let pid = Pid::from_raw(pid.cast_signed()).unwrap();
        kill_process(pid, Signal::ABORT).unwrap();
    }
    let listeners: Vec<_> = (0..2)
        .map(|_| {
            site.says("http_ended")["listener"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert!(listeners.contains(&"http".to_owned()) && listeners.contains(&"https".to_owned()));
    // The listener is there all the time: who comes now waits for the next process.
    fs::write(home.data().join("file"), "x").unwrap();
    let user = format!("me:{token}");
    for url in [&site.http, &site.https] {
        let url = format!("{}/data/file", url.as_ref().unwrap());
        let answer = curl(&["--insecure", "-u", &user], &url);
        assert_eq!(answer, (200, b"x".to_vec()), "{url}");
    }
    assert!(copy.wait().unwrap().success());
    assert_eq!(site.end(Signal::TERM).code(), Some(0));
}

#[test]
fn ends_what_serves_http_with_itself() {
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let home = Home::new();
        let anywhere = "127.0.0.1:0";
        let site = home.site(&["--http", anywhere, "--https", anywhere]);
        until(|| site.http_processes().len() == 2);
        let processes = site.http_processes();
        site.end(signal);
        for pid in processes {
            wait_for_the_end_of(pid);
        }
    }
}

/// 128 connections from one address leave room for those from others.
#[test]
fn keeps_room_for_other_addresses() {
    let web = Web::new();
    fs::write(web.data("file"), "x").unwrap();
    let url = web.site.https.clone().unwrap();
    let at: SocketAddr = url.trim_start_matches("https://").parse().unwrap();
    let connect = |_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let here = SocketAddr::from(([127, 0, 0, 3], 0));
        socket.bind(&here.into()).unwrap();
        socket.connect(&at.into()).unwrap();
        TcpStream::from(socket)
    };
    let mut idle: Vec<_> = (0..128).map(connect).collect();
    let user = format!("me:{}", web.token);
    let others = ["--insecure", "-u", &user, "--interface", "127.0.0.2"];
    assert_eq!(curl(&others, &format!("{url}/data/file")).0, 200);
    // Those beyond its share are closed.
    let refused = web.site.says("refused");
    assert!(
        refused["client"]
            .as_str()
            .unwrap()
            .starts_with("127.0.0.3:")
    );
    let last = idle.last_mut().unwrap();
    last.set_read_timeout(Some(PATIENCE)).unwrap();
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
    let head = web.curl(&["--head", "-H", "Range: bytes=0-,0-,0-"], "/data/file");
    let head = String::from_utf8(head.1).unwrap();
    assert!(head.contains("content-range: bytes */10000"), "{head}");
}
