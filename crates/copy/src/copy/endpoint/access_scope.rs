// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that an endpoint may access. By default these are all that its user may access. An endpoint that a
//! site started for a client gets one exported directory and nothing outside it, whatever the client sends.

use super::location::{self, Machine};
use crate::protocol::{
    auth::ExportScope,
    control::{Begin, Rendezvous, Role},
    message,
    options::{Options, Switch},
};
use anyhow::{Context as _, Result};
use longhaul_command::exit::Refusal;
use longhaul_store::{
    path::{RelPath, resolve_parent_links},
    root::Root,
    tree::{
        origin,
        scan::{Source, SourceError, is_contents_only},
    },
};
use rustix::io::Errno;
use std::{
    ffi::OsStr,
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Files that an endpoint may access.
#[derive(Debug)]
pub(super) enum AccessScope {
    Unrestricted,
    Export(ExportScope),
}

impl AccessScope {
    /// Reads the scope from the site that started this endpoint.
    pub(super) fn receive() -> Result<Self> {
        let export = message::read(&mut io::stdin().lock())?;
        Ok(Self::Export(
            export.context("the site closed the connection")?,
        ))
    }

    /// Refuses a task that the export does not allow.
    pub(super) fn check_task(&self, begin: &Begin) -> Result<()> {
        let Self::Export(export) = self else {
            return Ok(());
        };
        if begin.options.encrypt == Switch::Off {
            return Err(Refusal::usage(
                "a site encrypts what it sends and receives: remove --encrypt off",
            ));
        }
        if begin.role == Role::Target && !export.writable {
            let name = &export.export;
            return Err(Refusal::usage(format!(
                "{name} may only be read: to be written to, the site must offer it with --export {name}=DIRECTORY, not \
                 --export-ro, and the token must not be one of --read-only"
            )));
        }
        Ok(())
    }

    /// Replaces the address and ports to listen on by the site's own.
    pub(super) fn override_listen_address(&self, rendezvous: &mut Rendezvous) {
        if let (Self::Export(export), Rendezvous::Listen { at, ports }) = (self, rendezvous) {
            (*at, *ports) = (export.local_address, export.ports);
        }
    }

    /// Opens the sources of a copy. Also returns the errors of those that are missing, unless all are.
    ///
    /// # Errors
    /// None of the sources is there, or one must not be copied.
    pub(super) fn open_sources(
        &self,
        paths: &[Vec<u8>],
    ) -> Result<(Vec<Source>, Vec<SourceError>)> {
        let paths = paths.iter().map(|path| Path::new(OsStr::from_bytes(path)));
        let opened = match self {
            Self::Unrestricted => Source::open_all(paths),
            Self::Export(export) => {
                let root = Arc::new(export.open()?);
                let open = |path| {
                    let inside = export.path_below(path)?;
                    anyhow::Ok(Source::open_below(&root, inside, path))
                };
                paths.map(open).collect::<Result<_>>()?
            }
        };
        let (mut sources, mut missing) = (Vec::new(), Vec::new());
        for opened in opened {
            match opened {
                Ok(source) => sources.push(source),
                Err(error) if error.is_missing() => missing.push(error),
                Err(error) => return Err(Refusal::usage(error)),
            }
        }
        match (sources.is_empty(), missing.first()) {
            (true, Some(error)) => Err(Refusal::usage(error)),
            _ => Ok((sources, missing)),
        }
    }

    /// Returns the path of a source, without symbolic links in its directory. The source itself may be one, unless its
    /// contents are meant.
    pub(super) fn source_path(&self, path: &[u8]) -> Option<PathBuf> {
        let local = Path::new(OsStr::from_bytes(path));
        match self {
            Self::Unrestricted if !is_contents_only(local) => resolve_parent_links(local),
            _ => self.real_path(path),
        }
    }

    /// Returns a path without symbolic links, as far as it exists.
    pub(super) fn real_path(&self, path: &[u8]) -> Option<PathBuf> {
        match self {
            Self::Unrestricted => {
                longhaul_store::path::resolve_links(Path::new(OsStr::from_bytes(path)))
            }
            Self::Export(_) => self.local_path(path),
        }
    }

    /// Returns the directory outside of which nothing is accessed.
    pub(super) fn root_path(&self) -> Option<PathBuf> {
        match self {
            Self::Unrestricted => Some(PathBuf::from("/")),
            Self::Export(export) => Some(export.directory.clone()),
        }
    }

    /// Returns a path on this machine, symbolic links included.
    pub(super) fn local_path(&self, path: &[u8]) -> Option<PathBuf> {
        let path = Path::new(OsStr::from_bytes(path));
        let Self::Export(export) = self else {
            return Some(path.to_owned());
        };
        let root = self.root_path()?;
        let inside = export.path_below(path).ok()?;
        Some(inside.map_or_else(|| root.clone(), |inside| root.join(inside.as_path())))
    }

    /// Opens the directory of the copy; also returns the name of the copied entry there. As with cp, an
    /// existing directory gets the entry inside; otherwise the entry gets the given name in the parent
    /// directory.
    pub(super) fn open_target(
        &self,
        path: &[u8],
        options: &Options,
    ) -> Result<(Root, Option<RelPath>)> {
        let path = Path::new(OsStr::from_bytes(path));
        match self {
            Self::Unrestricted => open_unrestricted_target(path, options),
            Self::Export(export) => export.open_target(path, options),
        }
    }

    /// Refuses a target inside a source, before anything is created. Returns the target's location, if it is
    /// known.
    pub(super) fn refuse_inside_source(
        &self,
        path: &[u8],
        begin: &Begin,
    ) -> Result<Option<location::TargetLocation>> {
        let Some((real, machine)) = self.real_path(path).zip(Machine::read()) else {
            return Ok(None);
        };
        let target = location::TargetLocation::new(machine, real, path);
        let filter = begin
            .options
            .filter()?
            .with_source_names(begin.sources.names());
        target.refuse_inside_source(&begin.sources, &filter, begin.options.one_file_system)?;
        Ok(Some(target))
    }
}

fn open_unrestricted_target(path: &Path, options: &Options) -> Result<(Root, Option<RelPath>)> {
    let failed =
        |path: &Path, error: io::Error| Refusal::usage(format!("{}: {error}", path.display()));
    let exists = path.is_dir();
    let is_same_copy = || {
        let parent = open_parent(path, true);
        parent.is_ok_and(|(root, name)| is_same_copy(&root, &name, options))
    };
    if options.into_directory || exists && !is_same_copy() {
        if !exists && path.exists() {
            return Err(not_a_directory(&path.display()));
        }
        let root = Root::open_or_create(path).map_err(|error| failed(path, error))?;
        return Ok((root, None));
    }
    let (root, name) = open_parent(path, options.dry_run)?;
    Ok((root, Some(name)))
}

/// Returns the refusal of a target that must be a directory, and is not one.
pub(super) fn not_a_directory(path: &dyn std::fmt::Display) -> anyhow::Error {
    Refusal::usage(format!(
        "{path} is not a directory: the contents of a directory, or several sources, are copied into a directory"
    ))
}

/// Opens the parent directory of a path; also returns the path's name in it. A dry run does not create the
/// parent: it opens the nearest existing ancestor.
fn open_parent(path: &Path, dry_run: bool) -> Result<(Root, RelPath)> {
    let name = path.file_name().ok_or_else(|| {
        Refusal::usage(format!("{}: no name for the copied entry", path.display()))
    })?;
    let name = RelPath::parse(name.as_bytes()).map_err(Refusal::usage)?;
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let failed = |error| {
        let parent = if parent == Path::new(".") {
            "the current directory".to_owned()
        } else {
            parent.display().to_string()
        };
        Refusal::usage(format!("{parent}: {error}"))
    };
    if !dry_run {
        Ok((Root::open_or_create(parent).map_err(failed)?, name))
    } else {
        match Root::open(parent) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (root, rest) = open_parent(parent, true)?;
                Ok((root, rest.join_path(&name)?))
            }
            root => Ok((root.map_err(failed)?, name)),
        }
    }
}

/// Returns whether an earlier run of the same command created and named this directory.
fn is_same_copy(root: &Root, path: &RelPath, options: &Options) -> bool {
    let has_origin = || origin::is_copy(root, path, &options.origin);
    !options.into_directory && root.is_dir(path) && has_origin().is_ok_and(|known| known)
}

/// Returns whether an entry exists that is no directory.
pub(super) fn is_other_than_directory(root: &Root, path: &RelPath) -> bool {
    root.stat(path).is_ok() && !root.is_dir(path)
}

impl ExportScope {
    fn open(&self) -> Result<Root> {
        let name = &self.export;
        let opened = match Root::open_without_links(&self.directory) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
                return Err(Refusal::usage(format!(
                    "{name}: the site does not serve it, because a symbolic link has replaced it"
                )));
            }
            opened => {
                opened.with_context(|| format!("{name}: the site cannot open what it exports"))?
            }
        };
        let device_and_inode = |path: &PathBuf| {
            let meta = path.symlink_metadata().ok()?;
            Some((meta.dev(), meta.ino()))
        };
        Ok(opened.with_protected(self.other_exports.iter().filter_map(device_and_inode)))
    }

    /// Opens the export; also returns the path below it, `None` for the export itself.
    pub(super) fn open_with_path(&self, path: &[u8]) -> Result<(Root, Option<RelPath>)> {
        let below = self.path_below(Path::new(OsStr::from_bytes(path)))?;
        Ok((self.open()?, below))
    }

    /// Returns the path below the export; `None` for the export itself.
    fn path_below(&self, path: &Path) -> Result<Option<RelPath>> {
        let bytes = path.as_os_str().as_bytes();
        let bytes = bytes.strip_prefix(b"/").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"/").unwrap_or(bytes);
        let whole = RelPath::parse(bytes).map_err(Refusal::usage)?;
        let export = RelPath::parse(self.export.as_bytes()).map_err(Refusal::usage)?;
        if whole.is_internal() {
            let why = longhaul_store::root::Refusal::InternalName;
            return Err(Refusal::usage(format!("{whole}: {why}")));
        }
        match whole.strip_prefix(&export) {
            None if whole != export => Err(Refusal::usage(format!(
                "{whole}: not in {export}, for which this endpoint was started"
            ))),
            inside => Ok(inside),
        }
    }

    fn open_target(&self, path: &Path, options: &Options) -> Result<(Root, Option<RelPath>)> {
        let (root, inside) = (self.open()?, self.path_below(path)?);
        let into = |inside: Option<&RelPath>| {
            let root = root.subroot_or_create(inside).map_err(Refusal::usage)?;
            Ok((root, None))
        };
        match inside {
            None => into(None),
            Some(inside) if options.into_directory && is_other_than_directory(&root, &inside) => {
                Err(not_a_directory(&inside))
            }
            Some(inside)
                if options.into_directory
                    || root.is_dir(&inside) && !is_same_copy(&root, &inside, options) =>
            {
                into(Some(&inside))
            }
            Some(inside) => {
                if !options.dry_run {
                    let parent = inside.parent();
                    let created = parent.map(|parent| root.subroot_or_create(Some(&parent)));
                    created.transpose().map_err(Refusal::usage)?;
                }
                let (parent, name) = root.nearest_subroot(&inside).map_err(Refusal::usage)?;
                Ok((parent, Some(name)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::options::{DeletionLimit, Pacing, Streams, Transport};
    use std::{fs, os::unix::fs::symlink};
    use tempfile::TempDir;

    /// Creates an export `in` beside a directory `outside`, with links to it.
    fn export() -> (TempDir, ExportScope) {
        let temp = TempDir::new().unwrap();
        let at = |name: &str| temp.path().join(name);
        fs::create_dir_all(at("in/dir")).unwrap();
        fs::create_dir(at("outside")).unwrap();
        fs::write(at("outside/secret"), "x").unwrap();
        fs::write(at("in/file"), "x").unwrap();
        fs::write(at("in/.longhaul-0.part"), "x").unwrap();
        symlink(at("outside"), at("in/link")).unwrap();
        symlink("..", at("in/up")).unwrap();
        let export = ExportScope {
            export: "data".to_owned(),
            directory: at("in").canonicalize().unwrap(),
            other_exports: Vec::new(),
            writable: false,
            local_address: [127, 0, 0, 1].into(),
            ports: None,
        };
        (temp, export)
    }

    fn options(into_directory: bool) -> Options {
        Options {
            idle_timeout_ms: 60_000,
            streams: Streams::Auto,
            pacing: Pacing::Auto,
            congestion_control: None,
            transport: Transport::Tcp,
            encrypt: Switch::On,
            hash: Switch::On,
            limit: None,
            dry_run: false,
            checksum: false,
            delete: false,
            max_delete: DeletionLimit::NoAccident,
            trash_s: None,
            whole_files: false,
            update: false,
            modify_window_s: None,
            one_file_system: false,
            hard_links: true,
            rules: Vec::new(),
            preserve: longhaul_store::tree::preserve::Preserve::default(),
            into_directory,
            origin: [0; 32],
        }
    }

    const INVALID_PATHS: [&str; 16] = [
        "",
        "/",
        "..",
        "/..",
        "/data/..",
        "/data/../outside/secret",
        "/data/./file",
        "/data//file",
        "/data/dir//",
        "/other",
        "/database",
        "/etc/passwd",
        "/data/link/secret",
        "/data/up/outside/secret",
        "/data/.longhaul-0.part",
        "/data/dir\0",
    ];

    #[test]
    fn refuses_sources_outside_export() {
        let (_temp, export) = export();
        let scope = AccessScope::Export(export);
        for path in INVALID_PATHS {
            let sources = scope.open_sources(&[path.as_bytes().to_vec()]);
            assert!(sources.is_err(), "{path:?}");
        }
        for path in ["/data", "/data/", "data", "/data/file", "/data/dir/"] {
            let sources = scope.open_sources(&[path.as_bytes().to_vec()]);
            assert!(sources.is_ok(), "{path:?}: {sources:?}");
        }
    }

    /// A user who may write the export's parent directory can replace the export by a link.
    #[test]
    fn refuses_export_replaced_by_link() {
        let (temp, export) = export();
        let at = |name: &str| temp.path().join(name);
        fs::rename(at("in"), at("moved")).unwrap();
        symlink(at("outside"), at("in")).unwrap();
        let scope = AccessScope::Export(export);
        assert!(scope.open_sources(&[b"/data/secret".to_vec()]).is_err());
        assert!(scope.open_target(b"/data/new", &options(false)).is_err());
        assert!(!at("outside/new").exists());
    }

    #[test]
    fn protects_export_inside_export() {
        let (temp, mut export) = export();
        export.other_exports = vec![temp.path().join("in/dir")];
        let (root, _) = AccessScope::Export(export)
            .open_target(b"/data", &options(true))
            .unwrap();
        let path = |name: &str| RelPath::parse(name.as_bytes()).unwrap();
        assert!(root.remove_dir(&path("dir")).is_err());
        assert!(root.rename(&path("dir"), &path("away")).is_err());
        root.remove(&path("file")).unwrap();
    }

    #[test]
    fn refuses_targets_outside_export() {
        let (temp, export) = export();
        let scope = AccessScope::Export(export);
        for into in [false, true] {
            for path in INVALID_PATHS {
                let target = scope.open_target(path.as_bytes(), &options(into));
                assert!(target.is_err(), "{path:?}");
            }
        }
        // A link is not a directory: the copied entry replaces it, and does not follow it.
        let into = scope.open_target(b"/data/link", &options(true));
        assert!(into.is_err());
        let (_, name) = scope.open_target(b"/data/link", &options(false)).unwrap();
        assert_eq!(name, RelPath::parse(b"link").ok());
        let outside = fs::read_dir(temp.path().join("outside")).unwrap().count();
        assert_eq!(outside, 1);
    }

    #[test]
    fn names_targets_as_cp_does() {
        let (temp, export) = export();
        let scope = AccessScope::Export(export);
        let name = |path: &str, into| {
            let (_, name) = scope.open_target(path.as_bytes(), &options(into)).unwrap();
            name.map(|name| name.to_string())
        };
        assert_eq!(name("/data", false), None);
        assert_eq!(name("/data/dir", false), None);
        assert_eq!(name("/data/new", false).as_deref(), Some("new"));
        assert_eq!(name("/data/made", true), None);
        assert!(temp.path().join("in/made").is_dir());
        // Parent directories of a target are created.
        assert_eq!(name("/data/no/such", false).as_deref(), Some("such"));
        assert!(temp.path().join("in/no").is_dir());
    }

    #[test]
    fn site_overrides_listen_address() {
        let (_temp, export) = export();
        let any_address = || Rendezvous::Listen {
            at: [0, 0, 0, 0].into(),
            ports: None,
        };
        let (mut unrestricted, mut confined) = (any_address(), any_address());
        AccessScope::Unrestricted.override_listen_address(&mut unrestricted);
        assert_eq!(unrestricted, any_address());
        AccessScope::Export(export).override_listen_address(&mut confined);
        assert!(matches!(confined, Rendezvous::Listen { at, .. } if at.is_loopback()));
    }
}
