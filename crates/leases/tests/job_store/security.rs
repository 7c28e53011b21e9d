// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rights, passwords and TLS, and the errors when they are wrong.

use crate::test_database::{LONG, TestDatabase, database_name, task};
use longhaul_leases::{Error, JobStore};
use longhaul_testprograms::{
    postgres::{Server, Setup},
    wait::wait_until,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::{error, fmt::Write, fs, net::TcpListener};

/// Complete text of an error, as a user sees it.
fn full_text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error::Error::source(error);
    while let Some(next) = cause {
        let _ = write!(text, ": {next}");
        cause = next.source();
    }
    text
}

fn refusal_text(opened: Result<JobStore, Error>) -> String {
    let error = opened.err().expect("it is refused");
    assert!(!error.is_unreachable(), "{error:?}");
    full_text(&error)
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn rejects_tables_of_another_format() {
    let database = TestDatabase::new();
    database.sql("UPDATE longhaul.format SET number = 2");
    let text = refusal_text(JobStore::open(&database.url));
    assert!(
        text.contains("format 2") && text.contains("format 1"),
        "{text}"
    );
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn existing_tables_need_no_create_right() {
    let database = TestDatabase::new();
    let other = Server::shared().create_database();
    let worker = |url: &str| url.replace("longhaul@", "worker@");
    database.sql(
        "CREATE ROLE worker LOGIN; GRANT USAGE ON SCHEMA longhaul TO worker;
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA longhaul TO worker;
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA longhaul TO worker;",
    );
    let store = JobStore::open(&worker(&database.url)).unwrap();
    let job = store.join(b"job", b"", &task("plan")).unwrap();
    let acquired = store.acquire(job, "worker", 1, LONG).unwrap();
    assert_eq!(
        store.add_tasks(acquired[0].token, &[task("a")]).unwrap(),
        Some(1)
    );
    assert!(store.complete(acquired[0].token, b"").unwrap() && store.delete_job(job).unwrap());
    let text = refusal_text(JobStore::open(&worker(&other)));
    assert!(text.contains("permission denied for database"), "{text}");
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn wrong_password_is_refused_and_not_shown() {
    let server = Setup::default()
        .listen("127.0.0.1:0".parse().unwrap())
        .start();
    let url = server.create_database();
    assert!(JobStore::open(&url).is_ok());
    let (_, host) = url.split_once('@').unwrap();
    let text = refusal_text(JobStore::open(&format!(
        "postgresql://longhaul:wrong1@{host}"
    )));
    assert!(text.contains("password authentication failed"), "{text}");
    assert!(
        !text.contains("wrong1") && text.contains("127.0.0.1"),
        "{text}"
    );
    let text = refusal_text(JobStore::open(&format!("{url}?sslmode=require")));
    assert!(text.contains("server does not support TLS"), "{text}");
}

#[test]
fn missing_server_counts_as_unreachable() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let error = JobStore::open(&format!("postgresql://me@{free}/d"))
        .err()
        .unwrap();
    assert!(
        error.is_unreachable() && full_text(&error).contains("refused"),
        "{error:?}"
    );
    let error = JobStore::open("host=/nonexistent user=me dbname=d")
        .err()
        .unwrap();
    assert!(error.is_unreachable(), "{error:?}");
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn standby_counts_as_unreachable() {
    let database = TestDatabase::new();
    let name = database_name(&database.url);
    database.sql(&format!(
        "ALTER DATABASE {name} SET default_transaction_read_only = on"
    ));
    let error = JobStore::open(&database.url).err().unwrap();
    assert!(
        error.is_unreachable() && full_text(&error).contains("does not allow writes"),
        "{error:?}"
    );
}

/// Certificate authority, and a certificate that it issued for a server at 127.0.0.1, in PEM
/// format.
struct Certificates {
    authority: String,
    server: String,
    key: String,
}

impl Certificates {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&authority_key).unwrap();
        let issuer = Issuer::from_params(&params, &authority_key);
        let key = KeyPair::generate().unwrap();
        let server = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let server = server.signed_by(&key, &issuer).unwrap();
        Self {
            authority: authority.pem(),
            server: server.pem(),
            key: key.serialize_pem(),
        }
    }
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn tls_verifies_certificate_and_host_name() {
    let certificates = Certificates::new();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let ours = file("authority.pem", &certificates.authority);
    let theirs = file("other.pem", &Certificates::new().authority);
    let server = Setup::default()
        .listen("127.0.0.1:0".parse().unwrap())
        .certificate(&certificates.server, &certificates.key)
        .start();
    let url = server.create_database();
    let encrypted = || {
        server.run_sql("postgres",
        "SELECT count(*) FILTER (WHERE ssl), count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'longhaul'")
    };

    for mode in ["require", "prefer"] {
        let url = format!("{url}?sslmode={mode}");
        let store = JobStore::open_with_authorities(&url, &ours).unwrap();
        assert_eq!(encrypted(), "1|1", "{mode}");
        drop(store);
        // The session ends when the server notices that the client has closed.
        wait_until(|| encrypted() == "0|0");
        for opened in [
            JobStore::open(&url),
            JobStore::open_with_authorities(&url, &theirs),
        ] {
            let text = refusal_text(opened);
            assert!(
                text.contains("UnknownIssuer") || text.contains("certificate"),
                "{text}"
            );
        }
        let elsewhere = url.replace("127.0.0.1", "localhost");
        let text = refusal_text(JobStore::open_with_authorities(&elsewhere, &ours));
        assert!(text.contains("not valid for"), "{text}");
    }
    let store = JobStore::open_with_authorities(&format!("{url}?sslmode=disable"), &ours).unwrap();
    assert_eq!(encrypted(), "0|1");
    drop(store);
    let text = refusal_text(JobStore::open_with_authorities(
        &url,
        &file("empty.pem", ""),
    ));
    assert!(text.contains("contains no certificate"), "{text}");
}

/// Self-signed, as Debian creates them. A client that has the file may trust it.
#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn self_signed_certificate_can_be_trusted() {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.pem");
    fs::write(&file, &certificate).unwrap();
    let server = Setup::default()
        .listen("127.0.0.1:0".parse().unwrap())
        .certificate(&certificate, &key.serialize_pem())
        .start();
    let url = server.create_database();
    refusal_text(JobStore::open(&url));
    JobStore::open_with_authorities(&format!("{url}?sslmode=require"), &file).unwrap();
}
