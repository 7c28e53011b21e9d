// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tokens of a client: one for each site in a file that only its owner can read, or a single one in the environment. They
//! are never on the command line, which all users can see.

use crate::protocol::{address::Address, token::Token};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_linux::private_file;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

/// Environment variable with a token for any site.
const TOKEN_VARIABLE: &str = "LONGHAUL_TOKEN";

/// Maximum length of a token file, in bytes. A longer file is refused.
const FILE_LEN_MAX: u64 = 1 << 20;

/// Tokens by site.
#[derive(Debug, Clone, Default)]
pub struct Keyring(Vec<(Address, Token)>);

/// Contents of `sites.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SitesFile {
    #[serde(default)]
    sites: BTreeMap<String, SiteEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteEntry {
    token: String,
}

impl Keyring {
    /// Finds a token for each of `sites`.
    pub fn find(sites: &[Address], token_file: Option<&Path>) -> Result<Self> {
        if sites.is_empty() {
            return Ok(Self::default());
        }
        let single = match token_file {
            Some(path) => Some((path.display().to_string(), first_word(path)?)),
            None => std::env::var(TOKEN_VARIABLE)
                .ok()
                .map(|text| (TOKEN_VARIABLE.to_owned(), text)),
        };
        match single {
            Some((origin, text)) => Self::single(sites, &origin, text.trim()),
            None => Self::read_file(sites, &default_path()?),
        }
    }

    /// Returns the token for one of the sites.
    pub fn token(&self, site: &Address) -> Option<&Token> {
        let found = self.0.iter().find(|(address, _)| address == site);
        found.map(|(_, token)| token)
    }

    fn single(sites: &[Address], origin: &str, text: &str) -> Result<Self> {
        let token = parse_token(origin, text)?;
        match sites {
            [first, rest @ ..] if rest.iter().all(|other| other == first) => {
                Ok(Self(vec![(first.clone(), token)]))
            }
            _ => Err(Refusal::usage(format!(
                "{origin} has one token, but the command names two sites: put both tokens into sites.toml"
            ))),
        }
    }

    fn read_file(sites: &[Address], path: &Path) -> Result<Self> {
        let text = match private_file::read(path, FILE_LEN_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.map_err(|error| refuse_file(path, error))?,
        };
        let file: SitesFile = toml::from_str(&text).map_err(|error| refuse_file(path, error))?;
        let mut found = Vec::new();
        for (name, entry) in file.sites {
            let address: Address = name.parse().map_err(|error| refuse_file(path, error))?;
            let origin = format!("{}: {name}", path.display());
            found.push((address, parse_token(&origin, &entry.token)?));
        }
        let ring = Self(found);
        match sites.iter().find(|site| ring.token(site).is_none()) {
            None => Ok(ring),
            Some(site) => Err(Refusal::usage(format!(
                "no token for {site}: its operator creates one with `longhaul site token new`; put it into {} as \
                 sites.\"{site}\".token, into the file that --token-file names, or into {TOKEN_VARIABLE}",
                path.display()
            ))),
        }
    }
}

fn parse_token(origin: &str, text: &str) -> Result<Token> {
    text.parse()
        .map_err(|error| Refusal::usage(format!("{origin}: {error}")))
}

fn first_word(path: &Path) -> Result<String> {
    let text = private_file::read(path, FILE_LEN_MAX).map_err(|error| refuse_file(path, error))?;
    let word = text.split_whitespace().next();
    Ok(word.unwrap_or_default().to_owned())
}

/// Returns the path of `sites.toml`, by the XDG Base Directory Specification.
fn default_path() -> Result<PathBuf> {
    let absolute = |name| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    let config = config.ok_or_else(|| {
        Refusal::usage(
            "neither XDG_CONFIG_HOME nor HOME is set: give the file of the token with --token-file",
        )
    })?;
    Ok(config.join("longhaul/sites.toml"))
}

fn refuse_file(path: &Path, error: impl std::fmt::Display) -> anyhow::Error {
    Refusal::usage(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    fn token(of: u8) -> String {
        let part = |byte: u8| {
            use base64::Engine as _;
            base64::engine::general_purpose::URL_SAFE_NO_PAD.encode([byte; 32])
        };
        format!("lhs1.{}.{}", part(of), part(of))
    }

    fn file(mode: u32, text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    fn sites(names: &[&str]) -> Vec<Address> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn finds_the_token_of_each_site() {
        let (near, far) = (token(1), token(2));
        let text =
            format!("[sites]\nnear.token = \"{near}\"\n\"far:9\" = {{ token = \"{far}\" }}\n");
        let file = file(0o600, &text);
        let sites = sites(&["near", "far:9"]);
        let ring = Keyring::read_file(&sites, file.path()).unwrap();
        let found = |site| ring.token(site).map(Token::text);
        assert_eq!(found(&sites[0]), Some(near));
        assert_eq!(found(&sites[1]), Some(far));
        let unknown = super::tests::sites(&["far"]);
        let error = Keyring::read_file(&unknown, file.path())
            .unwrap_err()
            .to_string();
        assert!(error.contains("no token for far"), "{error}");
    }

    #[test]
    fn rejects_one_token_for_two_sites() {
        let file = file(0o600, &format!("{}\n", token(1)));
        let find = |names: &[&str]| Keyring::find(&sites(names), Some(file.path()));
        assert!(find(&["far", "far:7311"]).is_ok());
        let error = find(&["near", "far"]).unwrap_err().to_string();
        assert!(error.contains("two sites"), "{error}");
    }

    #[test]
    fn rejects_a_file_that_others_can_read() {
        let file = file(0o644, &token(1));
        let error = Keyring::find(&sites(&["far"]), Some(file.path())).unwrap_err();
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }

    #[test]
    fn errors_about_a_file_hide_its_secrets() {
        for (text, expected) in [
            ("[sites]\nfar.token = \"hunter2\"", "far: not a token"),
            ("[sites]\n\"a b\".token = \"x\"", "want HOST"),
            ("[places]", "unknown field"),
        ] {
            let file = file(0o600, text);
            let error = Keyring::read_file(&sites(&["far"]), file.path()).unwrap_err();
            let error = error.to_string();
            assert!(
                error.contains(expected) && !error.contains("hunter2"),
                "{error}"
            );
        }
    }
}
