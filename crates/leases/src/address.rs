// SPDX-License-Identifier: MIT OR Apache-2.0
//! Address of the PostgreSQL server, and the time limits of connections to it.

use crate::error::Error;
use std::{fmt::Write, time::Duration};
use tokio_postgres::config::{Config, Host, TargetSessionAttrs};

/// Time limit for a connection attempt to one address of the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle time after which TCP keepalive probes are sent.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// Interval between keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Number of unanswered probes after which a connection counts as broken.
const KEEPALIVE_RETRIES: u32 = 3;
/// Time without an ACK of sent data after which a connection counts as broken.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(25);

/// Parses a server's address. Time limits that the address does not set get the defaults above.
pub(crate) fn parse(text: &str) -> Result<Config, Error> {
    let mut config: Config = text.parse().map_err(Error::Address)?;
    if config.get_application_name().is_none() {
        config.application_name("longhaul");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(TCP_USER_TIMEOUT);
    }
    // If the address has several hosts, the one that accepts writes is used. The others are
    // standbys.
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    set_keepalives(&mut config, text);
    Ok(config)
}

/// Sets the limits of keepalive that the address `text` does not set.
fn set_keepalives(config: &mut Config, text: &str) {
    // The library has a default of two hours, so that its value does not show whether it was set.
    if !text.contains("keepalives_idle") {
        config.keepalives_idle(KEEPALIVE_IDLE);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(KEEPALIVE_INTERVAL);
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(KEEPALIVE_RETRIES);
    }
}

/// Hosts, ports and database, without user and password.
pub(crate) fn label(config: &Config) -> String {
    let mut label = String::new();
    for (number, host) in config.get_hosts().iter().enumerate() {
        let ports = config.get_ports();
        let port = ports.get(number).or(ports.first()).unwrap_or(&5432);
        let comma = if number > 0 { "," } else { "" };
        let _ = match host {
            Host::Tcp(name) => write!(label, "{comma}{name}:{port}"),
            Host::Unix(folder) => write!(label, "{comma}{}:{port}", folder.display()),
        };
    }
    if let Some(database) = config.get_dbname() {
        let _ = write!(label, "/{database}");
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_contain_no_secrets() {
        let config = parse("postgresql://me:secret@one:5433,two:5434/copies").unwrap();
        assert_eq!(label(&config), "one:5433,two:5434/copies");
        let config = parse("host=/run/pg user=me password=secret dbname=copies").unwrap();
        assert_eq!(label(&config), "/run/pg:5432/copies");
    }

    #[test]
    fn keeps_limits_set_in_the_address() {
        let config =
            parse("postgresql://me@one/d?connect_timeout=1&keepalives_interval=2").unwrap();
        assert_eq!(config.get_connect_timeout(), Some(&Duration::from_secs(1)));
        assert_eq!(
            config.get_keepalives_interval(),
            Some(Duration::from_secs(2))
        );
        assert_eq!(config.get_tcp_user_timeout(), Some(&TCP_USER_TIMEOUT));
    }

    #[test]
    fn each_keepalive_limit_can_be_set_alone() {
        let config = parse("postgresql://me@one/d?keepalives_idle=7").unwrap();
        assert_eq!(config.get_keepalives_idle(), Duration::from_secs(7));
        assert_eq!(config.get_keepalives_interval(), Some(KEEPALIVE_INTERVAL));
        let config = parse("host=one user=me keepalives_retries=9").unwrap();
        assert_eq!(config.get_keepalives_idle(), KEEPALIVE_IDLE);
        assert_eq!(config.get_keepalives_retries(), Some(9));
    }

    #[test]
    fn errors_name_the_mistake_and_no_secret() {
        for (text, word) in [
            ("postgresql://me:secret@one/d?sslmode=perhaps", "sslmode"),
            ("postgresql://me:secret@one/d?colour=red", "colour"),
            ("host=one password=secret port=many", "port"),
        ] {
            let error = parse(text).unwrap_err();
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(next) = cause {
                let _ = write!(text, ": {next}");
                cause = next.source();
            }
            assert!(text.contains(word) && !text.contains("secret"), "{text}");
        }
    }
}
