// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ftp://` URLs over the HTTP listener, against a real FTP server (pyftpdlib) and curl.

use longhaul_testnet::relay_process::{
    Relay, accept, connect, listen_as_origin, parse_http_status, read_http_head,
};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    process::{Child, Command, Output, Stdio},
};

const ANY: &str = "127.0.0.1:0";

/// FTP server whose PASV reply contains an unreachable address, as behind an address translator.
const SERVER: &str = r#"
import sys
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer
home, lacks = sys.argv[1:]
class Handler(FTPHandler):
    authorizer = DummyAuthorizer()
    masquerade_address = "192.0.2.1"
    proto_cmds = {k: v for k, v in FTPHandler.proto_cmds.items() if k != lacks}
Handler.authorizer.add_anonymous(home)
Handler.authorizer.add_user("me", "secret", home)
Handler.authorizer.add_user("writer", "secret", home, perm="elradfmw")
server = FTPServer(("127.0.0.1", 0), Handler)
print(server.socket.getsockname()[1], flush=True)
server.serve_forever()
"#;

struct Ftpd {
    child: Child,
    at: SocketAddr,
    home: tempfile::TempDir,
}

impl Ftpd {
    /// Starts a server without the command `lacks`.
    fn start(lacks: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        // The distribution's Python, which has pyftpdlib, whatever precedes it in PATH.
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", SERVER, home.path().to_str().unwrap(), lacks]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("python3");
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut port)
            .unwrap();
        let port: u16 = port
            .trim()
            .parse()
            .expect("pyftpdlib (scripts/setup installs it)");
        let at = ([127, 0, 0, 1], port).into();
        Self { child, at, home }
    }

    fn put(&self, name: &str, content: &[u8]) {
        fs::write(self.home.path().join(name), content).unwrap();
    }
}

impl Drop for Ftpd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn curl(relay: &Relay, args: &[&str]) -> Output {
    let proxy = format!("http://{}", relay.address("http"));
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "20", "-x", &proxy])
        .args(args);
    curl.output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn content() -> Vec<u8> {
    (0..3_000_000u32).map(|n| (n * 7 / 3) as u8).collect()
}

#[test]
fn downloads_files_on_every_route() {
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    for (lacks, peers) in [
        ("", vec![]),
        ("EPSV", vec![]),
        ("", vec!["--peer", &peer]),
        ("EPSV", vec!["--peer", &peer]),
    ] {
        let server = Ftpd::start(lacks);
        server.put("a b.gz", &content());
        let relay = Relay::start(&[&["--http", ANY], &peers[..]].concat());
        for host in ["127.0.0.1", "localhost"] {
            let url = format!("ftp://{host}:{}/a%20b.gz", server.at.port());
            let output = curl(&relay, &[&url]);
            assert!(
                output.stdout == content(),
                "without {lacks}, {peers:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}

/// Data connections are striped as tunnels are.
#[test]
fn data_connections_use_several_streams() {
    let records = tempfile::tempdir().unwrap();
    let counters = records.path().join("far");
    let far = Relay::start(&["--convert", ANY, "--counters", counters.to_str().unwrap()]);
    let peer = far.address("convert").to_string();
    let near = Relay::start(&["--http", ANY, "--peer", &peer, "--streams", "4"]);
    let server = Ftpd::start("");
    let large = content().repeat(12);
    server.put("large", &large);
    let url = |name: &str| format!("ftp://writer:secret@{}/{name}", server.at);
    assert!(curl(&near, &[&url("large")]).stdout == large);
    let file = server.home.path().join("large").display().to_string();
    text(&curl(&near, &["-T", &file, &url("copy")]));
    assert!(fs::read(server.home.path().join("copy")).unwrap() == large);
    for relay in [near, far] {
        let (status, log) = relay.stop();
        assert!(status.success(), "{log}");
    }
    let records = fs::read_to_string(&counters).unwrap();
    let records = records
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let striped: Vec<_> = records
        .filter(|record| !record["downstream_streams"].is_null())
        .collect();
    assert_eq!(striped.len(), 2, "{striped:?}");
    for record in striped {
        assert_eq!(record["downstream_streams"].as_array().unwrap().len(), 4);
        assert_eq!(record["ended"], "finished", "{record}");
    }
}

#[test]
fn downloads_file_through_tls_peer() {
    let directory = tempfile::tempdir().unwrap();
    let mut made = Command::new(longhaul_testprograms::longhaul());
    made.args(["relay", "--make-certificates"])
        .arg(directory.path());
    assert!(made.args(["near", "far"]).status().unwrap().success());
    let tls = |owner: &str| {
        let files = directory.path().display();
        format!(
            "tls = {{ ca = '{files}/ca.pem', certificate = '{files}/{owner}.pem', \
             key = '{files}/{owner}-key.pem' }}\n"
        )
    };
    let listener = |kind: &str| format!("[[listener]]\nkind = '{kind}'\naddress = '{ANY}'\n");
    let far = Relay::start_with_config(&(listener("convert") + &tls("far")), 1);
    let peer = far.address("convert");
    let via = format!("[[route]]\nvia = ['far']\n[peer.far]\naddress = '{peer}'\n");
    let relay = Relay::start_with_config(&(listener("http") + &via + &tls("near")), 1);
    let server = Ftpd::start("");
    server.put("a.gz", &content());
    let output = curl(&relay, &[&format!("ftp://{}/a.gz", server.at)]);
    assert!(
        output.stdout == content(),
        "{:?}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn head_has_size_type_and_date() {
    let server = Ftpd::start("");
    server.put("notes.txt", b"0123456789");
    let relay = Relay::start(&["--http", ANY]);
    let url = format!("ftp://{}/notes.txt", server.at);
    for how in [&["-I"][..], &["-i"]] {
        let head = text(&curl(&relay, &[how, &[&url]].concat())).to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert!(head.contains("content-length: 10\r\n"), "{head}");
        assert!(head.contains("content-type: text/plain\r\n"), "{head}");
        assert!(
            head.contains(" gmt\r\n") && head.contains("last-modified: "),
            "{head}"
        );
    }
}

#[test]
fn lists_directories_with_working_links() {
    let server = Ftpd::start("");
    fs::create_dir(server.home.path().join("sub")).unwrap();
    server.put("sub/a<b", b"found");
    let relay = Relay::start(&["--http", ANY]);
    let root = format!("ftp://{}/", server.at);
    assert!(text(&curl(&relay, &[&root])).contains("<a href=\"./sub/\">sub/</a>"));
    let moved = text(&curl(
        &relay,
        &[
            "-o/dev/null",
            "-w%{http_code} %{redirect_url}",
            &format!("{root}sub"),
        ],
    ));
    assert_eq!(moved, format!("301 {root}sub/"));
    let page = text(&curl(&relay, &[&format!("{root}sub/")]));
    let link = "./a%3Cb";
    assert!(
        page.contains(&format!("<a href=\"{link}\">a&lt;b</a>")),
        "{page}"
    );
    let found = text(&curl(&relay, &[&format!("{root}sub/{}", &link[2..])]));
    assert_eq!(found, "found");
}

#[test]
fn maps_ftp_failures_to_http() {
    let server = Ftpd::start("");
    let relay = Relay::start(&["--http", ANY]);
    server.put("a", b"mine");
    let at = server.at;
    let status = |args: &[&str]| {
        text(&curl(
            &relay,
            &[&["-o/dev/null", "-w%{http_code}"], args].concat(),
        ))
    };
    let url = format!("ftp://{at}/a");
    // curl sends user and password of an ftp:// URL to a proxy as an Authorization field.
    assert_eq!(status(&["-u", "me:secret", &url]), "200");
    assert_eq!(status(&["-u", "me:wrong", &url]), "401");
    assert_eq!(status(&[&format!("ftp://{at}/missing")]), "404");
    assert_eq!(status(&[&format!("ftp://{at}/missing/")]), "404");
    let body_text = text(&curl(&relay, &[&format!("ftp://{at}/missing")]));
    assert!(
        body_text.starts_with("longhaul relay: /missing: the FTP server: 550 "),
        "{body_text}"
    );
    assert_eq!(body_text.matches("550").count(), 1, "{body_text}");
    assert_eq!(status(&[&format!("ftp://{at}/a%0d%0aQUIT")]), "400");
    assert_eq!(
        status(&["-T", "/dev/null", &format!("ftp://{at}/up")]),
        "403"
    );
    let (_socket, closed) = longhaul_testnet::relay_process::refusing_address();
    assert_eq!(status(&[&format!("ftp://{closed}/a")]), "502");
}

#[test]
fn authenticates_user_of_url() {
    let server = Ftpd::start("");
    server.put("a", b"mine");
    let relay = Relay::start(&["--http", ANY]);
    for (user, status) in [("me:secret", 200), ("me:wrong", 401)] {
        let mut client = connect(relay.address("http"));
        let at = server.at;
        write!(
            client,
            "GET ftp://{user}@{at}/a HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        .unwrap();
        let head = read_http_head(&mut client);
        assert_eq!(parse_http_status(&head), status, "{user}");
        let asks = head
            .to_lowercase()
            .contains("\r\nwww-authenticate: basic realm=\"ftp\"\r\n");
        assert_eq!(asks, status == 401, "{head}");
    }
}

/// The server sends less than announced: the response must not look complete.
#[test]
fn failed_transfer_is_incomplete_response() {
    let (control, at) = listen_as_origin();
    let server = std::thread::spawn(move || {
        let (data, data_at) = listen_as_origin();
        let mut server = accept(&control);
        server.write_all(b"220 ready\r\n").unwrap();
        let mut lines = BufReader::new(server.try_clone().unwrap());
        let mut line = String::new();
        while lines.read_line(&mut line).unwrap_or(0) > 0 {
            let answer = match &line[..4] {
                "USER" => "230 in",
                "TYPE" => "200 binary",
                "EPSV" => &format!("229 (|||{}|)", data_at.port()),
                "RETR" => "150 here it comes",
                _ => "502 what?",
            };
            server
                .write_all(format!("{answer}\r\n").as_bytes())
                .unwrap();
            if line.starts_with("RETR") {
                accept(&data).write_all(b"half").unwrap();
                server.write_all(b"426 broken\r\n").unwrap();
            }
            line.clear();
        }
    });
    let relay = Relay::start(&["--http", ANY]);
    let mut client = connect(relay.address("http"));
    write!(client, "GET ftp://{at}/a HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert_eq!(parse_http_status(&read_http_head(&mut client)), 200);
    let mut body = Vec::new();
    let ended = client.read_to_end(&mut body);
    // Without a length, the body is chunked: only the last chunk completes it.
    assert!(ended.is_err() || !body.ends_with(b"0\r\n\r\n"), "{body:?}");
    drop(relay);
    server.join().unwrap();
}

/// At 40 Mbit/s (5 MB/s), 3 MB take 0.6 s, of which a burst saves 50 ms.
#[test]
fn limits_rate_of_downloads() {
    let server = Ftpd::start("");
    server.put("slow.gz", &content());
    let text = format!("[[listener]]\nkind = 'http'\naddress = '{ANY}'\nrate = '40mbit'\n");
    let relay = Relay::start_with_config(&text, 1);
    let start = std::time::Instant::now();
    let url = format!("ftp://127.0.0.1:{}/slow.gz", server.at.port());
    assert!(curl(&relay, &[&url]).stdout == content());
    let took = start.elapsed();
    assert!(took > std::time::Duration::from_millis(500), "{took:?}");
}

/// A transfer takes up to six descriptors: three permits.
#[test]
fn transfer_takes_permits_of_its_sockets() {
    let server = Ftpd::start("");
    server.put("a.gz", &content());
    let url = format!("ftp://127.0.0.1:{}/a.gz", server.at.port());
    let with_permits = |permits| Relay::start(&["--http", ANY, "--max-connections", permits]);
    let status = |relay: &Relay| {
        let code = ["-o", "/dev/null", "-w", "%{http_code}", &url];
        text(&curl(relay, &code))
    };
    assert_eq!(status(&with_permits("2")), "503");
    let relay = with_permits("3");
    assert_eq!(status(&relay), "200");
    // Permits are released when the server has closed, which may be after the last byte.
    let start = std::time::Instant::now();
    while status(&relay) != "200" {
        assert!(
            start.elapsed() < longhaul_testnet::relay_process::TEST_TIMEOUT,
            "permits were not released"
        );
    }
}

/// End of a server's file or listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Never.
    Silent,
    /// The data connection closes without a confirmation.
    Unconfirmed,
    Confirmed,
}

/// Starts a server that never answers the command `silent_at`, and sends these parts with delays.
fn scripted_server(silent_at: &'static str, parts: Vec<Vec<u8>>, ending: Ending) -> SocketAddr {
    let (control, at) = listen_as_origin();
    std::thread::spawn(move || {
        let (data, data_at) = listen_as_origin();
        let mut server = accept(&control);
        if silent_at != "greeting" {
            server.write_all(b"220 ready\r\n").unwrap();
        }
        let mut lines = BufReader::new(server.try_clone().unwrap());
        let mut line = String::new();
        while lines.read_line(&mut line).unwrap_or(0) > 0 {
            let verb = line[..4].to_owned();
            line.clear();
            let answer = match &verb[..] {
                verb if verb == silent_at => continue,
                "USER" => "230 in",
                "TYPE" => "200 binary",
                "CWD " => "250 there",
                "EPSV" => &format!("229 (|||{}|)", data_at.port()),
                "RETR" | "LIST" => "150 here it comes",
                _ => "502 what?",
            };
            let _ = server.write_all(format!("{answer}\r\n").as_bytes());
            if answer.starts_with("150") {
                let mut to = accept(&data);
                for part in &parts {
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    let _ = to.write_all(part);
                }
                if ending == Ending::Silent {
                    // Waits until the relay gives up.
                    let _ = to.read(&mut [0]);
                }
                drop(to);
                if ending == Ending::Confirmed {
                    let _ = server.write_all(b"226 done\r\n");
                }
            }
        }
    });
    at
}

fn ask_ftp(relay: &Relay, url: &str) -> std::net::TcpStream {
    let mut client = connect(relay.address("http"));
    write!(client, "GET {url} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    client
}

#[test]
fn times_out_silent_server() {
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    for peers in [vec![], vec!["--peer", &peer]] {
        for silent_at in ["greeting", "USER", "TYPE", "SIZE", "EPSV", "RETR", "LIST"] {
            let args = ["--http", ANY, "--response-timeout", "200ms"];
            let relay = Relay::start(&[&args[..], &peers].concat());
            let at = scripted_server(silent_at, Vec::new(), Ending::Confirmed);
            let path = if silent_at == "LIST" { "a/" } else { "a" };
            let mut client = ask_ftp(&relay, &format!("ftp://{at}/{path}"));
            assert_eq!(
                parse_http_status(&read_http_head(&mut client)),
                504,
                "{silent_at}"
            );
        }
    }
}

#[test]
fn stalled_transfer_is_incomplete_response() {
    for ending in [Ending::Silent, Ending::Unconfirmed] {
        let relay = Relay::start(&["--http", ANY, "--response-timeout", "300ms"]);
        let at = scripted_server("nothing", vec![b"half".to_vec()], ending);
        let mut client = ask_ftp(&relay, &format!("ftp://{at}/a"));
        assert_eq!(parse_http_status(&read_http_head(&mut client)), 200);
        let mut body = Vec::new();
        let ended = client.read_to_end(&mut body);
        let kind = ended.expect_err("it ended well").kind();
        assert_eq!(kind, std::io::ErrorKind::ConnectionReset, "{body:?}");
        assert!(body.windows(4).any(|w| w == b"half"), "{body:?}");
    }
}

/// A transfer longer than the time-out, without a pause of that length.
#[test]
fn slow_transfers_do_not_time_out() {
    let relay = Relay::start(&["--http", ANY, "--response-timeout", "1s"]);
    let line = b"-rw-r--r-- 1 me me 1 Jan  1 00:00 drop\r\n".to_vec();
    for path in ["a", "a/"] {
        let at = scripted_server("nothing", vec![line.clone(); 25], Ending::Confirmed);
        let mut client = ask_ftp(&relay, &format!("ftp://{at}/{path}"));
        assert_eq!(
            parse_http_status(&read_http_head(&mut client)),
            200,
            "{path}"
        );
        let mut body = String::new();
        // Reads to the last chunk, or to the end of the page.
        while !body.ends_with("0\r\n\r\n") && !body.ends_with("</html>") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            body.push(byte[0].into());
        }
        let drops = body.lines().filter(|line| line.contains("drop")).count();
        assert_eq!(drops, 25, "{body}");
    }
}

#[test]
fn serves_byte_ranges() {
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    for (lacks, peers) in [("", vec![]), ("EPSV", vec!["--peer", &peer])] {
        let server = Ftpd::start(lacks);
        server.put("a.gz", &content());
        let relay = Relay::start(&[&["--http", ANY], &peers[..]].concat());
        let url = format!("ftp://{}/a.gz", server.at);
        let len = content().len();
        for (range, first, last) in [
            ("100-199", 100, 199),
            ("0-0", 0, 0),
            ("2999990-", 2_999_990, len - 1),
            ("-10", 2_999_990, len - 1),
            ("2000000-2500000", 2_000_000, 2_500_000),
        ] {
            let output = curl(&relay, &["-r", range, "-D/dev/stderr", &url]);
            let head = String::from_utf8_lossy(&output.stderr).to_ascii_lowercase();
            assert!(head.starts_with("http/1.1 206"), "{range}: {head}");
            let field = format!("content-range: bytes {first}-{last}/{len}\r\n");
            assert!(head.contains(&field), "{range}: {head}");
            assert!(output.stdout == content()[first..=last], "{range}: {head}");
        }
        let none = text(&curl(&relay, &["-r", "3000000-", "-i", &url]));
        assert!(none.starts_with("HTTP/1.1 416"), "{none}");
        assert!(none.contains(&format!("bytes */{len}\r\n")), "{none}");
    }
}

/// curl resumes a download, and fetches the whole file if it has changed.
#[test]
fn resumes_downloads() {
    let server = Ftpd::start("");
    server.put("a.gz", &content());
    let relay = Relay::start(&["--http", ANY]);
    let url = format!("ftp://{}/a.gz", server.at);
    let directory = tempfile::tempdir().unwrap();
    let got = directory.path().join("got");
    fs::write(&got, &content()[..1_000_000]).unwrap();
    let output = curl(&relay, &["-C", "-", "-o", got.to_str().unwrap(), &url]);
    assert!(output.status.success() && fs::read(&got).unwrap() == content());
    let head = text(&curl(&relay, &["-I", &url]));
    let date = head
        .split("ast-modified: ")
        .nth(1)
        .or(head.split("ast-Modified: ").nth(1));
    let date = date.expect(&head).lines().next().unwrap().to_owned();
    for (date, status) in [(&date[..], "206"), ("Sun, 06 Nov 1994 08:49:37 GMT", "200")] {
        let condition = format!("If-Range: {date}");
        let args = [
            "-r",
            "5-6",
            "-H",
            &condition,
            "-o/dev/null",
            "-w%{http_code}",
            &url,
        ];
        assert_eq!(text(&curl(&relay, &args)), status, "{date}");
    }
}

#[test]
fn sends_whole_file_if_server_cannot_resume() {
    for lacks in ["REST", "SIZE"] {
        let server = Ftpd::start(lacks);
        server.put("a", b"0123456789");
        let relay = Relay::start(&["--http", ANY]);
        let url = format!("ftp://{}/a", server.at);
        let whole = text(&curl(&relay, &["-r", "3-5", "-w%{http_code}", &url]));
        assert_eq!(whole, "0123456789200", "{lacks}");
    }
}

#[test]
fn uploads_files_on_every_route() {
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("source");
    fs::write(&source, content()).unwrap();
    for (lacks, peers) in [("", vec![]), ("EPSV", vec!["--peer", &peer])] {
        let server = Ftpd::start(lacks);
        let relay = Relay::start(&[&["--http", ANY], &peers[..]].concat());
        let url = format!("ftp://{}/new%20one", server.at);
        let status = |user: &str, more: &[&str]| {
            let args = [
                "-o/dev/null",
                "-w%{http_code}",
                "-u",
                user,
                "-T",
                source.to_str().unwrap(),
            ];
            text(&curl(&relay, &[&args[..], more, &[&url]].concat()))
        };
        // Uploads with a length, in chunks, and after 100 (Continue).
        assert_eq!(status("writer:secret", &[]), "201");
        let stored = || fs::read(server.home.path().join("new one")).unwrap();
        assert!(stored() == content());
        let chunks = ["-H", "Transfer-Encoding: chunked"];
        let waits = ["-H", "Expect: 100-continue", "--expect100-timeout", "20"];
        for more in [&chunks[..], &waits] {
            server.put("new one", b"another");
            assert_eq!(status("writer:secret", more), "204", "{more:?}");
            assert!(stored() == content(), "{more:?}");
        }
        server.put("new one", b"another");
        for (user, more, code) in [
            ("me:secret", &waits[..], "403"),
            ("writer:wrong", &waits, "401"),
            (
                "writer:secret",
                &["-H", "Content-Range: bytes 0-9/20"],
                "400",
            ),
            ("writer:secret", &["-H", "If-None-Match: *"], "412"),
        ] {
            assert_eq!(status(user, more), code, "{user} {more:?}");
        }
        assert_eq!(stored(), b"another");
    }
}

/// The partial file stays, since FTP can't remove it, but the upload is not confirmed as complete.
#[test]
fn resets_truncated_upload() {
    let relay = Relay::start(&["--http", ANY]);
    for reset in [false, true] {
        let (control, at) = listen_as_origin();
        let (data, data_at) = listen_as_origin();
        let mut client = connect(relay.address("http"));
        write!(
            client,
            "PUT ftp://{at}/a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"
        )
        .unwrap();
        let mut server = accept(&control);
        server.write_all(b"220 ready\r\n").unwrap();
        let mut lines = BufReader::new(server.try_clone().unwrap());
        let mut line = String::new();
        while !line.starts_with("STOR") {
            line.clear();
            lines.read_line(&mut line).unwrap();
            let answer = match &line[..4] {
                "USER" => "230 in",
                "TYPE" => "200 binary",
                "EPSV" => &format!("229 (|||{}|)", data_at.port()),
                "STOR" => "150 go on",
                _ => "502 what?",
            };
            server
                .write_all(format!("{answer}\r\n").as_bytes())
                .unwrap();
        }
        let mut from = accept(&data);
        from.read_exact(&mut [0; 4]).unwrap();
        if reset {
            longhaul_linux::socket::reset_on_close(&client).unwrap();
        }
        drop(client);
        longhaul_testnet::relay_process::assert_reset(&mut from);
    }
}

#[test]
fn applies_rules_to_uploads() {
    let server = Ftpd::start("");
    let text = format!(
        "[[listener]]\nkind = 'http'\naddress = '{ANY}'\n[[route]]\nto = ['127.0.0.0/8']\ndeny = true\n"
    );
    let relay = Relay::start_with_config(&text, 1);
    let url = format!("ftp://writer:secret@{}/a", server.at);
    let output = curl(
        &relay,
        &["-T", "/dev/null", "-o/dev/null", "-w%{http_code}", &url],
    );
    assert_eq!(output.stdout, b"403");
}
