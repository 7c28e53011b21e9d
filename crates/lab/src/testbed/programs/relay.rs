// SPDX-License-Identifier: MIT OR Apache-2.0
//! Relays on hosts of the testbed: `longhaul relay`, or another program.

use super::{
    daemon::Daemon,
    proxies::{
        ProxyConfig, dante_command, dante_config, haproxy_command, haproxy_config, squid_command,
        squid_config,
    },
};
use crate::{
    command_check::{self, Refused, longhaul},
    scenario::{
        Relay, RelayProgram,
        config_error::{CheckResult, ConfigError, locate_error},
        relay,
        value::{flags, values_of},
    },
};
use anyhow::{Context, Result, bail};
use longhaul_linux::netns::Netns;
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};
use toml::{Table, Value};

/// Directory of certificates inside the sandbox. They are not among the records, because of the
/// keys.
const CERTIFICATES: &str = "/run/longhaul/certificates";

/// Checks the options of the relay on `host`, and returns its TCP listeners, each with its option.
pub(crate) fn check(host: &str, relay: &Relay) -> Result<Vec<(String, SocketAddr)>, ConfigError> {
    match relay.program {
        RelayProgram::Longhaul => check_longhaul(host, relay),
        other => Ok(ProxyConfig::of(other, &relay.options)?
            .listeners()
            .map(|(option, address)| (option.to_owned(), address))
            .collect()),
    }
}

/// Checks that this machine and user have what the relay on `host` needs, except congestion
/// controls.
pub(crate) fn check_permissions(host: &str, relay: &Relay) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let bare = relay::without_leg_controls(relay);
    let arguments = arguments(&bare, &RelayFiles::scratch(host, scratch.path()))?;
    let mut command = longhaul()?;
    let command = command.args(["relay", "--check-config"]);
    command_check::run(command.args(arguments))
}

/// Checks the options of `longhaul relay`. Messages about the configuration file begin with
/// `config: `, because its path and lines mean nothing to the author of a scenario.
fn check_longhaul(host: &str, relay: &Relay) -> Result<Vec<(String, SocketAddr)>, ConfigError> {
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let bare = relay::without_leg_controls(relay);
    let files = RelayFiles::scratch(host, scratch.path());
    flags(&bare.options)?;
    if let Some(port) = intercepted(relay)
        .iter()
        .find(|text| text.parse::<u64>().is_ok())
    {
        let problem = format!("{port}: name networks and ports, as in '10.9.0.0/16:5201'");
        return locate_error("intercept", Err(problem));
    }
    let arguments = arguments(&bare, &files).map_err(|error| format!("{error:#}"))?;
    match command_check::check("relay", &arguments) {
        Ok(listeners) => check_interception(relay).map(|()| listeners),
        Err(Refused { option, problem }) if option.as_deref() == Some("config") => locate_error(
            "config",
            Err(without_place(&problem, &files.configuration())),
        ),
        Err(refused) => Err(ConfigError::of_option(&relay.options, refused)),
    }
}

/// Returns a message about the configuration file without its path, line and column.
fn without_place(message: &str, file: &Path) -> String {
    let place = format!("{}:", file.display());
    let rest = message.strip_prefix(&place).unwrap_or(message);
    let problem = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ':');
    format!("config: {}", problem.trim_start())
}

/// Refuses a transparent listener to which nothing diverts connections.
fn check_interception(relay: &Relay) -> CheckResult {
    let has = |key| !values_of(&relay.options, key).is_empty();
    let key = match lacks_intercept(&relay.config) {
        true => "config",
        false if has("transparent") && !has("intercept") => "transparent",
        false => return Ok(()),
    };
    let problem = "a transparent listener intercepts nothing without intercept = ['NETWORK:PORT']";
    locate_error(key, Err(problem))
}

/// Files of `longhaul relay`.
struct RelayFiles<'a> {
    /// Name of the relay. A host may have several.
    name: &'a str,
    /// Host of the certificate.
    host: &'a str,
    /// Directory of the configuration file.
    directory: &'a Path,
    /// Directory of certificates.
    certificates: &'a Path,
}

impl<'a> RelayFiles<'a> {
    /// Files in a directory that is removed after a check.
    fn scratch(host: &'a str, directory: &'a Path) -> Self {
        Self {
            name: host,
            host,
            directory,
            certificates: directory,
        }
    }

    fn configuration(&self) -> PathBuf {
        self.directory.join(format!("relay-{}.toml", self.name))
    }
}

/// Returns the relay's flags, and writes its configuration file and certificates, if it has any.
fn arguments(relay: &Relay, files: &RelayFiles<'_>) -> Result<Vec<String>> {
    let mut all = flags(&relay.options).map_err(anyhow::Error::msg)?;
    if !relay.config.is_empty() {
        let path = files.configuration();
        let config = with_certificates(files.host, &relay.config, files.certificates)?;
        let text = toml::to_string(&config)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        all.extend(["--config".to_owned(), path.display().to_string()]);
    }
    Ok(all)
}

/// Replaces every `tls = true` of a listener or peer in `config` by the files of `host`'s
/// certificate, which are created if they do not exist.
fn with_certificates(host: &str, config: &Table, certificates: &Path) -> Result<Table> {
    let mut config = config.clone();
    let peers = config.get_mut("peer").and_then(Value::as_table_mut);
    let peers: Vec<&mut Value> = peers
        .into_iter()
        .flat_map(|all| all.iter_mut())
        .map(|(_, v)| v)
        .collect();
    insert_certificates(host, peers, certificates)?;
    let listeners = config.get_mut("listener").and_then(Value::as_array_mut);
    insert_certificates(
        host,
        listeners.into_iter().flatten().collect(),
        certificates,
    )?;
    Ok(config)
}

fn insert_certificates(host: &str, all: Vec<&mut Value>, certificates: &Path) -> Result<()> {
    for one in all.into_iter().filter_map(Value::as_table_mut) {
        match one.get("tls").and_then(Value::as_bool) {
            Some(true) => one.insert("tls".to_owned(), certificate_files(host, certificates)?),
            Some(false) => one.remove("tls"),
            None => None,
        };
    }
    Ok(())
}

/// Certificate files of `host`.
fn certificate_files(host: &str, certificates: &Path) -> Result<Value> {
    let file = |name: &str| certificates.join(name);
    if !file(&format!("{host}.pem")).exists() {
        let mut command = longhaul()?;
        let command = command.args(["relay", "--make-certificates"]);
        command_check::run(command.arg(certificates).arg(host))?;
    }
    let text = |path: PathBuf| Value::String(path.display().to_string());
    Ok(Value::Table(Table::from_iter([
        ("ca".to_owned(), text(file("ca.pem"))),
        ("certificate".to_owned(), text(file(&format!("{host}.pem")))),
        ("key".to_owned(), text(file(&format!("{host}-key.pem")))),
    ])))
}

/// Whether the configuration file has a transparent listener without `intercept`.
fn lacks_intercept(config: &Table) -> bool {
    listeners(config).any(|listener| {
        let kind = listener.get("kind").and_then(Value::as_str);
        kind == Some("transparent") && values_of(listener, "intercept").is_empty()
    })
}

fn listeners(config: &Table) -> impl Iterator<Item = &Table> {
    let listeners = config.get("listener").and_then(Value::as_array);
    listeners.into_iter().flatten().filter_map(Value::as_table)
}

/// Returns the networks and ports that a relay intercepts, by its options and its configuration.
pub(crate) fn intercepted(relay: &Relay) -> Vec<String> {
    let tables = [&relay.options].into_iter().chain(listeners(&relay.config));
    tables
        .flat_map(|table| values_of(table, "intercept"))
        .collect()
}

/// Host and directories of a relay.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RelayHost<'a> {
    /// Name of the relay, for its records.
    pub(crate) name: &'a str,
    pub(crate) netns: &'a Netns,
    /// Addresses of its host.
    pub(crate) addresses: &'a [Ipv4Addr],
    /// Directory for its records.
    pub(crate) directory: &'a Path,
}

impl RelayHost<'_> {
    fn host(&self) -> &str {
        self.netns.name().unwrap_or("host")
    }
}

/// Starts the relay; ready on return.
pub(crate) async fn start(relay: &Relay, relay_host: &RelayHost<'_>) -> Result<Daemon> {
    match relay.program {
        RelayProgram::Longhaul => start_longhaul(relay, relay_host).await,
        other => start_other(other, relay, relay_host).await,
    }
}

async fn start_longhaul(relay: &Relay, relay_host: &RelayHost<'_>) -> Result<Daemon> {
    let RelayHost {
        name,
        netns,
        directory,
        ..
    } = *relay_host;
    let files = RelayFiles {
        name,
        host: relay_host.host(),
        directory,
        certificates: Path::new(CERTIFICATES),
    };
    let flags = arguments(relay, &files)?;
    let mut command = longhaul()?;
    command.arg("relay").args(flags);
    if !relay.options.contains_key("counters") {
        let counters = directory.join(format!("relay-{name}.jsonl"));
        command.arg("--counters").arg(counters);
    }
    let mut daemon = Daemon::start(&format!("relay-{name}"), command, netns, directory)?;
    daemon.wait_until_printed("listening").await?;
    Ok(daemon)
}

/// Starts another program. Its own files vanish with the sandbox; its configuration is among the
/// records.
async fn start_other(
    program: RelayProgram,
    relay: &Relay,
    relay_host: &RelayHost<'_>,
) -> Result<Daemon> {
    let RelayHost {
        name,
        netns,
        directory,
        ..
    } = *relay_host;
    let config = ProxyConfig::of(program, &relay.options).map_err(anyhow::Error::msg)?;
    let scratch = Path::new("/run").join(format!("relay-{name}"));
    fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    // Squid changes to an ordinary user.
    fs::set_permissions(&scratch, fs::Permissions::from_mode(0o777))?;
    let file = directory.join(format!("relay-{name}.conf"));
    let (text, command) = match program {
        RelayProgram::Haproxy => (haproxy_config(&config), haproxy_command(&file)),
        RelayProgram::Dante => (
            dante_config(&config, relay_host.addresses),
            dante_command(&file, &scratch),
        ),
        RelayProgram::Squid => (
            squid_config(&config, name, &scratch),
            squid_command(&file, name),
        ),
        RelayProgram::Longhaul => bail!("longhaul is not an external program"),
    };
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    let mut daemon = Daemon::start(&format!("relay-{name}"), command, netns, directory)?;
    for (_, listener) in config.listeners() {
        daemon.wait_until_listening(netns, listener.port()).await?;
    }
    Ok(daemon)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relay(text: &str) -> Relay {
        toml::from_str(text).unwrap()
    }

    fn check(relay: &Relay) -> Result<(), String> {
        super::check("near", relay)
            .map(drop)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn checks_the_configuration_like_the_relay() {
        let wrong = "config.listener = [{ kind = 'forward', address = '127.0.0.1:1' }]";
        assert!(check(&relay(wrong)).is_err());
        let right = "forward = '127.0.0.1:1=127.0.0.1:2'\n\
                     config.peer.far = { address = '127.0.0.1', pool = 2, tls = true }";
        assert_eq!(check(&relay(right)), Ok(()));
    }

    /// Congestion controls are registered when the lab runs, under names of its own.
    #[test]
    fn check_ignores_congestion_controls() {
        let relay = relay(
            "forward = '127.0.0.1:1=127.0.0.1:2'\ncc_downstream = 'lh_bic:ack_shift=3'\n\
             config.profile.wan = { congestion_control = 'lh_scalable:md_shift=2' }",
        );
        assert_eq!(check(&relay), Ok(()));
    }

    #[test]
    fn tls_is_replaced_by_certificate_files() {
        let directory = tempfile::tempdir().unwrap();
        let config: Table = toml::from_str(
            "peer.far.tls = true\npeer.other.tls = false\nlistener = [{ tls = true }]",
        )
        .unwrap();
        let config = with_certificates("near", &config, directory.path()).unwrap();
        let key = config["peer"]["far"]["tls"]["key"].as_str().unwrap();
        assert!(Path::new(key).ends_with("near-key.pem") && Path::new(key).exists());
        assert!(config["peer"]["other"].get("tls").is_none());
        assert!(config["listener"][0]["tls"].is_table());
    }

    /// Regression: the second relay of a host replaced the file of the first.
    #[test]
    fn relays_on_one_host_have_their_own_configuration_files() {
        let directory = tempfile::tempdir().unwrap();
        let files = ["first", "second"].map(|name| RelayFiles {
            name,
            ..RelayFiles::scratch("near", directory.path())
        });
        for (files, mss) in files.iter().zip([1000, 1200]) {
            let relay = relay(&format!("config.profile.wan.mss = {mss}"));
            let flags = arguments(&relay, files).unwrap();
            assert_eq!(flags[1], files.configuration().display().to_string());
        }
        let written = files.map(|files| fs::read_to_string(files.configuration()).unwrap());
        assert!(written[0].contains("1000") && written[1].contains("1200"));
    }

    #[test]
    fn transparent_listener_needs_intercept() {
        assert_eq!(
            check(&relay(
                "transparent = '0.0.0.0:3129'\nintercept = '10.9.0.0/16:80'\nallow_from = '10.9.0.0/16'"
            )),
            Ok(())
        );
        for without in [
            "transparent = '0.0.0.0:3129'",
            "transparent = '0.0.0.0:3129'\nintercept = []",
            "transparent = '0.0.0.0:3129'\nintercept = false",
            "intercept = '10.9.0.0/16:80'",
        ] {
            assert!(check(&relay(without)).is_err(), "{without}");
        }
        assert_eq!(
            check(&relay("socks5 = '127.0.0.1:1080'\ntransparent = []")),
            Ok(())
        );
    }
}
