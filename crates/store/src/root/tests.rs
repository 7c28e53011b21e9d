// SPDX-License-Identifier: MIT OR Apache-2.0
use super::{
    directories::{OPEN_DIRS_MAX, Resolver},
    *,
};
use std::{os::unix::fs::symlink, sync::atomic::Ordering, thread};
use tempfile::TempDir;

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

/// Root at `in/`, with `outside/` beside it.
fn tree() -> (TempDir, Root) {
    let temp = TempDir::new().unwrap();
    std::fs::create_dir(temp.path().join("in")).unwrap();
    std::fs::create_dir(temp.path().join("outside")).unwrap();
    std::fs::write(temp.path().join("outside/secret"), "secret").unwrap();
    let root = Root::open(&temp.path().join("in")).unwrap();
    (temp, root)
}

/// Runs a test of path resolution with openat2(2) and without.
fn with_and_without_openat2(test: impl Fn(&TempDir, &Root)) {
    for by_steps in [false, true] {
        let (temp, root) = tree();
        root.directories
            .openat2_missing
            .store(by_steps, Ordering::Relaxed);
        test(&temp, &root);
        assert_eq!(
            root.directories.openat2_missing.load(Ordering::Relaxed),
            by_steps
        );
        let left = std::fs::read_dir(temp.path().join("outside"))
            .unwrap()
            .count();
        assert_eq!(left, 1, "nothing came or went outside");
    }
}

#[test]
fn refuses_symlinks_at_any_position() {
    with_and_without_openat2(|temp, root| {
        root.make_dir(&path("a")).unwrap();
        let outside = temp.path().join("outside");
        for link in ["in/l", "in/a/l"] {
            symlink(&outside, temp.path().join(link)).unwrap();
        }
        symlink("a", temp.path().join("in/within")).unwrap();
        for bad in ["l/x", "a/l/x", "l/secret", "l/x/y", "within/x"] {
            let error = root.make_dir(&path(bad)).unwrap_err();
            assert_eq!(error.errno(), Some(Errno::LOOP), "{bad}: {error}");
            let opened = root.open_file(&path(bad)).unwrap_err();
            assert_eq!(opened.errno(), Some(Errno::LOOP), "{bad}");
            assert!(root.remove(&path(bad)).is_err());
            assert!(root.stat(&path(bad)).is_err());
            assert!(root.rename(&path("a"), &path(bad)).is_err());
            assert!(root.make_symlink(&path(bad), b"t").is_err());
            assert!(root.make_node(&path(bad), FileType::Fifo, 0).is_err());
        }
        assert!(root.list(Some(&path("l"))).is_err());
        assert_eq!(
            root.open_file(&path("l")).unwrap_err().errno(),
            Some(Errno::LOOP)
        );
        let made = root.open_with(&path("l"), OFlags::CREATE | OFlags::WRONLY, PRIVATE_DIR);
        assert_eq!(made.unwrap_err().errno(), Some(Errno::LOOP));
    });
}

#[test]
fn performs_each_operation() {
    with_and_without_openat2(|temp, root| {
        root.make_dir(&path("d")).unwrap();
        root.make_dir(&path("d/e")).unwrap();
        std::fs::write(temp.path().join("in/d/e/file"), "data").unwrap();
        root.link(&path("d/e/file"), &path("again")).unwrap();
        root.rename(&path("again"), &path("d/moved")).unwrap();
        root.make_symlink(&path("d/link"), b"/nowhere\xff").unwrap();
        root.make_node(&path("d/fifo"), FileType::Fifo, 0).unwrap();
        assert_eq!(
            io::read_to_string(root.open_file(&path("d/moved")).unwrap()).unwrap(),
            "data"
        );
        let (names, error) = root.list(Some(&path("d"))).unwrap();
        assert!(error.is_none());
        let names: Vec<_> = names.iter().collect();
        assert_eq!(names, [&b"e"[..], b"fifo", b"link", b"moved"]);
        let (_, error) = root.list_up_to(Some(&path("d")), 4).unwrap();
        assert!(error.is_none());
        let (some, error) = root.list_up_to(Some(&path("d")), 2).unwrap();
        assert_eq!(error.unwrap().errno(), Some(Errno::FBIG));
        assert!(some.iter().count() <= 3, "no more are held");
        root.remove(&path("d/e/file")).unwrap();
        root.remove_dir(&path("d/e")).unwrap();
        assert!(root.stat(&path("d/e")).unwrap_err().is_not_found());
    });
}

#[test]
fn uses_the_new_directory_after_removal_and_creation() {
    with_and_without_openat2(|_, root| {
        root.make_dir(&path("d")).unwrap();
        for _ in 0..2 {
            root.make_dir(&path("d/e")).unwrap();
            root.make_dir(&path("d/e/f")).unwrap();
            root.remove_dir(&path("d/e/f")).unwrap();
            root.remove_dir(&path("d/e")).unwrap();
        }
        root.make_dir(&path("d/e")).unwrap();
        root.make_dir(&path("d/e/f")).unwrap();
        root.rename(&path("d"), &path("g")).unwrap();
        assert!(root.stat(&path("d/e/f")).unwrap_err().is_not_found());
        assert!(root.stat(&path("g/e/f")).is_ok());
    });
}

#[test]
fn resolves_name_by_name_without_openat2() {
    let refusals: [Resolver; 2] = [|_, _| Err(Errno::NOSYS), |_, _| Err(Errno::PERM)];
    for refuse in refusals {
        let (_temp, root) = tree();
        root.make_dir(&path("d")).unwrap();
        assert!(root.directories.resolve(&path("d"), refuse).is_ok());
        assert!(
            root.directories.openat2_missing.load(Ordering::Relaxed),
            "not asked again"
        );
    }
    let (_temp, root) = tree();
    let missing = root
        .directories
        .resolve(&path("d"), |_, _| Err(Errno::NOENT));
    assert_eq!(missing.unwrap_err(), Errno::NOENT);
    assert!(!root.directories.openat2_missing.load(Ordering::Relaxed));
}

#[test]
fn limits_open_directories() {
    with_and_without_openat2(|_, root| {
        for number in 0..OPEN_DIRS_MAX * 2 {
            root.make_dir(&path(&format!("d{number}"))).unwrap();
            root.make_dir(&path(&format!("d{number}/e"))).unwrap();
        }
        assert_eq!(root.directories.lock_cache().len(), OPEN_DIRS_MAX);
    });
}

#[test]
fn creates_the_longest_path() {
    let (_temp, root) = tree();
    let longest = path(&format!("{}aa", "a/".repeat(2047)));
    let mut dirs = vec![longest.clone()];
    while let Some(parent) = dirs[dirs.len() - 1].parent() {
        dirs.push(parent);
    }
    dirs.iter()
        .rev()
        .for_each(|dir| root.make_dir(dir).unwrap());
    assert!(root.dir_fd(Some(&longest)).is_ok());
    dirs.iter().for_each(|dir| root.remove_dir(dir).unwrap());
}

/// A second thread exchanges a directory for a link to another and back, as fast as possible.
#[test]
fn directory_swapped_for_a_link_is_not_followed() {
    with_and_without_openat2(|temp, root| {
        root.make_dir(&path("d")).unwrap();
        symlink(temp.path().join("outside"), temp.path().join("in/l")).unwrap();
        let top = temp.path().join("in");
        // The loop ends with the swapping thread, also when that fails.
        thread::scope(|scope| {
            let swaps = scope.spawn(|| swap_often(&top));
            while !swaps.is_finished() {
                try_all_operations_in_d(root);
                root.directories.lock_cache().clear();
            }
        });
    });
}

fn swap_often(top: &Path) {
    let exchange = fs::RenameFlags::EXCHANGE;
    for _ in 0..200 {
        fs::renameat_with(fs::CWD, top.join("d"), fs::CWD, top.join("l"), exchange).unwrap();
        thread::yield_now();
    }
}

fn try_all_operations_in_d(root: &Root) {
    let write = OFlags::CREATE | OFlags::WRONLY;
    let _ = root.open_with(&path("d/new"), write, PRIVATE_DIR);
    let _ = root.make_dir(&path("d/dir"));
    let _ = root.make_symlink(&path("d/sym"), b"x");
    let _ = root.remove(&path("d/secret"));
    let _ = root.rename(&path("d/new"), &path("d/secret"));
    let read = root.open_file(&path("d/secret")).map(io::read_to_string);
    assert!(read.is_err() || read.is_ok_and(|text| text.unwrap().is_empty()));
}

#[test]
fn creates_a_root_and_its_parents() {
    let temp = TempDir::new().unwrap();
    Root::open_or_create(&temp.path().join("new")).unwrap();
    Root::open_or_create(&temp.path().join("new")).unwrap();
    Root::open_or_create(&temp.path().join("a/b/c")).unwrap();
    assert!(temp.path().join("a/b/c").is_dir());
    assert!(Root::open(&temp.path().join("none")).is_err());
    std::fs::write(temp.path().join("file"), "").unwrap();
    assert!(Root::open_or_create(&temp.path().join("file")).is_err());
}

#[test]
fn root_below_a_root_refuses_links() {
    with_and_without_openat2(|temp, root| {
        symlink(temp.path().join("outside"), temp.path().join("in/l")).unwrap();
        symlink("..", temp.path().join("in/up")).unwrap();
        for link in ["l", "up", "l/secret"] {
            assert!(root.subroot(Some(&path(link))).is_err(), "{link}");
            assert!(root.subroot_or_create(Some(&path(link))).is_err(), "{link}");
        }
        let below = root.subroot_or_create(Some(&path("d"))).unwrap();
        root.subroot_or_create(Some(&path("new/a/b"))).unwrap();
        assert!(temp.path().join("in/new/a/b").is_dir());
        assert!(root.subroot_or_create(Some(&path("l/a/b"))).is_err());
        let (near, rest) = root.nearest_subroot(&path("new/c/d/e")).unwrap();
        assert_eq!(rest, path("c/d/e"));
        assert!(near.is_dir(&path("a")) && !near.is_dir(&path("c")));
        assert!(root.nearest_subroot(&path("l/a")).is_err());
        symlink("../l", temp.path().join("in/d/l")).unwrap();
        assert!(below.open_file(&path("l/secret")).is_err());
        below.make_dir(&path("e")).unwrap();
        let same = root.subroot(None).unwrap().subroot(Some(&path("d/e")));
        assert!(same.is_ok());
    });
}

#[test]
fn errors_name_operation_and_path() {
    let (_temp, root) = tree();
    let error = root.open_file(&path("no\x1b")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no\\u{1b}: cannot open: No such file or directory (os error 2)"
    );
}

#[test]
fn open_without_links_refuses_links() {
    let temp = TempDir::new().unwrap();
    let real = temp.path().canonicalize().unwrap();
    let exported = real.join("a/b");
    std::fs::create_dir_all(&exported).unwrap();
    Root::open_without_links(&exported).unwrap();
    Root::open_without_links(Path::new("/")).unwrap();
    for name in ["a/b", "a"] {
        let (at, moved) = (real.join(name), real.join("moved"));
        std::fs::rename(&at, &moved).unwrap();
        symlink(&moved, &at).unwrap();
        let refused = Root::open_without_links(&exported).unwrap_err();
        let wanted = Some(Errno::LOOP.raw_os_error());
        assert_eq!(refused.raw_os_error(), wanted, "{name}");
        std::fs::remove_file(&at).unwrap();
        std::fs::rename(&moved, &at).unwrap();
    }
}

#[test]
fn protected_directories_cannot_be_moved_or_removed() {
    use std::os::unix::fs::MetadataExt;
    let (temp, root) = tree();
    for name in ["kept", "kept/sub", "other"] {
        root.make_dir(&path(name)).unwrap();
    }
    root.make_symlink(&path("link"), b"x").unwrap();
    let meta = std::fs::metadata(temp.path().join("in/kept/sub")).unwrap();
    let root = root.with_protected([(meta.dev(), meta.ino())]);
    let busy = |done: Result<(), Failure>| assert_eq!(done.unwrap_err().errno(), Some(Errno::BUSY));
    busy(root.remove_dir(&path("kept/sub")));
    busy(
        root.subroot(Some(&path("kept")))
            .unwrap()
            .remove_dir(&path("sub")),
    );
    busy(root.rename(&path("kept/sub"), &path("away")));
    busy(root.rename_to_new(&path("kept/sub"), &path("away")));
    busy(root.rename(&path("other"), &path("kept/sub")));
    busy(root.exchange(&path("link"), &path("kept/sub")));
    busy(root.exchange(&path("kept/sub"), &path("link")));
    root.remove_dir(&path("other")).unwrap();
}

#[test]
fn rename_to_new_replaces_nothing() {
    let (temp, root) = tree();
    let at = |name: &str| temp.path().join("in").join(name);
    let read = |name: &str| std::fs::read_to_string(at(name)).unwrap();
    for name in ["a", "b", "c"] {
        std::fs::write(at(name), name).unwrap();
    }
    root.make_dir(&path("dir")).unwrap();
    root.make_dir(&path("empty")).unwrap();
    let by_link = |old: &str, new: &str| {
        let top = root.dir_fd(None).unwrap();
        rename_by_link(&top, old.as_bytes(), &top, new.as_bytes())
    };
    let by_flag = |old: &str, new: &str| {
        let renamed = root.rename_to_new(&path(old), &path(new));
        renamed.map_err(|failure| failure.errno().unwrap())
    };
    for (rename, file) in [(&by_flag as &dyn Fn(&str, &str) -> _, "b"), (&by_link, "c")] {
        for (old, new) in [("a", file), ("a", "empty"), ("dir", "empty"), ("dir", "a")] {
            assert_eq!(rename(old, new), Err(Errno::EXIST), "{old} {new}");
        }
        assert_eq!((read("a").as_str(), read(file).as_str()), ("a", file));
        assert_eq!(rename("a", "new"), Ok(()));
        assert_eq!(rename("new", "a"), Ok(()));
        assert_eq!(rename("dir", "moved"), Ok(()));
        assert_eq!(rename("moved", "dir"), Ok(()));
    }
    root.exchange(&path("a"), &path("dir")).unwrap();
    assert!(at("a").is_dir() && read("dir") == "a");
}

#[test]
fn finds_mount_points() {
    let is_mount_point = |top: &std::path::Path, name: &str| {
        let path = RelPath::parse(name.as_bytes()).unwrap();
        Root::open(top).unwrap().is_mount_point(&path)
    };
    assert!(is_mount_point("/".as_ref(), "proc").unwrap());
    assert!(is_mount_point("/".as_ref(), "no such name").is_err());
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("inner")).unwrap();
    assert!(!is_mount_point(folder.path(), "inner").unwrap());
}
