// SPDX-License-Identifier: MIT OR Apache-2.0
//! Live properties, which the site computes (RFC 4918 §15, RFC 4331), and the resources that have them.

use super::dead;
use crate::http::{
    export::{files::Files, meta::Meta},
    get::content_type,
    lock::activelock_element,
    locks::LockTable,
    request::xml::{DAV, Name},
};
use jiff::Timestamp;
use longhaul_store::path::RelPath;
use rustix::fs::fstatvfs;
use std::os::fd::AsFd;

/// Live properties that a PROPFIND for all returns (RFC 4331 §2: no quota).
pub(super) const ALLPROP_NAMES: [&str; 8] = [
    "resourcetype",
    "creationdate",
    "getcontentlength",
    "getcontenttype",
    "getetag",
    "getlastmodified",
    "lockdiscovery",
    "supportedlock",
];

const QUOTA: [&str; 2] = ["quota-available-bytes", "quota-used-bytes"];

/// Namespace of Apache's property for executable files.
const APACHE: &str = "http://apache.org/dav/props/";

/// Supported locks: exclusive and shared write locks.
const SUPPORTED_LOCKS: &str = "\
    <D:lockentry><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>\
    <D:lockentry><D:lockscope><D:shared/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>";

/// Returns the names of all live properties.
pub(super) fn live_names() -> Vec<Name> {
    let dav = ALLPROP_NAMES.iter().chain(&QUOTA);
    let dav = dav.map(|local| Name::new(DAV, local));
    dav.chain([Name::new(APACHE, "executable")]).collect()
}

/// Returns whether clients may set a property. Those in the DAV namespace are the site's, except two that are meant
/// for people.
pub(super) fn is_settable(name: &Name) -> bool {
    match &*name.namespace {
        DAV => ["displayname", "getcontentlanguage"].contains(&&*name.local),
        namespace => (namespace, &*name.local) != (APACHE, "executable"),
    }
}

/// Space on a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quota {
    available: u64,
    used: u64,
}

impl Quota {
    /// Returns the quota of the file system that contains a file or a directory.
    pub(crate) fn of(file: impl AsFd) -> Option<Self> {
        let stat = fstatvfs(file).ok()?;
        let used = stat.f_blocks.saturating_sub(stat.f_bfree);
        Some(Self {
            available: stat.f_bavail.saturating_mul(stat.f_frsize),
            used: used.saturating_mul(stat.f_frsize),
        })
    }
}

/// Resource that has properties.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resource {
    /// Path of the resource's URL.
    pub(crate) href: String,
    /// Export that contains the resource. `None` for the index, and for an export that can't be opened.
    pub(crate) files: Option<Files>,
    pub(crate) path: Option<RelPath>,
    pub(crate) meta: Option<Meta>,
    /// Quota of the index and of the exports in it.
    pub(crate) quota: Option<Quota>,
}

impl Resource {
    pub(crate) fn new(files: &Files, path: Option<RelPath>, meta: Meta) -> Self {
        Self {
            files: Some(files.clone()),
            meta: Some(meta),
            href: files.href(path.as_ref(), &meta),
            path,
            quota: None,
        }
    }

    /// Returns the time of creation; the earliest known time where the file system does not keep it.
    fn created(&self) -> Option<Timestamp> {
        let birth = self.files.as_ref()?.root.birth_time(self.path.as_ref());
        let birth = birth.and_then(|time| Timestamp::new(time.seconds, time.nanos as i32).ok());
        birth.or_else(|| self.meta?.first_time())
    }

    /// Returns the metadata of a file. `None` for a directory.
    fn file(&self) -> Option<Meta> {
        self.meta.filter(Meta::is_file)
    }

    /// Returns the property's element, if the resource has it.
    pub(super) fn live_property(&self, name: &Name, locks: &LockTable) -> Option<String> {
        if (&*name.namespace, &*name.local) == (APACHE, "executable") {
            let is = if self.file()?.is_executable() {
                "T"
            } else {
                "F"
            };
            let element = format!("<A:executable xmlns:A=\"{APACHE}\">{is}</A:executable>");
            return Some(element);
        }
        let local = name.in_dav();
        Some(match &*self.dav_value(local, locks)? {
            "" => format!("<D:{local}/>"),
            value => format!("<D:{local}>{value}</D:{local}>"),
        })
    }

    fn dav_value(&self, local: &str, locks: &LockTable) -> Option<String> {
        Some(match local {
            "resourcetype" if self.file().is_none() => "<D:collection/>".to_owned(),
            "resourcetype" => String::new(),
            "getcontenttype" if self.file().is_none() => "httpd/unix-directory".to_owned(),
            "getcontenttype" => content_type(&self.href),
            "getcontentlength" => self.file()?.len().to_string(),
            "getetag" => self.meta?.etag(),
            "creationdate" => self.created()?.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "getlastmodified" => self.meta?.http_date()?,
            "lockdiscovery" => self.active_locks(locks),
            "supportedlock" if self.files.is_some() => SUPPORTED_LOCKS.to_owned(),
            "supportedlock" => String::new(),
            "quota-available-bytes" => self.disk_quota()?.available.to_string(),
            "quota-used-bytes" => self.disk_quota()?.used.to_string(),
            _ => return None,
        })
    }

    fn active_locks(&self, locks: &LockTable) -> String {
        let element = |files: &Files| {
            let lock_path = files.lock_path(self.path.as_ref());
            let locks = locks.covering(&lock_path);
            locks.map(|lock| activelock_element(files, lock)).collect()
        };
        self.files.as_ref().map(element).unwrap_or_default()
    }

    /// Returns the quota of a directory. A mount in an export has its own.
    fn disk_quota(&self) -> Option<Quota> {
        self.quota.or_else(|| {
            self.meta.filter(Meta::is_dir)?;
            let root = &self.files.as_ref()?.root;
            Quota::of(&*root.dir_fd(self.path.as_ref()).ok()?)
        })
    }

    /// Returns the properties that clients have set; none if they can't be read.
    pub(super) fn dead_properties(&self) -> Vec<dead::Property> {
        let read = |files| dead::of(files, self.path.as_ref()).ok();
        self.files.as_ref().and_then(read).unwrap_or_default()
    }
}
