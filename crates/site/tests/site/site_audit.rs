// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of a site about clients that change something, and about clients without the right to.

use crate::site_process::{
    Client, Home, make_tree,
    web::{Web, curl, wait_until},
};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, ChildStdout, Stdio},
    time::{Duration, Instant},
};

/// Returns the next `request` record, without client and token.
fn next_request_record(web: &Web) -> (String, u64, u64, Option<u64>) {
    let record = web.site.wait_for("request");
    assert_eq!(
        (&record["token"], &record["export"]),
        (&"me".into(), &"data".into())
    );
    assert!(record["client"].as_str().unwrap().starts_with("127.0.0.1:"));
    let text = |key: &str| record[key].as_str().map(str::to_owned);
    let what = [text("method"), text("path"), text("destination")];
    let what: Vec<_> = what.into_iter().flatten().collect();
    let number = |key: &str| record[key].as_u64();
    (
        what.join(" "),
        number("entries").unwrap(),
        number("bytes").unwrap(),
        number("status"),
    )
}

#[test]
fn records_changes_and_their_status() {
    let web = Web::new();
    let here = web.home.data().parent().unwrap().join("here");
    fs::write(&here, vec![b'x'; 1000]).unwrap();
    let put = ["-T", here.to_str().unwrap()];
    let check = |arguments: &[&str], path: &str, entries: u64, bytes: u64, status: u16| {
        web.status(arguments, path);
        let method = if arguments == put {
            "PUT"
        } else {
            arguments[1]
        };
        let to = arguments
            .last()
            .and_then(|last| last.strip_prefix("Destination: "));
        let what: Vec<_> = [method, path].into_iter().chain(to).collect();
        let wanted = (what.join(" "), entries, bytes, Some(status.into()));
        assert_eq!(next_request_record(&web), wanted);
    };
    let delete = ["-X", "DELETE"];
    check(&["-X", "MKCOL"], "/data/dir", 1, 0, 201);
    check(&put, "/data/dir/a%20b", 1, 1000, 201);
    web.status(&[], "/data/");
    web.status(&["-X", "PROPFIND", "-H", "Depth: 1"], "/data/");
    let to = ["-X", "COPY", "-H", "Destination: /data/dir/c"];
    check(&to, "/data/dir/a%20b", 1, 1000, 201);
    let to = ["-X", "MOVE", "-H", "Destination: /data/new"];
    check(&to, "/data/dir", 1, 0, 201);
    // The old contents are removed.
    fs::write(web.data("other"), "old").unwrap();
    let to = ["-X", "COPY", "-H", "Destination: /data/other"];
    check(&to, "/data/new/c", 2, 1000 + 3, 204);
    let to = ["-X", "MOVE", "-H", "Destination: /data/other"];
    check(&to, "/data/new/c", 2, 1000, 204);
    let to = ["-X", "COPY", "-H", "Destination: /data/new/c"];
    check(&to, "/data/other", 1, 1000, 201);
    fs::create_dir_all(web.data("full/deep")).unwrap();
    fs::write(web.data("full/deep/file"), "12345").unwrap();
    let to = ["-X", "MOVE", "-H", "Destination: /data/full"];
    check(&to, "/data/other", 4, 5, 204);
    check(&delete, "/data/new", 3, 2000, 204);
    check(&delete, "/data/new", 0, 0, 404);
    check(&delete, "/data", 0, 0, 403);
    web.status(&["-X", "PATCH", "-d", "x"], "/data/x");
    let refused = ("PATCH /data/x".to_owned(), 0, 0, Some(400));
    assert_eq!(next_request_record(&web), refused);
}

#[test]
fn records_refusals_of_a_read_only_token() {
    let web = Web::new();
    fs::write(web.data("file"), "x").unwrap();
    let reader = web.home.token(&["new", "reader", "--read-only"]);
    let bearer = format!("Authorization: Bearer {reader}");
    curl(&["-H", &bearer, "-X", "DELETE"], &web.url("/data/file"));
    let record = web.site.wait_for("request");
    assert_eq!(record["token"], "reader");
    assert_eq!(record["status"], 403);
    assert_eq!(record["entries"], 0);
}

#[test]
fn records_interrupted_requests() {
    let web = Web::new();
    let socket = web.send("PUT /data/file", "Content-Length: 1000\r\n", "half");
    wait_until(|| fs::read_dir(web.home.data()).unwrap().count() == 1);
    drop(socket);
    let (what, entries, bytes, status) = next_request_record(&web);
    assert_eq!((what.as_str(), entries, bytes), ("PUT /data/file", 0, 4));
    assert!(status.is_none_or(|status| status >= 400), "{status:?}");
}

/// One line, and growing delays, for a client that sends wrong tokens. Other clients are not delayed.
#[test]
fn logs_wrong_tokens_once_and_delays_them() {
    let web = Web::new();
    fs::write(web.data("file"), "x").unwrap();
    let stranger = Home::new().token(&["new", "me"]);
    let begin = Instant::now();
    for token in [&stranger, "x", &stranger, "", &stranger] {
        let user = format!("me:{token}");
        assert_eq!(curl(&["-u", &user], &web.url("/data/file")).0, 401);
    }
    // 0.1 s and four times the double.
    assert!(begin.elapsed() >= Duration::from_millis(3100));
    let record = web.site.next();
    assert_eq!(record["event"], "refused");
    assert!(record["client"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(record["reason"], "the token is not valid at this site");
    // A request without a token gets 401 at once, and is not logged.
    assert_eq!(curl(&[], &web.url("/data/file")).0, 401);
    assert_eq!(web.status(&["-X", "DELETE"], "/data/file"), 204);
    assert_eq!(web.site.next()["event"], "request", "one line a burst");
}

/// The limits also apply to copies.
#[test]
fn logs_wrong_tokens_of_copies_once_and_delays_them() {
    let home = Home::new();
    let good = home.token(&["new", "me"]);
    let (key, _) = good.rsplit_once('.').unwrap();
    let other = Home::new().token(&["new", "x"]);
    let (_, secret) = other.rsplit_once('.').unwrap();
    let site = home.site(&[]);
    fs::write(home.data().join("file"), "x").unwrap();
    let wrong = Client::with_tokens(&[(&site, &format!("{key}.{secret}"))]);
    let begin = Instant::now();
    for _ in 0..4 {
        wrong.copy_fails(2, &[&site.at("/file"), "/nonexistent/x"]);
    }
    assert!(begin.elapsed() >= Duration::from_millis(1500));
    let folder = tempfile::tempdir().unwrap();
    let right = Client::with_tokens(&[(&site, &good)]);
    right.copy(&[&site.at("/file"), folder.path().to_str().unwrap()]);
    let events: Vec<Value> = (0..2).map(|_| site.next()).collect();
    assert_eq!(events[0]["event"], "refused");
    assert_eq!(events[1]["event"], "copy_started", "one line a burst");
}

/// A record escapes terminal controls and line ends, and truncates long texts.
#[test]
fn escapes_control_characters_in_records() {
    let web = Web::new();
    for path in ["/data/%1b[31mred", "/data/%0aline", "/data/%c2%9b2J"] {
        web.status(&["--globoff", "-X", "DELETE"], path);
        assert_eq!(web.site.wait_for("request")["path"], path);
    }
}

/// Records name the endpoint of a copy, its actions and its outcome.
#[test]
fn records_outcomes_of_copies() {
    let home = Home::new();
    let all = home.token(&["new", "all"]);
    let reader = home.token(&["new", "reader", "--read-only"]);
    let site = home.site(&[]);
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    make_tree(&from);
    let (here, there) = (from.to_str().unwrap(), site.at("/new"));
    let bytes: u64 = 1000 + (9 << 20); // A file with two names is sent once.
    let client = Client::with_tokens(&[(&site, &all)]);
    client.copy(&[here, &there]);
    let record = site.wait_for("copy_ended");
    for (key, wanted) in [("role", "target"), ("outcome", "completed")] {
        assert_eq!(record[key], wanted, "{record}");
    }
    assert_eq!(
        record["paths"],
        serde_json::json!(["/data/new"]),
        "{record}"
    );
    assert_eq!(
        (&record["bytes"], &record["failed"]),
        (&bytes.into(), &0.into())
    );
    assert!(record["copied"].as_u64().unwrap() >= 7, "{record}");

    let back = folder.path().join("back");
    client.copy(&[&there, back.to_str().unwrap()]);
    let record = site.wait_for("copy_ended");
    assert_eq!(
        (&record["role"], &record["outcome"]),
        (&"source".into(), &"completed".into())
    );
    assert!(record["bytes"].as_u64().unwrap() >= bytes, "{record}");

    fs::remove_file(from.join("empty")).unwrap();
    client.copy(&["--delete", &format!("{here}/"), &there]);
    assert_eq!(site.wait_for("copy_ended")["removed"], 1);

    Client::with_tokens(&[(&site, &reader)]).copy_fails(2, &[here, &there]);
    let record = site.wait_for("copy_ended");
    assert_eq!(record["outcome"], "refused", "{record}");
    assert!(
        record["reason"]
            .as_str()
            .unwrap()
            .contains("may only be read")
    );
}

/// Requests outside the rights of a token are recorded, too.
#[test]
fn records_requests_outside_the_exports_of_a_token() {
    let home = Home::new();
    let token = home.token(&["new", "me", "--export", "data"]);
    let other = format!("other={}", home.data().display());
    let site = home.site(&["--export", &other, "--http", "127.0.0.1:0"]);
    let web = Web { home, site, token };
    fs::write(web.data("file"), "x").unwrap();
    let to = ["-X", "MOVE", "-H", "Destination: /other/%1b[31m"];
    for (arguments, path, export, status) in [
        (&["-X", "DELETE"][..], "/other/file", "other", 404),
        (&["-X", "PUT", "-d", "x"], "/nowhere/file", "nowhere", 404),
        (&["-X", "MKCOL"], "/", "", 404),
        (&to, "/data/file", "data", 502),
    ] {
        assert_eq!(web.status(arguments, path), status, "{arguments:?}");
        let record = web.site.wait_for("request");
        assert_eq!(
            (&record["export"], &record["status"]),
            (&export.into(), &status.into())
        );
        assert_eq!(record["path"], path);
        let wanted = (status == 502).then_some("/other/%1b[31m");
        assert_eq!(record["destination"].as_str(), wanted, "{record}");
    }
}

/// Requests whose records of 12 KB exceed all buffers. Each of two processes has 1 MiB that waits and up to 1 MiB that
/// is being written, and a pipe of 64 KiB.
const UNREAD_REQUESTS: u64 = 400;

/// Starts a site whose output has not been read since it was ready, with more records than are buffered.
fn site_without_reader() -> (Child, BufReader<ChildStdout>, String, String, Home) {
    let home = Home::new();
    let token = home.token(&["new", "me"]);
    let mut site = home.command(&["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    let mut site = site.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(site.stdout.take().unwrap());
    let mut ready = String::new();
    lines.read_line(&mut ready).unwrap();
    let ready: Value = serde_json::from_str(&ready).unwrap();
    let address = ready["http"].as_str().unwrap().to_owned();
    let mut client = BufReader::new(TcpStream::connect(&address).unwrap());
    let limit = Some(crate::site_process::WAIT_LIMIT);
    client.get_ref().set_read_timeout(limit).unwrap();
    let export = "a".repeat(4000);
    let head = format!(
        "MOVE /{export} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nDestination: /{export}\r\n\r\n"
    );
    for _ in 0..UNREAD_REQUESTS {
        client.get_mut().write_all(head.as_bytes()).unwrap();
        read_refusal(&mut client);
    }
    (site, lines, address, token, home)
}

/// Reads a response with status 404.
fn read_refusal(client: &mut BufReader<TcpStream>) {
    let (mut line, mut len) = (String::new(), 0);
    client.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 404"), "{line}");
    while line != "\r\n" {
        line.clear();
        client.read_line(&mut line).unwrap();
        if let Some(value) = line.strip_prefix("content-length: ") {
            len = value.trim_end().parse().unwrap();
        }
    }
    client.read_exact(&mut vec![0; len]).unwrap();
}

#[test]
fn serves_and_stops_without_a_reader() {
    let (mut site, lines, address, token, _home) = site_without_reader();
    let bearer = format!("Authorization: Bearer {token}");
    assert_eq!(
        curl(&["-H", &bearer], &format!("http://{address}/data/")).0,
        200
    );
    let pid = rustix::process::Pid::from_child(&site);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(site.wait().unwrap().success());
    drop(lines);
}

#[test]
fn reports_the_number_of_lost_records() {
    let (mut site, lines, ..) = site_without_reader();
    let mut records = 0;
    for line in lines.lines() {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        match line["event"].as_str().unwrap() {
            "request" => records += 1,
            "records_lost" => {
                records += line["count"].as_u64().unwrap();
                break;
            }
            other => panic!("{other}"),
        }
    }
    assert!(records <= UNREAD_REQUESTS, "{records}");
    site.kill().unwrap();
    site.wait().unwrap();
}
