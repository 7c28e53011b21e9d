// SPDX-License-Identifier: MIT OR Apache-2.0
//! What stands after the check.

use super::{
    args::{Args, Named},
    certificate::Certificate,
    state::State,
};
use crate::{
    copy::{keyring::Keyring, location::real, place::Place},
    protocol::options::Ports,
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use std::{
    collections::{BTreeMap, btree_map::Entry},
    net::SocketAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// A site as it is to run.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) listen: SocketAddr,
    pub(super) exports: BTreeMap<String, Export>,
    pub(super) http: Option<SocketAddr>,
    pub(super) https: Option<SocketAddr>,
    /// For HTTPS; none is the site's own.
    pub(super) certificate: Option<Certificate>,
    pub(super) mirrors: Vec<Mirrored>,
    pub(super) ports: Option<Ports>,
    pub(super) copies_max: usize,
    pub(super) state: State,
    pub(super) json: bool,
}

/// A directory that others may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Export {
    /// Absolute.
    pub(super) directory: PathBuf,
    pub(super) writable: bool,
}

/// An export of which there is another elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mirrored {
    pub(super) export: String,
    pub(super) directory: PathBuf,
    /// As `longhaul copy` is told.
    pub(super) to: PathBuf,
    pub(super) every: Duration,
    pub(super) delete: bool,
}

impl Config {
    pub(super) fn read(args: &Args) -> Result<Self> {
        if rustix::process::geteuid().is_root() && !args.as_root {
            return Err(Refusal::usage(
                "run a site as a user of its own: as root it lets clients copy in setuid files, devices and files of \
                 any owner (if that is meant: --as-root)",
            ));
        }
        if let Some(http) = args.http.filter(|http| !http.ip().is_loopback()) {
            return Err(Refusal::usage(format!(
                "--http {http}: tokens would be seen on the way; want a loopback address, or --https"
            )));
        }
        let writable = args.export.iter().map(|named| (named, true));
        let read_only = args.export_ro.iter().map(|named| (named, false));
        let mut exports = BTreeMap::new();
        for (named, writable) in writable.chain(read_only) {
            let export = Export::read(named, writable)?;
            match exports.entry(named.name.clone()) {
                Entry::Vacant(free) => drop(free.insert(export)),
                Entry::Occupied(_) => {
                    let name = &named.name;
                    return Err(Refusal::usage(format!("two exports are called {name}")));
                }
            }
        }
        let state = State::find(args.state.as_deref())?;
        keep_secrets(args, &exports, &state)?;
        Ok(Self {
            mirrors: mirrors(args, &exports)?,
            listen: args.listen,
            exports,
            http: args.http,
            https: args.https,
            certificate: args
                .certificate
                .as_deref()
                .map(Certificate::read)
                .transpose()?,
            ports: args.ports,
            copies_max: args.copies_max.into(),
            state,
            json: args.json,
        })
    }
}

/// Nobody is offered what lets in: the key and the tokens, or the key of a certificate.
fn keep_secrets(args: &Args, exports: &BTreeMap<String, Export>, state: &State) -> Result<()> {
    let real = |path: &Path| real(path).unwrap_or_else(|| path.to_owned());
    let of_state = real(state.directory());
    let of_certificate = args.certificate.as_deref().map(real);
    for (name, export) in exports {
        let shown = export.directory.display();
        if lies_in(&of_state, &export.directory) || lies_in(&export.directory, &of_state) {
            let state = of_state.display();
            return Err(Refusal::usage(format!(
                "export {name}: {shown} would offer the site's key and tokens, which are in {state}: want another \
                 --state"
            )));
        }
        if let Some(certificate) = &of_certificate
            && lies_in(certificate, &export.directory)
        {
            let certificate = certificate.display();
            return Err(Refusal::usage(format!(
                "export {name}: {shown} would offer the key in {certificate}: move that elsewhere"
            )));
        }
    }
    Ok(())
}

/// Whether a path without symbolic links is that directory or below it, by this name or another: a mount may give it
/// two.
pub(super) fn lies_in(path: &Path, directory: &Path) -> bool {
    let identity = |path: &Path| {
        let meta = path.metadata().ok()?;
        Some((meta.dev(), meta.ino()))
    };
    let wanted = identity(directory);
    wanted.is_some() && path.ancestors().any(|above| identity(above) == wanted)
}

/// Each has its export here and a token for the site there.
fn mirrors(args: &Args, exports: &BTreeMap<String, Export>) -> Result<Vec<Mirrored>> {
    let mut found = Vec::new();
    for named in &args.mirror {
        let (name, to) = (&named.name, &named.directory);
        let export = exports.get(name).ok_or_else(|| {
            Refusal::usage(format!("mirror {name}: there is no export of that name"))
        })?;
        let site = Place::parse(to.as_os_str())?
            .site()
            .cloned()
            .ok_or_else(|| {
                Refusal::usage(format!("mirror {name}: want NAME=longhaul://SITE/EXPORT"))
            })?;
        Keyring::find(&[site], None)?;
        found.push(Mirrored {
            export: name.clone(),
            directory: export.directory.clone(),
            to: to.clone(),
            every: args.mirror_every.into(),
            delete: args.mirror_delete,
        });
    }
    Ok(found)
}

impl Export {
    fn read(named: &Named, writable: bool) -> Result<Self> {
        let refused = |why: String| {
            let (name, directory) = (&named.name, named.directory.display());
            Refusal::usage(format!("export {name}: {directory}: {why}"))
        };
        let real = named.directory.canonicalize();
        let directory = real.map_err(|error| refused(error.to_string()))?;
        if !directory.is_dir() {
            return Err(refused("no directory".to_owned()));
        }
        Ok(Self {
            directory,
            writable,
        })
    }
}
