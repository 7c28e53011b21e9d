// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line of `longhaul site`, as typed.

use super::{
    config::{Config, Deletion, Export, MirrorConfig},
    exports::{reject_exported_secrets, reject_links},
    http_args::HttpArgs,
    keys::{identity::Certificate, state::StateDir},
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_copy::{
    copy::{Keyring, Location, parse_trash},
    protocol::{
        address::PORT,
        options::{DeletionLimit, Ports},
    },
};
use longhaul_units::Time;
use std::{
    collections::{BTreeMap, btree_map::Entry},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

const EXAMPLES: &str = "\
Examples:
  longhaul site --export data=/srv/data --listen 0.0.0.0:7311 --ports 7312-7399
      others may copy from and into /srv/data, as longhaul://HOST/data
  longhaul site token new alice --export data
      a token for alice, printed once; longhaul copy finds it in her ~/.config/longhaul/sites.toml
  longhaul copy run42/ longhaul://HOST/data/run42
      alice's copy with that token
  longhaul site --export data=/srv/data --mirror data=longhaul://FAR/data
      every change in /srv/data, however it is made, is copied to the site FAR";

/// Exports directories to longhaul copy on other hosts, over TLS 1.3 with a token.
///
/// A client with a token has the rights of the site's user below an export, and none outside.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    pub(super) command: Option<Command>,

    /// Directory that clients may read and write, as longhaul://SITE/NAME; repeatable
    #[arg(long, value_name = "NAME=DIR", required_unless_present = "export_ro")]
    export: Vec<NamedDirectory>,

    /// Directory that clients may only read, as longhaul://SITE/NAME; repeatable
    #[arg(long, value_name = "NAME=DIR")]
    export_ro: Vec<NamedDirectory>,

    /// Address to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))]
    listen: SocketAddr,

    #[command(flatten)]
    pub(super) http: HttpArgs,

    /// Copy an export to another site whenever it changes; repeatable. Needs a token for that site in LONGHAUL_TOKEN or
    /// ~/.config/longhaul/sites.toml
    #[arg(long, value_name = "NAME=longhaul://SITE/EXPORT")]
    mirror: Vec<NamedDirectory>,

    /// Interval between scans of a mirrored export for changes that were not made through this site
    #[arg(long, value_name = "TIME", default_value = "30s")]
    mirror_interval: Time,

    /// Also remove at the other site what was removed from a mirrored export
    #[arg(long, requires = "mirror")]
    mirror_delete: bool,

    /// Most entries that a copy to the other site may remove: a number, or a share, as 20%. If more would go, the mirror
    /// is lagging [default: as longhaul copy --max-delete]
    #[arg(long, value_name = "N|N%", requires = "mirror_delete", value_parser = parse_max_delete)]
    mirror_max_delete: Option<String>,

    /// Keep what was removed at the other site for this long, in .longhaul-trash of its export
    #[arg(long, value_name = "TIME", requires = "mirror_delete", value_parser = parse_trash)]
    mirror_trash: Option<Time>,

    /// Ports for data, on the address that the client connected to; a copy uses one [default: any]
    #[arg(long, value_name = "FIRST-LAST")]
    ports: Option<Ports>,

    /// Most concurrent copies, 1 to 256; each is a process that takes 4 MiB and socket buffers for each stream
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    copies_max: u16,

    /// Allow running as root, although clients can then copy in setuid files and devices
    #[arg(long)]
    as_root: bool,

    /// Directory of the key and the tokens [default: the environment's STATE_DIRECTORY, or
    /// ~/.local/state/longhaul/site]
    #[arg(long, value_name = "DIR", global = true)]
    pub(super) state: Option<PathBuf>,

    /// Print events as JSON objects, one on each line
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Checks the arguments and returns the configuration.
    pub(super) fn config(&self) -> Result<Config> {
        if rustix::process::geteuid().is_root() && !self.as_root {
            return Err(Refusal::usage(
                "run a site as a user of its own: as root it lets clients copy in setuid files, devices and files of \
                 any owner (to allow that: --as-root)",
            ));
        }
        self.http.check()?;
        let writable = self.export.iter().map(|named| (named, true));
        let read_only = self.export_ro.iter().map(|named| (named, false));
        let mut exports = BTreeMap::new();
        for (named, writable) in writable.chain(read_only) {
            let export = Export::resolve(&named.name, &named.directory, writable)?;
            match exports.entry(named.name.clone()) {
                Entry::Vacant(free) => drop(free.insert(export)),
                Entry::Occupied(_) => {
                    let name = &named.name;
                    return Err(Refusal::usage(format!("two exports are called {name}")));
                }
            }
        }
        let state = StateDir::find(self.state.as_deref())?;
        reject_exported_secrets(&exports, &state, self.http.certificate.as_deref())?;
        for named in self.export.iter().chain(&self.export_ro) {
            reject_links(&named.name, &named.directory, &exports)?;
        }
        Ok(Config {
            mirrors: self.mirrors(&exports, &state)?,
            listen: self.listen,
            exports,
            http: self.http.http,
            https: self.http.https,
            certificate: self
                .http
                .certificate
                .as_deref()
                .map(Certificate::read)
                .transpose()?,
            ports: self.ports,
            copies_max: self.copies_max.into(),
            state,
            json: self.json,
        })
    }

    /// Returns the mirrors. Each needs an export here and a token for the site there.
    fn mirrors(
        &self,
        exports: &BTreeMap<String, Export>,
        state: &StateDir,
    ) -> Result<Vec<MirrorConfig>> {
        let deletion = self.mirror_delete.then(|| Deletion {
            state: state.clone(),
            max_delete: self.mirror_max_delete.clone(),
            trash: self.mirror_trash,
        });
        let mut found = Vec::new();
        for named in &self.mirror {
            let (name, to) = (&named.name, &named.directory);
            let export = exports.get(name).ok_or_else(|| {
                Refusal::usage(format!("mirror {name}: there is no export of that name"))
            })?;
            let site = Location::parse(to.as_os_str())?
                .site_address()
                .cloned()
                .ok_or_else(|| {
                    Refusal::usage(format!("mirror {name}: want NAME=longhaul://SITE/EXPORT"))
                })?;
            Keyring::find(&[site], None)?;
            found.push(MirrorConfig {
                export: name.clone(),
                directory: export.directory.clone(),
                target: to.clone(),
                interval: self.mirror_interval.into(),
                deletion: deletion.clone(),
            });
        }
        Ok(found)
    }
}

/// Checks the value, which a copy reads again.
fn parse_max_delete(text: &str) -> Result<String, String> {
    text.parse::<DeletionLimit>().map(|_| text.to_owned())
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Create, list and remove tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// List and break the locks of WebDAV clients
    #[command(subcommand)]
    Lock(super::http_args::LockCommand),
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum TokenCommand {
    /// Create a token and print it; it can't be printed again
    New {
        /// Name of the token, such as its user's
        name: String,

        /// Export that the token covers; repeatable [default: all exports]
        #[arg(long, value_name = "NAME", value_parser = parse_export_name)]
        export: Vec<String>,

        /// Allow only reading
        #[arg(long)]
        read_only: bool,
    },
    /// List tokens by name, with their rights and time of creation
    List,
    /// Remove a token, which is then no longer accepted
    Remove {
        /// Name of the token, such as its user's
        name: String,
    },
}

/// Name of an export and its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedDirectory {
    name: String,
    directory: PathBuf,
}

impl FromStr for NamedDirectory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, directory) = text.split_once('=').ok_or("want NAME=DIR")?;
        Ok(Self {
            name: parse_export_name(name)?,
            directory: directory.into(),
        })
    }
}

fn parse_export_name(name: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let named = !name.is_empty() && name.len() <= 64 && !name.starts_with('.');
    if named && name.chars().all(plain) {
        Ok(name.to_owned())
    } else {
        Err(format!(
            "{name:?} is not a name for an export: want up to 64 letters, digits, '-', '_' and '.', which is not first"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_name_and_directory_of_an_export() {
        let named: NamedDirectory = "data=/srv/a=b".parse().unwrap();
        assert_eq!(
            (named.name.as_str(), named.directory.to_str()),
            ("data", Some("/srv/a=b"))
        );
        for text in [
            "data",
            "=/srv",
            ".hidden=/srv",
            "a/b=/srv",
            "..=/srv",
            "a b=/srv",
        ] {
            assert!(text.parse::<NamedDirectory>().is_err(), "{text}");
        }
    }
}
