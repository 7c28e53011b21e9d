// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul site` on loopback: copies in, out and between sites, authentication, confinement, limits and shutdown.

use crate::site_process::{
    Client, Home, SiteProcess, WAIT_LIMIT, listing, make_tree, wait_for_exit, web::wait_until,
};
use rustix::process::Signal;
use socket2::{Domain, Socket, Type};
use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn copies_to_a_site_and_back_and_to_another_site() {
    let (near, far) = (Home::new(), Home::new());
    let tokens = [near.token(&["new", "me"]), far.token(&["new", "me"])];
    let (a, b) = (near.site(&[]), far.site(&[]));
    let client = Client::with_tokens(&[(&a, &tokens[0]), (&b, &tokens[1])]);
    let folder = tempfile::tempdir().unwrap();
    let (from, back) = (folder.path().join("from"), folder.path().join("back"));
    make_tree(&from);
    client.copy(&[text(&from), &a.at("")]);
    assert_eq!(listing(&near.data().join("from")), listing(&from));
    client.copy(&[&a.at("/from/"), &b.at("/renamed")]);
    assert_eq!(listing(&far.data().join("renamed")), listing(&from));
    client.copy(&[&b.at("/renamed/"), text(&back)]);
    assert_eq!(listing(&back), listing(&from));
    let again = client.copy(&[&a.at("/from/"), &b.at("/renamed")]);
    assert_eq!(
        (&again["copied"], &again["sent_bytes"]),
        (&0.into(), &0.into())
    );
    // The whole export, by its name.
    client.copy(&[&b.at(""), text(folder.path())]);
    assert_eq!(listing(&folder.path().join("data/renamed")), listing(&from));
}

/// The program in place of ssh drops the host and runs the command here.
#[test]
fn copies_between_a_site_and_ssh() {
    let home = Home::new();
    let token = home.token(&["new", "me"]);
    let site = home.site(&[]);
    let folder = tempfile::tempdir().unwrap();
    let (from, ssh) = (folder.path().join("from"), folder.path().join("ssh"));
    make_tree(&from);
    let script = "#!/bin/sh\nshift 2\nSSH_CONNECTION='127.0.0.1 1 127.0.0.1 2' exec \"$@\"\n";
    fs::write(&ssh, script).unwrap();
    fs::set_permissions(&ssh, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let client = Client::with_tokens(&[(&site, &token)]);
    let by_ssh = |path: &str| format!("host:{}/{path}", text(folder.path()));
    let options = [
        "--ssh",
        text(&ssh),
        "--remote-program",
        longhaul_testprograms::longhaul(),
    ];
    client.copy(&[&options[..], &[&by_ssh("from"), &site.at("")]].concat());
    client.copy(&[&options[..], &[&site.at("/from/"), &by_ssh("back")]].concat());
    assert_eq!(listing(&home.data().join("from")), listing(&from));
    assert_eq!(listing(&folder.path().join("back")), listing(&from));
}

#[test]
fn creates_parent_directories_of_a_target() {
    let home = Home::new();
    let token = home.token(&["new", "me"]);
    let site = home.site(&[]);
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    make_tree(&from);
    let client = Client::with_tokens(&[(&site, &token)]);
    let mut dry = client.command(&["--dry-run", text(&from), &site.at("/a/b/c")]);
    assert!(dry.status().unwrap().success());
    assert!(!home.data().join("a").exists());
    client.copy(&[text(&from), &site.at("/a/b/c")]);
    client.copy(&[&site.at("/a/b/c/"), &site.at("/d/e/f/")]);
    for made in ["a/b/c", "d/e/f"] {
        assert_eq!(listing(&home.data().join(made)), listing(&from), "{made}");
    }
    symlink(folder.path(), home.data().join("out")).unwrap();
    client.copy_fails(2, &[text(&from), &site.at("/out/x/y")]);
    assert!(!folder.path().join("x").exists(), "beyond the export");
}

/// Two sites export the same directory, which a distributed copy refuses.
#[test]
fn removes_created_directories_after_a_refused_check() {
    let (near, far) = (Home::new(), Home::new());
    fs::remove_dir(far.data()).unwrap();
    symlink(near.data(), far.data()).unwrap();
    let tokens = [near.token(&["new", "me"]), far.token(&["new", "me"])];
    let (a, b) = (near.site(&[]), far.site(&[]));
    let client = Client::with_tokens(&[(&a, &tokens[0]), (&b, &tokens[1])]);
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    make_tree(&from);
    fs::create_dir(near.data().join("old")).unwrap();
    let target = format!("longhaul://{},{}/data/old/new/deep", a.address, b.address);
    let refusal = client.copy_fails(2, &["--distributed", "target", text(&from), &target]);
    assert!(
        refusal.contains("sees what is in the target's directory"),
        "{refusal}"
    );
    assert!(near.data().join("old").is_dir());
    assert!(!near.data().join("old/new").exists());
}

#[test]
fn refuses_a_target_in_the_source_if_one_of_them_is_exported() {
    let home = Home::new();
    let token = home.token(&["new", "me"]);
    let site = home.site(&[]);
    make_tree(&home.data().join("dir"));
    let client = Client::with_tokens(&[(&site, &token)]);
    let before = listing(&home.data());
    let (all, dir) = (home.data(), home.data().join("dir"));
    let new = dir.join("new");
    for (source, target) in [
        (text(&all), site.at("/dir/new")),
        (text(&dir), site.at("/dir")),
        (&site.at("/dir"), text(&new).to_owned()),
        (&site.at(""), text(&new).to_owned()),
        (&site.at("/dir"), site.at("/dir/new")),
        (&site.at("/dir"), site.at("")),
    ] {
        let message = client.copy_fails(2, &[source, &target]);
        assert!(
            message.contains("itself") || message.contains("the same"),
            "{message}"
        );
        assert_eq!(listing(&home.data()), before, "{source} {target}");
    }
    client.copy_fails(2, &["--delete", &site.at("/dir/"), text(&all)]);
    assert_eq!(listing(&home.data()), before);
}

#[test]
fn accepts_only_valid_tokens() {
    let home = Home::new();
    let all = home.token(&["new", "all"]);
    let [other, reader] = [
        home.token(&["new", "other", "--export", "elsewhere"]),
        home.token(&["new", "reader", "--read-only"]),
    ];
    let read_only = format!("closed={}", home.data().display());
    let site = home.site(&["--export-ro", &read_only]);
    fs::write(home.data().join("file"), "x").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let here = text(folder.path());
    let source = folder.path().join("source");
    fs::write(&source, "y").unwrap();
    let with = |token: &str| Client::with_tokens(&[(&site, token)]);

    let message = with(&other).copy_fails(2, &[&site.at("/file"), here]);
    assert!(message.contains("no such export for other"), "{message}");
    let closed = format!("longhaul://{}/closed", site.address);
    for (token, place) in [(&reader, site.at("")), (&all, closed.clone())] {
        let message = with(token).copy_fails(2, &[text(&source), &place]);
        assert!(message.contains("may only be read"), "{message}");
        assert!(message.contains("with --export "), "{message}");
        with(token).copy(&[&format!("{place}/file"), here]);
        fs::remove_file(folder.path().join("file")).unwrap();
    }
    // A random token, one of another site, and a removed one.
    let (key, _) = all.rsplit_once('.').unwrap();
    let (_, secret) = Home::new()
        .token(&["new", "x"])
        .rsplit_once('.')
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    let message = with(&format!("{key}.{secret}")).copy_fails(2, &[&site.at("/file"), here]);
    assert!(message.contains("not valid at this site"), "{message}");
    let stranger = Home::new().token(&["new", "all"]);
    let message = with(&stranger).copy_fails(2, &[&site.at("/file"), here]);
    assert!(message.contains("another key"), "{message}");
    home.token(&["remove", "all"]);
    with(&all).copy_fails(2, &[&site.at("/file"), here]);
    assert!(
        home.token(&["list"])
            .starts_with("other: read and write elsewhere, since ")
    );
    let names = |of: &Path| listing(of).into_keys().collect::<Vec<_>>();
    assert_eq!(names(folder.path()), [Path::new("source")]);
    assert_eq!(names(&home.data()), [Path::new("file")]);
}

#[test]
fn stores_no_secret() {
    let home = Home::new();
    let token = home.token(&["new", "me"]);
    let secret = token.rsplit('.').next().unwrap();
    for entry in fs::read_dir(home.state()).unwrap() {
        let kept = fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!kept.contains(secret));
    }
    let site = home.site(&[]);
    assert!(token.contains(&site.fingerprint));
    let again = site.fingerprint.clone();
    site.end(Signal::TERM);
    assert_eq!(home.site(&[]).fingerprint, again, "the key stays");
}

#[test]
fn confines_copies_to_the_export() {
    let home = Home::new();
    let outside = home.data().parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    symlink("../outside", home.data().join("link")).unwrap();
    symlink("..", home.data().join("up")).unwrap();
    let token = home.token(&["new", "me"]);
    let site = home.site(&[]);
    let client = Client::with_tokens(&[(&site, &token)]);
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    fs::write(&source, "x").unwrap();
    for path in [
        "/../outside",
        "/link/secret",
        "/up/outside/secret",
        "/./link",
        "//",
        "/.longhaul-0.x",
    ] {
        let message = client.copy_fails(2, &[&site.at(path), text(folder.path())]);
        assert!(
            !message.contains(text(&outside)),
            "it says where things are: {message}"
        );
        client.copy_fails(2, &[text(&source), &site.at(&format!("{path}/"))]);
    }
    let message = client.copy_fails(
        2,
        &["--encrypt", "off", &site.at("/link"), text(folder.path())],
    );
    assert!(message.contains("a site encrypts"), "{message}");
    // Symbolic links are copied as links. A file in the place of a link replaces it.
    client.copy(&[&site.at("/link"), text(folder.path())]);
    assert_eq!(
        fs::read_link(folder.path().join("link")).unwrap(),
        Path::new("../outside")
    );
    client.copy(&[text(&source), &site.at("/link")]);
    assert_eq!(fs::read_to_string(home.data().join("link")).unwrap(), "x");
    let there: Vec<_> = fs::read_dir(&outside).unwrap().collect();
    assert_eq!(there.len(), 1, "{there:?}");
    assert_eq!(
        fs::read_to_string(outside.join("secret")).unwrap(),
        "secret"
    );
}

/// TLS client that accepts any key, and sends arbitrary bytes.
struct Raw(rustls::StreamOwned<rustls::ClientConnection, TcpStream>);

impl Raw {
    fn open(site: &SiteProcess, protocol: &[u8]) -> std::io::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone))
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = "longhaul".try_into().unwrap();
        let tls = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let socket = TcpStream::connect(site.address)?;
        socket.set_read_timeout(Some(WAIT_LIMIT))?;
        let mut stream = rustls::StreamOwned::new(tls, socket);
        stream.conn.complete_io(&mut stream.sock)?;
        Ok(Self(stream))
    }

    /// Sends the request of a client for the export `data`: postcard after a length.
    fn authenticating(site: &SiteProcess, token: &str) -> Self {
        use base64::Engine as _;
        let secret = token.rsplit('.').next().unwrap();
        let secret = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(secret);
        let mut raw = Self::open(site, b"longhaul-site/1").unwrap();
        let request = [&secret.unwrap()[..], b"\x04data"].concat();
        raw.0
            .write_all(&(request.len() as u32).to_be_bytes())
            .unwrap();
        raw.0.write_all(&request).unwrap();
        raw
    }

    /// Returns the kind of the response: 0 is accepted, 2 is busy.
    fn response_kind(&mut self) -> u8 {
        let mut response = [0; 5];
        self.0.read_exact(&mut response).unwrap();
        response[4]
    }

    /// Reads all remaining bytes.
    fn read_rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // The connection may be cut.
        let _ = self.0.read_to_end(&mut rest);
        rest
    }
}

#[derive(Debug)]
struct Anyone;

impl rustls::client::danger::ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 only".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        let provider = rustls::crypto::ring::default_provider();
        provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[test]
fn rejects_invalid_handshakes() {
    let home = Home::new();
    let token = home.token(&["new", "me"]);
    let site = home.site(&[]);
    // No TLS, another ALPN protocol, a request that is too long, no request, and an invalid one.
    let mut plain = TcpStream::connect(site.address).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(
        site.wait_for("refused")["reason"]
            .as_str()
            .unwrap()
            .contains("no TLS")
    );
    assert!(Raw::open(&site, b"h2").is_err());
    for question in [&[0xff_u8; 4][..], &[0, 0, 0, 3, 9, 9, 9], &[0, 0, 0, 0]] {
        let mut raw = Raw::open(&site, b"longhaul-site/1").unwrap();
        raw.0.write_all(question).unwrap();
        assert_eq!(raw.read_rest(), b"");
    }
    drop(Raw::open(&site, b"longhaul-site/1"));
    assert_eq!(
        site.child_processes(),
        Vec::<u32>::new(),
        "nothing was started for them"
    );
    // A valid token, followed by invalid messages for the endpoint.
    let mut raw = Raw::authenticating(&site, &token);
    assert_eq!(raw.response_kind(), 0);
    raw.0.write_all(&[0xff; 100]).unwrap();
    raw.read_rest();
    assert_eq!(site.next()["event"], "copy_started", "a burst is one line");
    site.wait_for("copy_ended");
    let folder = tempfile::tempdir().unwrap();
    make_tree(&folder.path().join("from"));
    Client::with_tokens(&[(&site, &token)])
        .copy(&[text(&folder.path().join("from")), &site.at("")]);
}

/// Silent connections are limited: beyond the limits new ones are closed at once. One address does not block the
/// others.
#[test]
fn limits_silent_connections() {
    let home = Home::new();
    let site = home.site(&[]);
    let connect = |from: [u8; 4]| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        socket.connect(&site.address.into()).unwrap();
        TcpStream::from(socket)
    };
    let is_closed = |mut stream: TcpStream| {
        stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    };
    let silent: Vec<_> = (0..32).map(|_| connect([127, 0, 0, 2])).collect();
    is_closed(connect([127, 0, 0, 2]));
    let crowd = site.wait_for("refused");
    assert!(crowd["client"].as_str().unwrap().starts_with("127.0.0.2:"));
    assert!(Raw::open(&site, b"longhaul-site/1").is_ok());
    site.wait_for("refused");
    let others: Vec<_> = (0..32).map(|_| connect([127, 0, 0, 3])).collect();
    is_closed(connect([127, 0, 0, 4]));
    drop((silent, others));
    wait_until(|| Raw::open(&site, b"longhaul-site/1").is_ok());
}

#[test]
fn limits_concurrent_copies() {
    let home = Home::new();
    let token = home.token(&["new", "me"]);
    let site = home.site(&["--copies-max", "1"]);
    let mut first = Raw::authenticating(&site, &token);
    assert_eq!(first.response_kind(), 0);
    assert_eq!(Raw::authenticating(&site, &token).response_kind(), 2);
    let folder = tempfile::tempdir().unwrap();
    let message =
        Client::with_tokens(&[(&site, &token)]).copy_fails(1, &[&site.at(""), text(folder.path())]);
    assert!(message.contains("busy with 1 copies"), "{message}");
    drop(first);
    site.wait_for("copy_ended");
    assert_eq!(Raw::authenticating(&site, &token).response_kind(), 0);
}

#[test]
fn stops_endpoints_at_shutdown() {
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let home = Home::new();
        let token = home.token(&["new", "me"]);
        let site = home.site(&[]);
        let mut client = Raw::authenticating(&site, &token);
        assert_eq!(client.response_kind(), 0);
        // The greeting shows that the endpoint runs.
        client.0.read_exact(&mut [0; 16]).unwrap();
        let ends = site.child_processes();
        assert_eq!(ends.len(), 1);
        let status = site.end(signal);
        match signal {
            Signal::KILL => {}
            _ => assert_eq!(status.code(), Some(0)),
        }
        wait_for_exit(ends[0]);
    }
}

#[test]
fn stops_an_endpoint_when_its_client_disconnects() {
    let home = Home::new();
    let token = home.token(&["new", "me"]);
    let site = home.site(&[]);
    let mut client = Raw::authenticating(&site, &token);
    assert_eq!(client.response_kind(), 0);
    site.wait_for("copy_started");
    drop(client);
    site.wait_for("copy_ended");
    assert_eq!(site.child_processes(), Vec::<u32>::new());
}

/// The copy resumes, whichever process of the site is killed, at any time.
#[test]
fn copy_resumes_after_sigkill_of_the_site() {
    let home = Home::new();
    let token = home.token(&["new", "me"]);
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    make_tree(&from);
    fs::write(from.join("more"), vec![7; 60 << 20]).unwrap();
    let mut site = home.site(&[]);
    let client = Client::with_tokens(&[(&site, &token)]);
    let mut copy = client.command(&["--streams", "2", text(&from), &site.at("")]);
    let copy = copy
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let address = site.address.to_string();
    // A copy does not wait for a site that is unreachable at first, but for one that was reached before.
    wait_until(|| home.data().join("from").exists());
    for kill_the_site in [true, false, true] {
        site.wait_for("copy_started");
        match site.child_processes().first() {
            Some(end) if !kill_the_site => {
                let killed = Command::new("kill").args(["-9", &end.to_string()]).status();
                assert!(killed.unwrap().success());
            }
            _ => {
                site.end(Signal::KILL);
                site = SiteProcess::spawn(home.command(&["--listen", &address]));
            }
        }
    }
    let output = copy.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{message}");
    assert!(message.contains("retrying in"), "{message}");
    assert_eq!(listing(&home.data().join("from")), listing(&from));
}

fn refusal_message(arguments: &[&str]) -> String {
    let output = Command::new("timeout")
        .args(["20", longhaul_testprograms::longhaul(), "site"])
        .args(arguments)
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert_eq!(output.stdout, b"");
    message
}

#[test]
fn refuses_invalid_sites_before_creating_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let state = at("state");
    fs::create_dir(at("dir")).unwrap();
    fs::write(at("file"), "").unwrap();
    let export = format!("data={}", at("dir"));
    let site = |rest: &[&str]| refusal_message(&[&["--state", &state, "--as-root"], rest].concat());
    assert!(site(&["--export", &format!("data={}", at("none"))]).contains("none: No such file"));
    assert!(site(&["--export", &format!("data={}", at("file"))]).contains("not a directory"));
    assert!(
        site(&["--export", &export, "--export-ro", &export])
            .contains("two exports are called data")
    );
    assert!(site(&["--export", "../x=/"]).contains("not a name for an export"));
    assert!(site(&[]).contains("--export"));
    if rustix::process::geteuid().is_root() {
        let message = refusal_message(&["--state", &state, "--export", &export]);
        assert!(message.contains("--as-root"), "{message}");
    }
    assert!(!Path::new(&state).exists());
    let message = refusal_message(&["token", "new", "a/b", "--state", &state]);
    assert!(message.contains("not a name for a token"), "{message}");
    let home = Home::new();
    home.token(&["new", "me"]);
    let message = refusal_message(&["token", "new", "me", "--state", &home.state()]);
    assert!(message.contains("there is a token of me"), "{message}");
    refusal_message(&["token", "remove", "you", "--state", &home.state()]);
    fs::set_permissions(
        home.state(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let message = refusal_message(&["--export", &export, "--as-root", "--state", &home.state()]);
    assert!(message.contains("chmod 700"), "{message}");
    for state in [at("file"), "/proc/longhaul".to_owned()] {
        let message = refusal_message(&["token", "new", "me", "--state", &state]);
        assert!(message.contains("--state names another"), "{message}");
    }
    let message = refusal_message(&["token", "new", "me", "--export", "a/b"]);
    assert!(message.contains("not a name for an export"), "{message}");
}

#[test]
fn warns_of_a_token_for_an_export_that_the_site_lacks() {
    let home = Home::new();
    drop(home.site(&[]));
    let warnings = |name: &str, export: &str| {
        let output = home.token_command(&["new", name, "--export", export]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(warnings("alice", "data"), "");
    let warning = warnings("bob", "nope");
    assert!(
        warning.contains("--export nope") && warning.contains("it has data"),
        "{warning}"
    );
}

/// Entries from a site of another user get no owner, rights or devices here, unless the user asks for them.
#[test]
fn sends_no_privileges_unless_the_source_is_trusted() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root for owners and devices");
        return;
    }
    let home = Home::new();
    let token = home.token(&["new", "me"]);
    let site = home.site(&[]);
    let client = Client::with_tokens(&[(&site, &token)]);
    let tree = home.data().join("tree");
    make_privileged_tree(&tree);
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name);
    let copy = |arguments: &[&str], from: &str, name: &str| {
        let mut command = client.command(arguments);
        command.args([from, text(&to(name))]);
        let output = command.output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{message}");
        message
    };
    let (site_tree, own) = (site.at("/tree/"), format!("{}/", text(&tree)));
    for (name, arguments, from) in [
        ("of-site", &[][..], site_tree.as_str()),
        ("safe", &["--safe"], &own),
    ] {
        let message = copy(arguments, from, name);
        assert!(
            message.contains("2 devices and fifos were skipped"),
            "{message}"
        );
        assert_eq!(privileges(&to(name), "program"), (0o755, 0, None));
        assert_eq!(privileges(&to(name), "user"), (0o644, 0, None));
        assert!(!to(name).join("null").exists() && !to(name).join("fifo").exists());
        // A second run changes nothing.
        let again = client.copy(&[arguments, &[from, text(&to(name))]].concat());
        assert_eq!(again["copied"], 0, "{again}");
    }
    for (name, arguments, from) in [
        ("trusted", &["--trust-source"][..], site_tree.as_str()),
        ("own", &[], &own),
    ] {
        assert_eq!(copy(arguments, from, name), "");
        let (mode, owner, capability) = privileges(&to(name), "program");
        assert_eq!((mode, owner), (0o4755, 1234));
        assert!(privileges(&to(name), "user").2.is_none() && capability.is_none());
        assert!(privileges(&to(name), "capable").2.is_some());
        assert!(to(name).join("null").exists() && to(name).join("fifo").exists());
    }
    copy(
        &["--chmod", "D700,F600", "--no-devices", "--no-special"],
        &own,
        "private",
    );
    assert_eq!(privileges(&to("private"), "user").0, 0o600);
    assert_eq!(privileges(&to("private"), ".").0, 0o700);
}

/// Returns mode, owner and capability of a file.
fn privileges(tree: &Path, name: &str) -> (u32, u32, Option<Vec<u8>>) {
    let path = tree.join(name);
    let stat = fs::metadata(&path).unwrap();
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(&path, "security.capability", &mut value[..]);
    let capability = length.ok().map(|length| value[..length].to_vec());
    (stat.mode() & 0o7777, stat.uid(), capability)
}

fn make_privileged_tree(tree: &Path) {
    use rustix::fs::{CWD, FileType, Mode, XattrFlags, makedev, mknodat, setxattr};
    fs::create_dir(tree).unwrap();
    for (name, mode) in [("program", 0o4755), ("user", 0o644), ("capable", 0o755)] {
        let path = tree.join(name);
        fs::write(&path, name).unwrap();
        std::os::unix::fs::chown(&path, Some(1234), Some(1234)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    // Version 2, with CAP_NET_RAW permitted and effective (linux/capability.h).
    let capability = [&[1u8, 0, 0, 2, 0, 0x20, 0, 0][..], &[0; 12]].concat();
    setxattr(
        tree.join("capable"),
        "security.capability",
        &capability,
        XattrFlags::empty(),
    )
    .unwrap();
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(
        CWD,
        tree.join("null"),
        FileType::CharacterDevice,
        mode,
        makedev(1, 3),
    )
    .unwrap();
    mknodat(CWD, tree.join("fifo"), FileType::Fifo, mode, 0).unwrap();
}
