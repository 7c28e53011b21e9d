// SPDX-License-Identifier: MIT OR Apache-2.0
//! Live properties, which the site computes (RFC 4918 §15, RFC 4331), and the resources that have them.

use super::{
    dead,
    names::{APACHE_NAMESPACE, executable},
};
use crate::http::{
    export::{files::Files, meta::Meta},
    lock::activelock_element,
    locks::LockTable,
    preconditions::lock_path,
    request::element::Name,
};
use dav_server::fs::DavMetaData;
use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter};
use longhaul_store::path::RelPath;
use rustix::fs::{StatVfs, fstatvfs};
use std::os::fd::AsFd;

/// Supported locks: exclusive and shared write locks.
const SUPPORTED_LOCKS: &str = "<D:lockentry><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>\
                     <D:lockentry><D:lockscope><D:shared/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>";

/// Space on a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::http) struct Quota {
    pub(in crate::http) available: u64,
    pub(in crate::http) used: u64,
}

impl Quota {
    /// Returns the quota of the file system that contains a file or a directory.
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

/// Resource that has properties.
#[derive(Debug, Clone)]
pub(in crate::http) struct Resource {
    /// Path of the resource's URL.
    pub(in crate::http) href: String,
    /// Export that contains the resource. `None` for the index, and for an export that can't be opened.
    pub(in crate::http) files: Option<Files>,
    pub(in crate::http) path: Option<RelPath>,
    pub(in crate::http) meta: Option<Meta>,
    /// Quota of the index.
    pub(in crate::http) quota: Option<Quota>,
}

impl Resource {
    /// Returns the index, or an export without metadata.
    pub(in crate::http) fn unopened(href: String) -> Self {
        Self {
            href,
            files: None,
            path: None,
            meta: None,
            quota: None,
        }
    }

    /// Returns the time of creation; the earliest known time where the file system does not keep it.
    fn created(&self) -> Option<Timestamp> {
        let meta = self.meta?;
        let files = self.files.as_ref();
        let birth = files.and_then(|files| files.root.birth_time(self.path.as_ref()));
        let birth = birth.and_then(|time| Timestamp::new(time.seconds, time.nanos as i32).ok());
        birth.or_else(|| meta.first_time())
    }

    fn is_directory(&self) -> bool {
        self.meta.is_none_or(|meta| meta.is_dir())
    }

    /// Returns the property's element, if the resource has it.
    pub(super) fn live_property(&self, name: &Name, locks: &LockTable) -> Option<String> {
        if *name == executable() {
            let meta = self.meta.filter(DavMetaData::is_file)?;
            let is = if meta.executable().ok()? { "T" } else { "F" };
            return Some(format!(
                "<A:executable xmlns:A=\"{APACHE_NAMESPACE}\">{is}</A:executable>"
            ));
        }
        let local = name.in_dav()?;
        let value = self.dav_value(local, locks)?;
        Some(if value.is_empty() {
            format!("<D:{local}/>")
        } else {
            format!("<D:{local}>{value}</D:{local}>")
        })
    }

    fn dav_value(&self, local: &str, locks: &LockTable) -> Option<String> {
        Some(match local {
            "resourcetype" if self.is_directory() => "<D:collection/>".to_owned(),
            "resourcetype" => String::new(),
            "getcontenttype" if self.is_directory() => "httpd/unix-directory".to_owned(),
            "getcontenttype" => content_type(&self.href),
            "getcontentlength" => self.meta.filter(DavMetaData::is_file)?.len().to_string(),
            "getetag" => format!("\"{}\"", self.meta?.etag()?),
            "creationdate" => self.created()?.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "getlastmodified" => http_date(&self.meta?)?,
            "lockdiscovery" => self.active_locks(locks),
            "supportedlock" if self.files.is_some() => SUPPORTED_LOCKS.to_owned(),
            "supportedlock" => String::new(),
            "quota-available-bytes" => self.disk_quota()?.available.to_string(),
            "quota-used-bytes" => self.disk_quota()?.used.to_string(),
            _ => return None,
        })
    }

    fn active_locks(&self, locks: &LockTable) -> String {
        let Some(files) = &self.files else {
            return String::new();
        };
        let lock_path = lock_path(files, self.path.as_ref());
        locks
            .covering(&lock_path)
            .map(|lock| activelock_element(files, lock))
            .collect()
    }

    /// Returns the quota of a directory. A mount in an export has its own.
    fn disk_quota(&self) -> Option<Quota> {
        let Some(files) = &self.files else {
            return self.quota;
        };
        self.meta.filter(DavMetaData::is_dir)?;
        Quota::of(&*files.root.dir_fd(self.path.as_ref()).ok()?)
    }

    /// Returns the properties that clients have set; none if they can't be read.
    pub(super) fn dead_properties(&self) -> Vec<dead::Property> {
        let read = self
            .files
            .as_ref()
            .map(|files| dead::of(files, self.path.as_ref()));
        read.and_then(Result::ok).unwrap_or_default()
    }
}

/// Guesses the media type from a name, which is escaped as in a URL.
pub(in crate::http) fn content_type(href: &str) -> String {
    let kind = mime_guess::from_path(href).first_or_octet_stream();
    kind.essence_str().to_owned()
}

/// Returns the time of the last change as an HTTP date.
pub(in crate::http) fn http_date(meta: &Meta) -> Option<String> {
    let time = Timestamp::try_from(meta.modified().ok()?).ok()?;
    DateTimePrinter::new()
        .timestamp_to_rfc9110_string(&time)
        .ok()
}
