// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metadata of a file: mode, owner, times and extended attributes, including POSIX access control
//! lists.
//!
//! A target may not be able to set all of it: an ordinary user cannot give files away, and a file
//! system may lack attributes. Fields that could not be set are returned as a list. They are not a
//! failure of the copy.

pub(crate) mod acl;
mod fields;
pub(crate) mod handle;
mod rights;
mod target;
mod time;
mod xattr;

pub use fields::{ApplyOutcome, MetadataField, SkippedField};
pub use time::Time;
pub(crate) use time::{modified, time};
pub use xattr::{XATTR_VALUE_MAX, XATTRS_MAX, Xattr};

use handle::Handle;
use rights::Rights;
use rustix::{
    fd::AsFd,
    fs::{self, FileType, Stat, Timestamps},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use target::{Target, read_xattrs};
use time::timespec;
use xattr::{ACL_ACCESS, CAPABILITY, Change, PRIVILEGED, changes, group_bits, is_acl};

/// Owner or group number that leaves the owner or group unchanged, as for chown(2).
const UNCHANGED: u32 = u32::MAX;

const MODE_BITS: u32 = 0o7777;
const SET_ID_BITS: u32 = 0o6000;

/// Metadata of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Metadata {
    /// Permissions, set-id bits and sticky bit: the lower twelve bits.
    pub mode: u32,
    /// Owner's number; 2³² − 1 leaves the owner unchanged.
    pub uid: u32,
    /// Group's number; 2³² − 1 leaves the group unchanged.
    pub gid: u32,
    /// Modification time of the data.
    pub modified: Time,
    /// Access time. Reading changes it, so a difference in it alone is ignored.
    pub accessed: Time,
    /// Extended attributes, sorted by name. An access control list without a value leaves all lists unchanged.
    pub xattrs: Vec<Xattr>,
}

impl Metadata {
    /// Reads the metadata of an open file or directory, with the fields that could not be read.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn of_file(file: &impl AsFd) -> Result<(Self, Vec<SkippedField>), Errno> {
        let stat = fs::fstat(file)?;
        Ok(Self::read(&stat, &Target::Open(file.as_fd())))
    }

    /// Applies this metadata to an open file or directory, as far as possible.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn apply_to_file(&self, file: &impl AsFd) -> Result<ApplyOutcome, Errno> {
        self.apply_to(Target::Open(file.as_fd()))
    }

    /// Reads the metadata of an entry.
    pub(crate) fn of(handle: &Handle) -> (Self, Vec<SkippedField>) {
        Self::read(&handle.stat, &Target::of(handle))
    }

    /// Applies this metadata to an entry, as far as possible.
    pub(crate) fn apply(&self, handle: &Handle) -> Result<ApplyOutcome, Errno> {
        self.apply_to(Target::of(handle))
    }

    fn read(stat: &Stat, target: &Target<'_>) -> (Self, Vec<SkippedField>) {
        let (xattrs, skipped) = read_xattrs(target);
        let metadata = Self {
            mode: stat.st_mode & MODE_BITS,
            uid: stat.st_uid,
            gid: stat.st_gid,
            modified: modified(stat),
            accessed: time(stat.st_atime, stat.st_atime_nsec),
            xattrs,
        };
        (metadata, skipped)
    }

    /// Applies fields in this order: the owner first, because a change of owner clears set-id bits
    /// and capabilities. Access control lists come after other attributes, which need write
    /// permission. They come before the mode, whose middle bits are the mask of the list. Times
    /// come last, because all other changes may alter them.
    fn apply_to(&self, target: Target<'_>) -> Result<ApplyOutcome, Errno> {
        let stat = fs::fstat(target.fd())?;
        let (now, _) = Self::read(&stat, &target);
        let want = self.as_permitted(&now, &Rights::current());
        let mut writer = MetadataWriter {
            target,
            symlink: FileType::from_raw_mode(stat.st_mode).is_symlink(),
            applied: ApplyOutcome::default(),
        };
        writer.apply_owner(&want, &now);
        writer.apply_xattrs(&want, &now);
        writer.apply_mode(&want, &now)?;
        writer.apply_times(&want, &now);
        Ok(writer.applied)
    }

    /// Leaves owner and group at the target unchanged.
    pub(crate) fn keep_target_owner(&mut self) {
        (self.uid, self.gid) = (UNCHANGED, UNCHANGED);
    }

    /// Leaves access control lists at the target unchanged, also those that a new entry inherits. The group gets the
    /// permissions that it has itself at the source: those in the mode may be for somebody in the list.
    pub(crate) fn keep_target_acls(&mut self) {
        if let Some(acl) = self.xattrs.iter().find(|xattr| *xattr.name == *ACL_ACCESS) {
            self.mode = self.mode & !0o070 | group_bits(&acl.value) << 3;
        }
        self.xattrs.retain(|xattr| !is_acl(&xattr.name));
        self.xattrs.push(Xattr::unchanged_acls());
    }

    pub(crate) fn drop_set_id(&mut self) {
        self.mode &= !SET_ID_BITS;
    }

    /// Removes capabilities, and attributes that only root may set.
    pub(crate) fn drop_privileged_attributes(&mut self) {
        self.xattrs
            .retain(|xattr| *xattr.name != *CAPABILITY && !xattr.name.starts_with(PRIVILEGED));
    }

    /// Whether an entry with the metadata `now` must be changed to match this, as far as the
    /// current user may.
    #[must_use]
    pub fn differs(&self, now: &Self, symlink: bool) -> bool {
        let rights = Rights::current();
        let want = self.as_permitted(now, &rights);
        let owned = rights.may_set_owner_fields(now.uid);
        differs_in_owner(want.uid, now.uid)
            || differs_in_owner(want.gid, now.gid)
            || owned && want.differs_in_owner_only_fields(now, symlink)
            || changes(&want.xattrs, &now.xattrs).any(|change| !is_acl(change.name()))
    }

    /// Whether an entry with the metadata `now` differs in fields that only its owner, another
    /// user, may set.
    #[must_use]
    pub fn needs_owner(&self, now: &Self, symlink: bool) -> bool {
        let rights = Rights::current();
        !rights.may_set_owner_fields(now.uid)
            && self
                .as_permitted(now, &rights)
                .differs_in_owner_only_fields(now, symlink)
    }

    /// Whether fields differ that only the owner may set.
    fn differs_in_owner_only_fields(&self, now: &Self, symlink: bool) -> bool {
        !symlink && self.mode != now.mode
            || !self.modified.matches_stored(&now.modified)
            || changes(&self.xattrs, &now.xattrs).any(|change| is_acl(change.name()))
    }

    /// Fields that the current user cannot give to a file of his own, and that are not tried.
    #[must_use]
    pub fn denied_fields(&self) -> Vec<MetadataField> {
        let rights = Rights::current();
        let own_file = Self {
            uid: rights.user,
            gid: rights.group,
            ..Self::default()
        };
        let allowed = self.as_permitted(&own_file, &rights);
        let denied = [
            (MetadataField::Owner, allowed.uid != self.uid),
            (MetadataField::Group, allowed.gid != self.gid),
            (MetadataField::SetId, allowed.mode != self.mode),
        ];
        let denied = denied.into_iter().filter(|(_, denied)| *denied);
        let unchanged = Xattr::unchanged_acls();
        let xattrs = self.xattrs.iter().filter(|xattr| **xattr != unchanged);
        let xattrs = xattrs.map(|xattr| &xattr.name);
        let xattrs = xattrs.filter(|name| !rights.may_set_xattr(name));
        denied
            .map(|(field, _)| field)
            .chain(xattrs.map(|name| MetadataField::Xattr(name.clone())))
            .collect()
    }

    /// This metadata as far as the current user may set it on an entry with the metadata `now`. All
    /// other fields are taken from `now`. If the owner or the group cannot be set, set-id bits are
    /// dropped: they would give another user's program the rights of this user.
    fn as_permitted(&self, now: &Self, rights: &Rights) -> Self {
        let mut want = self.clone();
        if differs_in_owner(self.uid, now.uid) && !rights.may_chown() {
            want.uid = now.uid;
        }
        if differs_in_owner(self.gid, now.gid) && !rights.may_chgrp(self.gid, now.uid) {
            want.gid = now.gid;
        }
        if (want.uid, want.gid) != (self.uid, self.gid) {
            want.mode &= !SET_ID_BITS;
        }
        let keeps_acls = self.xattrs.contains(&Xattr::unchanged_acls());
        let may = |xattr: &&Xattr| {
            rights.may_set_xattr(&xattr.name) && !(keeps_acls && is_acl(&xattr.name))
        };
        want.xattrs.retain(|xattr| may(&xattr));
        want.xattrs
            .extend(now.xattrs.iter().filter(|xattr| !may(xattr)).cloned());
        want
    }
}

fn differs_in_owner(wanted: u32, now: u32) -> bool {
    wanted != UNCHANGED && wanted != now
}

/// Gives the owner of a directory all permissions. If the current user is not the owner, nothing
/// changes.
pub(crate) fn grant_owner_access(handle: &Handle) -> Result<(), Errno> {
    let mode = handle.stat.st_mode & MODE_BITS | 0o700;
    match Target::of(handle).chmod(mode) {
        Err(Errno::PERM) => Ok(()),
        done => done,
    }
}

/// Target of metadata, with the result so far.
struct MetadataWriter<'a> {
    target: Target<'a>,
    symlink: bool,
    applied: ApplyOutcome,
}

impl MetadataWriter<'_> {
    fn record(&mut self, field: MetadataField, result: Result<(), Errno>) {
        match result {
            Ok(()) => self.applied.changed = true,
            Err(errno) => self.applied.skipped.push(SkippedField { field, errno }),
        }
    }

    fn was_skipped(&self, field: &MetadataField) -> bool {
        self.applied
            .skipped
            .iter()
            .any(|skipped| skipped.field == *field)
    }

    /// An ordinary user may still choose among their own groups.
    fn apply_owner(&mut self, want: &Metadata, now: &Metadata) {
        if differs_in_owner(want.uid, now.uid) {
            let done = self.target.chown(Some(want.uid), None);
            self.record(MetadataField::Owner, done);
        }
        if differs_in_owner(want.gid, now.gid) {
            let done = self.target.chown(None, Some(want.gid));
            self.record(MetadataField::Group, done);
        }
    }

    fn apply_xattrs(&mut self, want: &Metadata, now: &Metadata) {
        let mut writable = self.symlink || now.mode & 0o200 != 0;
        for change in changes(&want.xattrs, &now.xattrs) {
            // The owner may need a change of mode to write attributes. `apply_mode` sets it back later.
            if !writable {
                let _ = self.target.chmod(now.mode & 0o777 | 0o200);
                writable = true;
            }
            let done = match change {
                Change::Set(xattr) => self.target.set(xattr),
                Change::Remove(name) => self.target.remove(name),
            };
            self.record(MetadataField::Xattr(change.name().into()), done);
        }
    }

    /// Restores the mode, which the code above, a change of owner or a list may have altered.
    /// Restoring does not count as a change.
    fn apply_mode(&mut self, want: &Metadata, before: &Metadata) -> Result<(), Errno> {
        let now = fs::fstat(self.target.fd())?.st_mode & MODE_BITS;
        let mode = self.mode_allowed(want);
        if self.symlink {
            return Ok(());
        }
        match (now != mode).then(|| self.target.chmod(mode)) {
            None | Some(Ok(())) => self.applied.changed |= mode != before.mode,
            Some(failed) => self.record(MetadataField::Mode, failed),
        }
        Ok(())
    }

    /// Mode to set. Without the owner, set-id bits are dropped: they would give another user's
    /// program the rights of this user. Without the access control list, the group's bits are the
    /// list's group entry: the mode's bits are the list's mask, which may grant more.
    fn mode_allowed(&mut self, want: &Metadata) -> u32 {
        let mut mode = want.mode & MODE_BITS;
        let unknown = want.uid == UNCHANGED || want.gid == UNCHANGED;
        let owner_unknown = self.was_skipped(&MetadataField::Owner)
            || self.was_skipped(&MetadataField::Group)
            || unknown;
        if mode & SET_ID_BITS != 0 && owner_unknown {
            mode &= !SET_ID_BITS;
            self.record(MetadataField::SetId, Err(Errno::PERM));
        }
        let acl = want.xattrs.iter().find(|x| *x.name == *ACL_ACCESS);
        match acl.filter(|acl| self.was_skipped(&MetadataField::Xattr(acl.name.clone()))) {
            Some(acl) => mode & !0o070 | group_bits(&acl.value) << 3,
            None => mode,
        }
    }

    fn apply_times(&mut self, want: &Metadata, now: &Metadata) {
        let unchanged = want.modified.matches_stored(&now.modified);
        if unchanged && !self.applied.changed {
            return;
        }
        let times = Timestamps {
            last_access: timespec(want.accessed),
            last_modification: timespec(want.modified),
        };
        match self.target.set_times(&times) {
            Ok(()) => self.applied.changed |= !unchanged,
            failed => self.record(MetadataField::Times, failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{target::charge_budget, *};
    use crate::{
        path::RelPath,
        root::Root,
        tests::{acl, as_ordinary_user, is_root},
    };
    use std::{fs::File, os::unix::fs::PermissionsExt};
    use tempfile::TempDir;

    fn xattr(name: &str, value: &[u8]) -> Xattr {
        Xattr {
            name: name.as_bytes().into(),
            value: value.into(),
        }
    }

    fn file() -> (TempDir, File) {
        let temp = TempDir::new().unwrap();
        let file = File::create(temp.path().join("file")).unwrap();
        (temp, file)
    }

    fn now(file: &File) -> Metadata {
        Metadata::of_file(file).unwrap().0
    }

    #[test]
    fn time_matches_its_truncation_to_file_system_units() {
        let time = |seconds, nanos| Time { seconds, nanos };
        let given = time(7, 987_654_321);
        for stored in [
            987_654_321,
            987_654_300,
            987_654_000,
            987_000_000,
            980_000_000,
            0,
        ] {
            assert!(given.matches_stored(&time(7, stored)), "{stored}");
        }
        for other in [
            time(7, 987_654_320),
            time(7, 900_000_000),
            time(8, 0),
            time(6, 0),
        ] {
            assert!(!given.matches_stored(&other), "{other:?}");
        }
        assert!(
            !time(7, 0).matches_stored(&given),
            "stored times are truncated, never refined"
        );
    }

    #[test]
    fn applied_metadata_reads_back() {
        let (_temp, file) = file();
        let before_1970 = Time {
            seconds: -86_401,
            nanos: 999_999_999,
        };
        let want = Metadata {
            mode: 0o2660,
            modified: before_1970,
            accessed: Time {
                seconds: 7,
                nanos: 1,
            },
            xattrs: vec![
                xattr("system.posix_acl_access", &acl(0o6, 0o2, 0o4)),
                xattr("user.a", b"\0\xff"),
                xattr("user.empty", b""),
            ],
            ..now(&file)
        };
        let applied = want.apply_to_file(&file).unwrap();
        assert!(applied.changed);
        assert_eq!(applied.skipped, []);
        assert_eq!(now(&file), want);
        assert_eq!(want.apply_to_file(&file).unwrap(), ApplyOutcome::default());
    }

    #[test]
    fn removes_attributes_missing_at_the_source() {
        let (_temp, file) = file();
        let plain = now(&file);
        let mut more = plain.clone();
        more.xattrs = vec![
            xattr("system.posix_acl_access", &acl(6, 2, 4)),
            xattr("user.a", b"1"),
        ];
        assert!(more.differs(&plain, false));
        more.apply_to_file(&file).unwrap();
        assert!(plain.differs(&now(&file), false));
        assert_eq!(plain.apply_to_file(&file).unwrap().skipped, []);
        assert_eq!(now(&file), plain);
    }

    /// A directory with a default list, as in a shared project directory.
    #[test]
    fn inherited_lists_can_be_kept() {
        let (temp, _) = file();
        let dir = File::open(temp.path()).unwrap();
        let default = acl(7, 5, 7);
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::fsetxattr(&dir, "system.posix_acl_default", &default, flags).unwrap();
        let new = File::create(temp.path().join("new")).unwrap();
        let inherited = now(&new).xattrs;
        assert_eq!(inherited.len(), 1, "{inherited:?}");

        let mut want = Metadata {
            mode: 0o660,
            xattrs: vec![
                xattr("system.posix_acl_access", &acl(6, 4, 6)),
                xattr("user.a", b"1"),
            ],
            ..now(&new)
        };
        want.keep_target_acls();
        assert_eq!(want.mode, 0o640, "what the group itself may do");
        assert_eq!(want.apply_to_file(&new).unwrap().skipped, []);
        let names = |metadata: &Metadata| {
            let names = metadata.xattrs.iter().map(|xattr| xattr.name.clone());
            names.collect::<Vec<_>>()
        };
        let result = now(&new);
        let kept: [Box<[u8]>; 2] = [
            b"system.posix_acl_access".as_slice().into(),
            b"user.a".as_slice().into(),
        ];
        assert_eq!((names(&result), result.mode), (kept.to_vec(), 0o640));
        let named = |list: &[u8]| list[12..20].to_vec();
        assert_eq!(named(&result.xattrs[0].value), named(&default));
        assert!(!want.differs(&result, false));
        assert_eq!(want.denied_fields(), []);

        let mut plain = now(&dir);
        plain.xattrs.clear();
        assert!(plain.differs(&now(&dir), false));
        plain.keep_target_acls();
        assert!(!plain.differs(&now(&dir), false));
    }

    /// XFS shows access control lists under these names, too.
    #[test]
    fn lists_of_xfs_are_no_attributes() {
        let plain = Metadata::default();
        let mut on_xfs = plain.clone();
        on_xfs.xattrs = ["trusted.SGI_ACL_FILE", "trusted.SGI_ACL_DEFAULT"]
            .map(|name| xattr(name, b"1"))
            .into();
        assert!(!plain.differs(&on_xfs, false) && !on_xfs.differs(&plain, false));
        on_xfs.xattrs = vec![xattr("trusted.mine", b"1")];
        assert!(!is_root() || plain.differs(&on_xfs, false));
    }

    #[test]
    fn set_id_and_capabilities_survive_a_change_of_owner() {
        if !is_root() {
            longhaul_testprograms::skip::record("needs root to give files away");
            return;
        }
        let (_temp, file) = file();
        // Version 2, with no capability.
        let capability = [&[0, 0, 0, 2][..], &[0; 16]].concat();
        let want = Metadata {
            mode: 0o6755,
            uid: 1234,
            gid: 4321,
            xattrs: vec![xattr("security.capability", &capability)],
            ..now(&file)
        };
        assert_eq!(want.apply_to_file(&file).unwrap().skipped, []);
        assert_eq!(now(&file), want);
    }

    #[test]
    fn ordinary_user_is_denied_privileged_fields() {
        if !is_root() {
            longhaul_testprograms::skip::record("needs root to act as another user");
            return;
        }
        let (temp, file) = file();
        let want = Metadata {
            mode: 0o6555,
            uid: 0,
            gid: 0,
            xattrs: vec![xattr("trusted.a", b"1"), xattr("user.b", b"2")],
            ..now(&file)
        };
        std::fs::set_permissions(temp.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let path = temp.path().join("theirs");
        let (applied, got) = as_ordinary_user(|| {
            let file = File::create(&path).unwrap();
            file.set_permissions(PermissionsExt::from_mode(0o400))
                .unwrap();
            let applied = want.apply_to_file(&file).unwrap();
            let again = want.apply_to_file(&file).unwrap();
            assert!(
                !again.changed,
                "fields that cannot be set are not reported as changed"
            );
            (applied, now(&file))
        });
        assert_eq!(applied.skipped, [], "it is not tried");
        let trusted = MetadataField::Xattr((*b"trusted.a").into());
        let denied = as_ordinary_user(|| want.denied_fields());
        assert_eq!(
            denied,
            [
                MetadataField::Owner,
                MetadataField::Group,
                MetadataField::SetId,
                trusted
            ]
        );
        assert!(!as_ordinary_user(|| want.differs(&got, false)));
        assert!(
            want.differs(&got, false) && want.denied_fields().is_empty(),
            "root may"
        );
        assert_eq!(
            got.mode, 0o555,
            "set-id bits of another owner are not given"
        );
        assert_eq!(got.xattrs, [xattr("user.b", b"2")]);
        assert_eq!(got.modified, want.modified);
    }

    #[test]
    fn acl_mask_grants_the_group_nothing_without_the_acl() {
        assert_eq!(group_bits(&acl(6, 0, 7)), 0);
        assert_eq!(group_bits(&acl(6, 5, 7)), 5);
        assert_eq!(group_bits(b""), 0);
        let (_temp, file) = file();
        let want = Metadata {
            mode: 0o670,
            xattrs: vec![xattr("system.posix_acl_access", &acl(6, 0, 7)[..9])],
            ..now(&file)
        };
        assert_eq!(want.apply_to_file(&file).unwrap().skipped.len(), 1);
        assert_eq!(now(&file).mode, 0o600);
    }

    #[test]
    fn applies_metadata_to_a_symlink_not_its_target() {
        let (temp, file) = file();
        let root = Root::open(temp.path()).unwrap();
        let path = RelPath::parse(b"link").unwrap();
        root.make_symlink(&path, b"file").unwrap();
        let (link, _) = Metadata::of(&root.handle(&path).unwrap());
        let mut want = link.clone();
        want.modified.seconds = -5;
        if is_root() {
            want.uid = 7;
            want.xattrs = vec![xattr("trusted.x", b"1")];
        }
        let target = now(&file);
        let applied = want.apply(&root.handle(&path).unwrap()).unwrap();
        assert_eq!(applied.skipped, []);
        let got = Metadata::of(&root.handle(&path).unwrap()).0;
        assert!(!want.differs(&got, true));
        assert_eq!(now(&file), target, "not the target of the link");
    }

    #[test]
    fn rejects_attributes_beyond_the_maximum() {
        let mut room = XATTRS_MAX;
        assert!(charge_budget(&mut room, b"user.a", vec![0; XATTRS_MAX - 6]).is_ok());
        assert_eq!(charge_budget(&mut room, b"u", vec![]), Err(Errno::TOOBIG));
    }

    #[test]
    fn security_labels_are_neither_copied_nor_removed() {
        let label = xattr("security.selinux", b"some_t");
        let (some, none) = ([label], []);
        assert_eq!(changes(&some, &none).count(), 0);
        assert_eq!(changes(&none, &some).count(), 0);
    }

    #[test]
    fn limits_nanoseconds_with_special_meanings() {
        let omit = Time {
            seconds: 1,
            nanos: 0x3fff_fffe,
        };
        assert_eq!(timespec(omit).tv_nsec, 999_999_999);
    }
}
