// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `longhaul site`, as typed.

use crate::protocol::{address::PORT, options::Ports};
use longhaul_units::Time;
use std::{
    fmt,
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
      what alice does with it
  longhaul site --export data=/srv/data --mirror data=longhaul://FAR/data
      what lands in /srv/data, by whichever way, is soon on FAR, too";

/// Offers directories to longhaul copy on other machines, over TLS 1.3, to whoever has a token.
///
/// Below an export, who has a token may do what the user may that this runs as, and nothing beyond it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    pub(super) command: Option<Command>,

    /// A directory to read and write, and what it is called; repeatable
    #[arg(long, value_name = "NAME=DIR", required_unless_present = "export_ro")]
    pub(super) export: Vec<Named>,

    /// A directory that may only be read; repeatable
    #[arg(long, value_name = "NAME=DIR")]
    pub(super) export_ro: Vec<Named>,

    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))]
    pub(super) listen: SocketAddr,

    /// Offer the exports over HTTP and WebDAV here, too, on a loopback address
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) http: Option<SocketAddr>,

    /// Offer them over HTTPS here, with the site's own key unless --certificate says otherwise
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) https: Option<SocketAddr>,

    /// For --https: a certificate, those that vouch for it, and its key, in PEM; a file that nobody else may read
    #[arg(long, value_name = "FILE", requires = "https")]
    pub(super) certificate: Option<PathBuf>,

    /// Copy what is in an export to another site, whenever something is new; repeatable. The token for that site is
    /// where longhaul copy looks for it
    #[arg(long, value_name = "NAME=longhaul://SITE/EXPORT")]
    pub(super) mirror: Vec<Named>,

    /// How often a mirrored export is looked through for what came by other ways than this site
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(super) mirror_every: Time,

    /// Remove at the other site, too, what is gone from a mirrored export
    #[arg(long, requires = "mirror")]
    pub(super) mirror_delete: bool,

    /// Ports for data, on the address that the client reached; a copy takes one [default: any]
    #[arg(long, value_name = "FIRST-LAST")]
    pub(super) ports: Option<Ports>,

    /// Copies at once, 1 to 256; each is a process that costs 4 MiB and its socket's buffers for each of its streams
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) copies_max: u16,

    /// Run as root, although setuid files and devices may then be copied in
    #[arg(long)]
    pub(super) as_root: bool,

    /// Where the key and the tokens are [default: the environment's STATE_DIRECTORY, or
    /// ~/.local/state/longhaul/site]
    #[arg(long, value_name = "DIR", global = true)]
    pub(super) state: Option<PathBuf>,

    /// Print what happens as JSON objects, one a line
    #[arg(long)]
    pub(super) json: bool,

    /// Serve the listener that is standard input, for the site that has started this
    #[arg(long, hide = true)]
    pub(super) serve: Option<Scheme>,
}

/// What is spoken on a listener of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Scheme {
    Http,
    Https,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Make, list and remove the tokens that let others in
    #[command(subcommand)]
    Token(TokenCommand),
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum TokenCommand {
    /// Make a token and print it; it is shown this once
    New {
        /// Whose it is
        name: String,

        /// What it is for; repeatable [default: all exports]
        #[arg(long, value_name = "NAME")]
        export: Vec<String>,

        /// It may only read
        #[arg(long)]
        read_only: bool,
    },
    /// List tokens by name: what they are for, and since when
    List,
    /// Remove a token: whoever has it is not let in any more
    Remove {
        /// Whose it is
        name: String,
    },
}

/// A name and a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) directory: PathBuf,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, directory) = text.split_once('=').ok_or("want NAME=DIR")?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let named = !name.is_empty() && name.len() <= 64 && !name.starts_with('.');
        if !named || !name.chars().all(plain) {
            return Err(format!(
                "{name:?} is no name for an export: want up to 64 letters, digits, '-', '_' and '.', which is not first"
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            directory: directory.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_a_name_and_a_directory() {
        let named: Named = "data=/srv/a=b".parse().unwrap();
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
            assert!(text.parse::<Named>().is_err(), "{text}");
        }
    }
}
