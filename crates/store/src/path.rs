// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of copied entries, relative to the top of the copy.
//!
//! A name comes from another machine, or from a directory that any user may write to, so it may be
//! any bytes. A [`RelPath`] is a checked path, which always refers to an entry below the top.

use serde::{Deserialize, Serialize};
use std::{
    cmp::Ordering,
    ffi::OsStr,
    fmt,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Maximum bytes in a path: Linux's PATH_MAX.
pub const PATH_LEN_MAX: usize = 4096;

/// Maximum bytes in one name: Linux's NAME_MAX.
pub const NAME_LEN_MAX: usize = 255;

/// Prefix of internal names: parts, journals, manifests. They are never copied.
pub const INTERNAL_PREFIX: &[u8] = b".longhaul-";

/// Whether an entry of this name is an internal one: a part, a journal, a manifest. A user's file may begin with the
/// prefix, too.
#[must_use]
pub fn is_internal_name(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(INTERNAL_PREFIX) else {
        return false;
    };
    let is_fixed = [
        &b"manifest"[..],
        b"identity",
        b"spread",
        b"export",
        b"trash",
    ]
    .contains(&rest);
    let is_of_a_file = hash_and_kind(name).is_some();
    is_of_a_file || is_fixed || INTERNAL_STARTS.iter().any(|start| rest.starts_with(start))
}

/// Returns the hash and the kind in the internal name of a file, as [`internal_name`] makes them.
pub(crate) fn hash_and_kind(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = name.strip_prefix(INTERNAL_PREFIX)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit());
    let (hash, kind) = rest.split_at(digits.count());
    let kind = kind.strip_prefix(b".")?;
    (!hash.is_empty() && !kind.is_empty()).then_some((hash, kind))
}

/// Rest of internal names with a part that differs: manifests of further users and new ones, and trials
/// of names.
const INTERNAL_STARTS: [&[u8]; 3] = [b"manifest-", b"manifest.", b"same-name-"];

/// Suffix of a part that is kept as a piece. It differs from the suffix of a part that an
/// interrupted copy leaves.
pub(crate) const PIECE_DATA: &str = "piece-data";

/// Internal name that belongs to the file named `file`, in the same directory. It has the form
/// `.longhaul-HASH.KIND`.
pub(crate) fn internal_name(file: &[u8], kind: &str) -> Vec<u8> {
    internal_name_of(name_hash(file).as_bytes(), kind)
}

/// HASH of the internal names that belong to the file named `file`.
pub(crate) fn name_hash(file: &[u8]) -> String {
    blake3::hash(file).to_hex()[..32].to_string()
}

/// Internal name with this hash.
pub(crate) fn internal_name_of(hash: &[u8], kind: &str) -> Vec<u8> {
    [INTERNAL_PREFIX, hash, b".", kind.as_bytes()].concat()
}

/// Relative path: names separated by '/'. Each name is not empty, not "." or "..", has no NUL, and
/// is at most [`NAME_LEN_MAX`] bytes long. A path has at least one name and at most
/// [`PATH_LEN_MAX`] bytes. Memory: its bytes, and 16 bytes for pointer and length.
///
/// In the ordering, a directory comes before its contents, and its contents come before the next
/// name. That is the order of a depth-first walk that sorts names by their bytes.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct RelPath(Box<[u8]>);

/// Error for bytes that are not a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct BadPath {
    /// Start of the path, escaped for printing.
    pub path: String,
    /// Reason why it is refused.
    pub reason: Reason,
}

/// Reason why bytes are not a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The path is empty.
    #[error("an empty path names nothing")]
    Empty,
    /// The path begins at the root of the file system.
    #[error("an absolute path may lead anywhere; only names below the copied tree are accepted")]
    Absolute,
    /// Two slashes in a row, or one at the end.
    #[error("has an empty name between or after slashes")]
    EmptyName,
    /// "." or "..".
    #[error("\".\" and \"..\" are not names")]
    Dots,
    /// A zero byte.
    #[error("has a zero byte, which no file system accepts")]
    Nul,
    /// A name is longer than [`NAME_LEN_MAX`].
    #[error("has a name longer than {NAME_LEN_MAX} bytes")]
    LongName,
    /// The path is longer than [`PATH_LEN_MAX`].
    #[error("longer than {PATH_LEN_MAX} bytes")]
    TooLong,
}

/// Checks bytes that a peer sent.
impl TryFrom<Vec<u8>> for RelPath {
    type Error = BadPath;

    fn try_from(bytes: Vec<u8>) -> Result<Self, BadPath> {
        Self::parse(&bytes)
    }
}

impl From<RelPath> for Vec<u8> {
    fn from(path: RelPath) -> Self {
        path.0.into_vec()
    }
}

impl RelPath {
    /// Checks the bytes of a path.
    ///
    /// # Errors
    /// The bytes may refer to an entry outside the directory, or no file system accepts them.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadPath> {
        match check(bytes) {
            Ok(()) => Ok(Self(bytes.into())),
            Err(reason) => Err(BadPath {
                path: printable_start(bytes),
                reason,
            }),
        }
    }

    /// Path of the entry `name` in this directory.
    ///
    /// # Errors
    /// The same as those of [`RelPath::parse`]. A `name` with a slash is taken as several names.
    pub fn join(&self, name: &[u8]) -> Result<Self, BadPath> {
        let longer = [&*self.0, b"/", name].concat();
        Self::parse(&longer)
    }

    /// Path of the entry at `below` in this directory.
    ///
    /// # Errors
    /// The result is too long.
    pub fn join_path(&self, below: &Self) -> Result<Self, BadPath> {
        self.join(&below.0)
    }

    /// Directory of the entry; `None` for an entry at the top.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        self.split().0.map(|parent| Self(parent.into()))
    }

    /// Last name of the path.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.split().1
    }

    /// Names of the path, from the top.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&byte| byte == b'/')
    }

    /// Rest of the path below `top`, if the entry lies there.
    #[must_use]
    pub fn strip_prefix(&self, top: &Self) -> Option<Self> {
        let rest = self.0.strip_prefix(&*top.0)?.strip_prefix(b"/")?;
        Some(Self(rest.into()))
    }

    /// Whether any name in the path is an internal one.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        self.components().any(is_internal_name)
    }

    /// Bytes of the path.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Path as a type of the standard library.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    fn split(&self) -> (Option<&[u8]>, &[u8]) {
        match self.0.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (Some(&self.0[..slash]), &self.0[slash + 1..]),
            None => (None, &self.0),
        }
    }
}

fn check(bytes: &[u8]) -> Result<(), Reason> {
    match bytes {
        [] => return Err(Reason::Empty),
        [b'/', ..] => return Err(Reason::Absolute),
        _ if bytes.len() > PATH_LEN_MAX => return Err(Reason::TooLong),
        _ => {}
    }
    bytes.split(|&byte| byte == b'/').try_for_each(check_name)
}

fn check_name(name: &[u8]) -> Result<(), Reason> {
    match name {
        b"" => Err(Reason::EmptyName),
        b"." | b".." => Err(Reason::Dots),
        _ if name.contains(&0) => Err(Reason::Nul),
        _ if name.len() > NAME_LEN_MAX => Err(Reason::LongName),
        _ => Ok(()),
    }
}

/// Escaped start of a refused path. The path may have any length, and its start identifies it.
fn printable_start(bytes: &[u8]) -> String {
    const SHOWN: usize = 200;
    match bytes.get(..SHOWN) {
        Some(start) => format!("{}…", Printable(start)),
        None if bytes.is_empty() => "\"\"".into(),
        None => Printable(bytes).to_string(),
    }
}

/// Displays the bytes of a name. Bytes that are not printable UTF-8 are escaped. So no name can
/// control a terminal, or imitate another name with an invisible character.
#[derive(Debug, Clone, Copy)]
pub struct Printable<'a>(pub &'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.utf8_chunks().try_for_each(|chunk| {
            chunk
                .valid()
                .chars()
                .try_for_each(|c| write_printable(c, f))?;
            chunk
                .invalid()
                .iter()
                .try_for_each(|b| write!(f, "\\x{b:02x}"))
        })
    }
}

/// Writes a character as `escape_debug` does, except that quotes are not escaped. Control
/// characters, line separators, direction marks and unassigned characters are escaped.
fn write_printable(c: char, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match c {
        '\'' | '"' => write!(f, "{c}"),
        _ => write!(f, "{}", c.escape_debug()),
    }
}

impl Ord for RelPath {
    fn cmp(&self, other: &Self) -> Ordering {
        self.components().cmp(other.components())
    }
}

impl PartialOrd for RelPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printable(&self.0).fmt(f)
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelPath({self})")
    }
}

/// Resolves symbolic links in the existing start of a path, and appends the rest unchanged.
#[must_use]
pub fn resolve_links(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = path.canonicalize() {
        return Some(real);
    }
    let parent = path.parent()?;
    let parent = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    Some(resolve_links(parent)?.join(path.file_name()?))
}

/// Resolves symbolic links in the directory of an entry, but not the entry itself.
#[must_use]
pub fn resolve_parent_links(path: &Path) -> Option<PathBuf> {
    let Some(name) = path.file_name() else {
        return resolve_links(path);
    };
    let parent = match path.parent()? {
        empty if empty.as_os_str().is_empty() => Path::new("."),
        parent => parent,
    };
    Some(resolve_links(parent)?.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    fn reason(bytes: &[u8]) -> Reason {
        RelPath::parse(bytes).unwrap_err().reason
    }

    #[test]
    fn reports_the_reason_of_each_bad_path() {
        assert_eq!(reason(b""), Reason::Empty);
        assert_eq!(reason(b"/etc/passwd"), Reason::Absolute);
        assert_eq!(reason(b"/"), Reason::Absolute);
        assert_eq!(reason(b"a//b"), Reason::EmptyName);
        assert_eq!(reason(b"a/"), Reason::EmptyName);
        assert_eq!(reason(b"."), Reason::Dots);
        assert_eq!(reason(b"../x"), Reason::Dots);
        assert_eq!(reason(b"a/../b"), Reason::Dots);
        assert_eq!(reason(b"a/./b"), Reason::Dots);
        assert_eq!(reason(b"a\0b"), Reason::Nul);
        assert_eq!(reason(&[b'a'; NAME_LEN_MAX + 1]), Reason::LongName);
        assert_eq!(reason(&b"a/".repeat(PATH_LEN_MAX)), Reason::TooLong);
    }

    #[test]
    fn accepts_the_longest_name_and_path() {
        assert!(RelPath::parse(&[b'a'; NAME_LEN_MAX]).is_ok());
        let longest = [&b"a/".repeat(PATH_LEN_MAX / 2 - 1)[..], b"aa"].concat();
        assert_eq!(longest.len(), PATH_LEN_MAX);
        assert!(RelPath::parse(&longest).unwrap().join(b"b").is_err());
    }

    #[test]
    fn accepts_dots_within_names() {
        for name in ["...", "..a", ".a", "a..", "a./b"] {
            assert!(RelPath::parse(name.as_bytes()).is_ok(), "{name}");
        }
    }

    #[test]
    fn escapes_terminal_control_characters() {
        let hostile = RelPath::parse(b"a\x1b[2J\r\n\x07\xff\xc3/\xe2\x80\xae").unwrap();
        assert_eq!(hostile.to_string(), r"a\u{1b}[2J\r\n\u{7}\xff\xc3/\u{202e}");
        assert_eq!(path("daß/it's \"ü\"").to_string(), "daß/it's \"ü\"");
    }

    #[test]
    fn errors_name_the_path() {
        let error = RelPath::parse(b"../\x1bx").unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"../\u{1b}x: "." and ".." are not names"#
        );
    }

    #[test]
    fn detects_internal_names_at_any_depth() {
        assert!(path(".longhaul-manifest").is_internal());
        assert!(path("a/.longhaul-0.part/b").is_internal());
        assert!(!path("a/longhaul-0").is_internal());
    }

    #[test]
    fn below_matches_whole_names() {
        assert_eq!(path("a/b").strip_prefix(&path("a")), Some(path("b")));
        assert_eq!(path("ab").strip_prefix(&path("a")), None);
        assert_eq!(path("a").strip_prefix(&path("a")), None);
    }

    fn any_name() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(b'-'), Just(b'.'), Just(b'a'), any::<u8>()];
        vec(byte, 1..4).prop_filter("a name", |name| {
            check_name(name).is_ok() && !name.contains(&b'/')
        })
    }

    fn any_path() -> impl Strategy<Value = RelPath> {
        vec(any_name(), 1..4).prop_map(|names| RelPath::parse(&names.join(&b'/')).unwrap())
    }

    proptest! {
        #[test]
        fn accepted_paths_stay_below_the_top(bytes in vec(prop_oneof![Just(b'.'), Just(b'/'), any::<u8>()], 0..12)) {
            if let Ok(path) = RelPath::parse(&bytes) {
                prop_assert_eq!(path.as_bytes(), &bytes[..]);
                let plain = |c: std::path::Component<'_>| matches!(c, std::path::Component::Normal(_));
                prop_assert!(path.as_path().components().all(plain));
                prop_assert_eq!(path.as_path().components().count(), path.components().count());
            }
        }

        #[test]
        fn parent_joined_with_name_is_the_path(path in any_path()) {
            let again = match path.parent() {
                Some(parent) => parent.join(path.name()).unwrap(),
                None => RelPath::parse(path.name()).unwrap(),
            };
            prop_assert_eq!(again, path);
        }

        #[test]
        fn sorts_directory_then_contents_then_next_name(
            a in any_path(), b in any_path(), name in any_name(),
        ) {
            let inside = a.join(&name).unwrap();
            prop_assert!(a < inside);
            if a < b && b < inside {
                prop_assert!(b.strip_prefix(&a).is_some());
            }
            prop_assert_eq!(a == b, a.cmp(&b) == Ordering::Equal);
        }

        #[test]
        fn below_reverses_join(top in any_path(), rest in any_path()) {
            prop_assert_eq!(top.join_path(&rest).unwrap().strip_prefix(&top), Some(rest));
        }

        #[test]
        fn displays_as_one_printable_line(path in any_path()) {
            let shown = path.to_string();
            prop_assert!(shown.chars().all(|c| !c.is_control()), "{}", shown);
        }
    }

    #[test]
    fn resolves_links_in_the_existing_part() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(".", top.join("link")).unwrap();
        assert_eq!(resolve_links(&top.join("link/a/b")), Some(top.join("a/b")));
        assert_eq!(
            resolve_links(Path::new("nothing")).unwrap().file_name(),
            Some("nothing".as_ref())
        );
    }
}
