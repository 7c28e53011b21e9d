// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties that the site knows by itself (RFC 4918 §15, RFC 4331), and of what.

use super::{
    dead,
    names::{APACHE, executable},
};
use crate::http::{
    export::{files::Files, meta::Meta},
    lock::active,
    locks::Table,
    protection::place,
    request::element::Name,
};
use dav_server::fs::DavMetaData;
use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter};
use longhaul_store::path::RelPath;
use rustix::fs::{StatVfs, fstatvfs};
use std::os::fd::AsFd;

/// Exclusive locks and shared ones, for writing.
const LOCKS: &str = "<D:lockentry><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>\
                     <D:lockentry><D:lockscope><D:shared/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>";

/// Space on a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::http) struct Quota {
    pub(in crate::http) available: u64,
    pub(in crate::http) used: u64,
}

impl Quota {
    /// Of the file system of a file or a directory.
    pub(in crate::http) fn of(file: impl AsFd) -> Option<Self> {
        fstatvfs(file).ok().map(|stat: StatVfs| Self {
            available: stat.f_bavail.saturating_mul(stat.f_frsize),
            used: stat
                .f_blocks
                .saturating_sub(stat.f_bfree)
                .saturating_mul(stat.f_frsize),
        })
    }
}

/// What properties are of.
#[derive(Debug, Clone)]
pub(in crate::http) struct Resource {
    /// As a URL's path.
    pub(in crate::http) href: String,
    /// The export that it is in; none: it is above all of them, or of one that can't be opened.
    pub(in crate::http) files: Option<Files>,
    pub(in crate::http) path: Option<RelPath>,
    pub(in crate::http) meta: Option<Meta>,
    /// Of what is above all exports.
    pub(in crate::http) quota: Option<Quota>,
}

impl Resource {
    /// What is above all exports, or an export of which no more is known.
    pub(in crate::http) fn unopened(href: String) -> Self {
        Self {
            href,
            files: None,
            path: None,
            meta: None,
            quota: None,
        }
    }

    fn is_directory(&self) -> bool {
        self.meta.is_none_or(|meta| meta.is_dir())
    }

    /// The property's element, if there is one.
    pub(super) fn live(&self, name: &Name, locks: &Table) -> Option<String> {
        if *name == executable() {
            let meta = self.meta.filter(DavMetaData::is_file)?;
            let is = if meta.executable().ok()? { "T" } else { "F" };
            return Some(format!(
                "<A:executable xmlns:A=\"{APACHE}\">{is}</A:executable>"
            ));
        }
        let local = name.in_dav()?;
        let value = self.of_dav(local, locks)?;
        Some(match value.is_empty() {
            true => format!("<D:{local}/>"),
            false => format!("<D:{local}>{value}</D:{local}>"),
        })
    }

    fn of_dav(&self, local: &str, locks: &Table) -> Option<String> {
        Some(match local {
            "resourcetype" if self.is_directory() => "<D:collection/>".to_owned(),
            "resourcetype" => String::new(),
            "getcontenttype" if self.is_directory() => "httpd/unix-directory".to_owned(),
            "getcontenttype" => content_type(&self.href),
            "getcontentlength" => self.meta.filter(DavMetaData::is_file)?.len().to_string(),
            "getetag" => format!("\"{}\"", self.meta?.etag()?),
            "getlastmodified" => http_date(&self.meta?)?,
            "lockdiscovery" => self.active_locks(locks),
            "supportedlock" if self.files.is_some() => LOCKS.to_owned(),
            "supportedlock" => String::new(),
            "quota-available-bytes" => self.space()?.available.to_string(),
            "quota-used-bytes" => self.space()?.used.to_string(),
            _ => return None,
        })
    }

    fn active_locks(&self, locks: &Table) -> String {
        let Some(files) = &self.files else {
            return String::new();
        };
        let place = place(files, self.path.as_ref());
        locks
            .covering(&place)
            .map(|lock| active(files, lock))
            .collect()
    }

    /// Of directories; a mount in an export has a space of its own.
    fn space(&self) -> Option<Quota> {
        let Some(files) = &self.files else {
            return self.quota;
        };
        self.meta.filter(DavMetaData::is_dir)?;
        Quota::of(&*files.root.dir_fd(self.path.as_ref()).ok()?)
    }

    /// What clients have set; nothing if it can't be read.
    pub(super) fn dead(&self) -> Vec<dead::Property> {
        let read = self
            .files
            .as_ref()
            .map(|files| dead::of(files, self.path.as_ref()));
        read.and_then(Result::ok).unwrap_or_default()
    }
}

/// By its name, which is escaped as in a URL.
pub(in crate::http) fn content_type(href: &str) -> String {
    let kind = mime_guess::from_path(href).first_or_octet_stream();
    kind.essence_str().to_owned()
}

/// When it was changed, as HTTP has it.
pub(in crate::http) fn http_date(meta: &Meta) -> Option<String> {
    let time = Timestamp::try_from(meta.modified().ok()?).ok()?;
    DateTimePrinter::new()
        .timestamp_to_rfc9110_string(&time)
        .ok()
}
