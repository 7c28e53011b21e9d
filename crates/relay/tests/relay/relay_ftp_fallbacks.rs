// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ftp://` URLs on servers and behind firewalls that break EPSV, refuse logins in other words, or have names in other
//! character sets than UTF-8.

use longhaul_testnet::relay_process::{
    Relay, accept, listen_as_origin, parse_http_status, read_http_head, refusing_address,
};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

const ANY: &str = "127.0.0.1:0";
const CONTENT: &[u8] = b"0123456789";

/// Behaviour of a server at EPSV.
#[derive(Debug, Clone, Copy)]
enum Epsv {
    /// Replies with this line.
    Reply(&'static str),
    /// Closes the control connection, after this line.
    Close(&'static str),
    /// Names a port at which nothing listens.
    DeadPort,
    /// Works; but then the server refuses the transfer with this line.
    Refuse(&'static str),
    /// The same, after a reply that the transfer begins; the data connection stays open.
    RefuseLate(&'static str),
    /// Never replies.
    Silent,
    Works,
}

/// Server of any number of clients. PASV always works, with the address of another host.
#[derive(Clone)]
struct Server {
    epsv: Epsv,
    /// Replies that replace those of working servers, by command.
    replies: &'static [(&'static str, &'static str)],
    commands: Arc<Mutex<Vec<Vec<u8>>>>,
    uploaded: Arc<Mutex<Vec<u8>>>,
}

impl Server {
    fn start(epsv: Epsv, replies: &'static [(&'static str, &'static str)]) -> (Self, SocketAddr) {
        let server = Self {
            epsv,
            replies,
            commands: Arc::default(),
            uploaded: Arc::default(),
        };
        let (listener, at) = listen_as_origin();
        let serving = server.clone();
        std::thread::spawn(move || {
            loop {
                let (client, serving) = (accept(&listener), serving.clone());
                std::thread::spawn(move || serving.serve(client));
            }
        });
        (server, at)
    }

    fn count(&self, verb: &str) -> usize {
        let commands = self.commands.lock().unwrap();
        let verb = |command: &&Vec<u8>| command.starts_with(verb.as_bytes());
        commands.iter().filter(verb).count()
    }

    fn serve(&self, mut client: TcpStream) {
        let (_closed, dead) = refusing_address();
        let mut data: Option<(TcpListener, bool)> = None;
        let mut unused = Vec::new();
        let mut commands = BufReader::new(client.try_clone().unwrap());
        let mut reply = "220 ready".to_owned();
        loop {
            if client.write_all(format!("{reply}\r\n").as_bytes()).is_err() {
                return;
            }
            let mut command = Vec::new();
            if commands.read_until(b'\n', &mut command).unwrap_or(0) == 0 {
                return;
            }
            self.commands.lock().unwrap().push(command.clone());
            let verb = String::from_utf8_lossy(&command[..4]).into_owned();
            let by_epsv = data.as_ref().is_some_and(|(_, by_epsv)| *by_epsv);
            reply = match (&verb[..], self.epsv) {
                (verb, _) if self.replaced(verb).is_some() => self.replaced(verb).unwrap().into(),
                ("EPSV", Epsv::Reply(line)) => line.into(),
                ("EPSV", Epsv::Close(line)) => {
                    let _ = client.write_all(line.as_bytes());
                    return;
                }
                ("EPSV", Epsv::Silent) => {
                    let _ = commands.read_to_end(&mut Vec::new());
                    return;
                }
                ("EPSV", Epsv::DeadPort) => format!("229 ok (|||{}|)", dead.port()),
                ("EPSV", _) => {
                    let (listener, at) = listen_as_origin();
                    data = Some((listener, true));
                    format!("229 ok (|||{}|)", at.port())
                }
                ("PASV", _) => {
                    let (listener, at) = listen_as_origin();
                    data = Some((listener, false));
                    let [high, low] = at.port().to_be_bytes();
                    format!("227 Entering Passive Mode (192,0,2,1,{high},{low}).")
                }
                ("RETR" | "LIST" | "STOR", Epsv::Refuse(line)) if by_epsv => line.into(),
                ("RETR" | "LIST" | "STOR", Epsv::RefuseLate(line)) if by_epsv => {
                    client.write_all(b"150 go\r\n").unwrap();
                    unused.push(accept(&data.take().unwrap().0));
                    line.into()
                }
                ("RETR" | "LIST" | "STOR", _) => {
                    client.write_all(b"150 go\r\n").unwrap();
                    self.transfer(&verb, accept(&data.take().unwrap().0));
                    "226 done".into()
                }
                ("USER", _) => "331 password?".into(),
                ("PASS", _) => "230-Welcome\r\n 230 of them\r\n230 in".into(),
                ("TYPE" | "CWD ", _) => "250 ok".into(),
                ("SIZE", _) => format!("213 {}", CONTENT.len()),
                ("MDTM", _) => "213 20260101000000".into(),
                _ => "502 what?".into(),
            };
        }
    }

    fn replaced(&self, verb: &str) -> Option<&'static str> {
        let replaced = self.replies.iter().find(|(replaced, _)| *replaced == verb);
        replaced.map(|(_, reply)| *reply)
    }

    fn transfer(&self, verb: &str, mut data: TcpStream) {
        match verb {
            "RETR" => data.write_all(CONTENT).unwrap(),
            "LIST" => data
                .write_all(b"-rw-r--r-- 1 o g 10 Nov 21 08:00 \x93\xfa\x96{.txt\r\n")
                .unwrap(),
            _ => {
                let mut uploaded = Vec::new();
                data.read_to_end(&mut uploaded).unwrap();
                *self.uploaded.lock().unwrap() = uploaded;
            }
        }
    }
}

/// Sends a request and returns status and body.
fn ask(relay: &Relay, method: &str, url: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let mut client = longhaul_testnet::relay_process::connect(relay.address("http"));
    let len = body.len();
    let head = format!(
        "{method} {url} HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n"
    );
    client.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let status = parse_http_status(&read_http_head(&mut client));
    let mut body = Vec::new();
    client.read_to_end(&mut body).unwrap();
    (status, body)
}

const BROKEN: [Epsv; 20] = [
    Epsv::Reply("500 what?"),
    Epsv::Reply("501 arguments?"),
    Epsv::Reply("502 no"),
    Epsv::Reply("503 order?"),
    Epsv::Reply("504 no"),
    Epsv::Reply("522 (1)"),
    Epsv::Reply("530 not for you"),
    Epsv::Reply("550 denied"),
    Epsv::Reply("425 can't open"),
    Epsv::Reply("421 closing, but not yet"),
    Epsv::Reply("200 ok"),
    Epsv::Reply("229 Entering Extended Passive Mode"),
    Epsv::Reply("229-first (|||1|)\r\n229 (|||0|)"),
    Epsv::Reply("999 ?"),
    Epsv::Reply("EPSV unknown"),
    Epsv::Close("421 closing\r\n"),
    Epsv::Close(""),
    Epsv::DeadPort,
    Epsv::Refuse("425 no data connection"),
    Epsv::Refuse("426 data connection reset"),
];

#[test]
fn falls_back_to_pasv_whatever_goes_wrong_with_epsv() {
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    for peers in [vec![], vec!["--peer", &peer]] {
        let relay = Relay::start(&[&["--http", ANY], &peers[..]].concat());
        for epsv in BROKEN {
            let (server, at) = Server::start(epsv, &[]);
            let found = ask(&relay, "GET", &format!("ftp://{at}/a.txt"), b"");
            assert_eq!(found, (200, CONTENT.to_vec()), "{epsv:?}");
            let (status, page) = ask(&relay, "GET", &format!("ftp://{at}/sub/"), b"");
            let page = String::from_utf8_lossy(&page).into_owned();
            assert_eq!(status, 200, "{epsv:?}");
            assert!(
                page.contains("href=\"./%93%FA%96%7B.txt\""),
                "{epsv:?}: {page}"
            );
            let stored = ask(&relay, "PUT", &format!("ftp://{at}/b.txt"), b"mine");
            assert_eq!(stored.0, 204, "{epsv:?}");
            assert_eq!(*server.uploaded.lock().unwrap(), b"mine", "{epsv:?}");
            assert_eq!(server.count("EPSV"), 3, "one for each request: {epsv:?}");
        }
    }
}

/// A server that announces the transfer and then can't use the data connection, which stays open.
#[test]
fn acts_on_refusal_after_the_start_of_a_transfer() {
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    // No time-out ends a transfer.
    let patient = ["--http", ANY, "--response-timeout", "10m"];
    for peers in [vec![], vec!["--peer", &peer]] {
        let relay = Relay::start(&[&patient, &peers[..]].concat());
        for line in ["425 no data connection", "426 data connection reset"] {
            let (server, at) = Server::start(Epsv::RefuseLate(line), &[]);
            let found = ask(&relay, "GET", &format!("ftp://{at}/a.txt"), b"");
            assert_eq!(found, (200, CONTENT.to_vec()), "{line}");
            assert_eq!(ask(&relay, "GET", &format!("ftp://{at}/sub/"), b"").0, 200);
            assert_eq!((server.count("EPSV"), server.count("PASV")), (2, 2));
            // Bytes of the upload are gone, so it is not repeated.
            let stored = ask(&relay, "PUT", &format!("ftp://{at}/b.txt"), b"mine");
            assert_eq!(stored.0, 503, "{line}");
        }
        let (_server, at) =
            Server::start(Epsv::RefuseLate("550 no such file"), &[("CWD ", "550 no")]);
        assert_eq!(ask(&relay, "GET", &format!("ftp://{at}/a.txt"), b"").0, 404);
    }
}

/// As behind a firewall that swallows commands that it does not know.
#[test]
fn falls_back_to_pasv_if_epsv_has_no_answer() {
    let relay = Relay::start(&["--http", ANY, "--response-timeout", "1s"]);
    let (server, at) = Server::start(Epsv::Silent, &[]);
    let found = ask(&relay, "GET", &format!("ftp://{at}/a.txt"), b"");
    assert_eq!(found, (200, CONTENT.to_vec()));
    assert_eq!((server.count("EPSV"), server.count("PASV")), (1, 1));
}

#[test]
fn error_names_the_port_that_failed() {
    let relay = Relay::start(&["--http", ANY]);
    let (_closed, dead) = refusing_address();
    let [high, low] = dead.port().to_be_bytes();
    let pasv = format!("227 Entering Passive Mode (127,0,0,1,{high},{low}).").leak();
    let replies = vec![("PASV", &*pasv)].leak();
    let (_server, at) = Server::start(Epsv::DeadPort, replies);
    let (status, text) = ask(&relay, "GET", &format!("ftp://{at}/a.txt"), b"");
    let text = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(status, 502, "{text}");
    assert!(
        text.contains(&format!("no data connection to {dead}")),
        "{text}"
    );
}

/// The working directory and the first byte are those of the request on the new control connection, too.
#[test]
fn repeats_login_and_directory_on_a_new_control_connection() {
    let relay = Relay::start(&["--http", ANY]);
    let (server, at) = Server::start(Epsv::Close(""), &[]);
    assert_eq!(ask(&relay, "GET", &format!("ftp://{at}/sub/"), b"").0, 200);
    for verb in ["USER", "PASS", "TYPE", "CWD sub/\r\n"] {
        assert_eq!(server.count(verb), 2, "{verb}");
    }
    assert_eq!((server.count("EPSV"), server.count("PASV")), (1, 1));
}

#[test]
fn keeps_to_epsv_where_it_works() {
    let relay = Relay::start(&["--http", ANY]);
    let (server, at) = Server::start(Epsv::Works, &[]);
    assert_eq!(ask(&relay, "GET", &format!("ftp://{at}/a"), b"").0, 200);
    assert_eq!((server.count("EPSV"), server.count("PASV")), (1, 0));
}

#[test]
fn code_is_judged_by_the_command_that_got_it() {
    let relay = Relay::start(&["--http", ANY]);
    for (replies, method, status) in [
        (&[("PASS", "202 not needed")][..], "GET", 200),
        (&[("USER", "230 in")], "GET", 200),
        (&[("USER", "232 in")], "GET", 200),
        (&[("PASS", "430 wrong")], "GET", 401),
        (&[("PASS", "530 wrong")], "GET", 401),
        (&[("PASS", "332 account?")], "GET", 401),
        (&[("PASS", "331 again?")], "GET", 401),
        (&[("USER", "550 who?")], "GET", 401),
        (&[("USER", "421 too many")], "GET", 503),
        (&[("TYPE", "550 no")], "GET", 502),
        (&[("SIZE", "550 no"), ("MDTM", "421 no")], "GET", 200),
        (&[("RETR", "550 no"), ("CWD ", "550 no")], "GET", 404),
        (&[("RETR", "550 no")], "GET", 301),
        (&[("STOR", "550 no")], "PUT", 403),
        (&[("STOR", "522 no")], "PUT", 502),
        // Both commands fail: the reason is that of PASV, and no file is missing.
        (&[("EPSV", "550 no"), ("PASV", "550 no")], "GET", 502),
        (&[("EPSV", "550 no"), ("PASV", "550 no")], "PUT", 502),
        (&[("EPSV", "425 no"), ("PASV", "425 no")], "GET", 503),
    ] {
        let (_server, at) = Server::start(Epsv::Works, replies);
        let found = ask(&relay, method, &format!("ftp://{at}/a"), b"").0;
        assert_eq!(found, status, "{method} {replies:?}");
    }
}

#[test]
fn names_are_bytes() {
    let relay = Relay::start(&["--http", ANY]);
    let (server, at) = Server::start(Epsv::Works, &[]);
    for (name, bytes) in [
        ("%93%FA%96%7B.txt", &b"\x93\xfa\x96{.txt"[..]),
        ("%C9t%E9.txt", b"\xc9t\xe9.txt"),
        ("%C6%FC%CB%DC.txt", b"\xc6\xfc\xcb\xdc.txt"),
        ("%20lead.txt", b" lead.txt"),
        ("%ff%fe", b"\xff\xfe"),
        ("what?", b"what?"),
    ] {
        let found = ask(&relay, "GET", &format!("ftp://{at}/{name}"), b"");
        assert_eq!(found, (200, CONTENT.to_vec()), "{name}");
        let command = [b"RETR ", bytes, b"\r\n"].concat();
        assert!(server.commands.lock().unwrap().contains(&command), "{name}");
    }
    for two_commands in ["a%0d%0aDELE%20b", "a%0aDELE%20b", "a%0d", "a%00"] {
        let found = ask(&relay, "GET", &format!("ftp://{at}/{two_commands}"), b"");
        assert_eq!(found.0, 400, "{two_commands}");
    }
    assert_eq!(server.count("DELE"), 0);
}

/// A server can't make the relay hold more than a reply.
#[test]
fn endless_reply_is_refused() {
    let relay = Relay::start(&["--http", ANY]);
    let (listener, at) = listen_as_origin();
    std::thread::spawn(move || {
        let mut client = accept(&listener);
        while client.write_all(b"220-and so on\r\n").is_ok() {}
    });
    let (status, text) = ask(&relay, "GET", &format!("ftp://{at}/a"), b"");
    let text = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(status, 502, "{text}");
    assert!(text.contains("longer than"), "{text}");
}
