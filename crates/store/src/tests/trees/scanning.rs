// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scans of sources, and their errors.

use super::*;

#[test]
fn interprets_arguments_like_cp_and_rsync() {
    let temp = dirs();
    let src = temp.path().join("src");
    fs::write(src.join("file"), "").unwrap();
    symlink("src", temp.path().join("link")).unwrap();
    symlink("src/file", temp.path().join("link to file")).unwrap();
    let all = |argument: &Path| describe_items(&mut scan(argument, Filter::default()));
    assert_eq!(all(&src), ["src", "src/file"]);
    assert_eq!(all(&contents(&src)), [".", "file"]);
    assert_eq!(all(&src.join(".")), [".", "file"]);
    assert_eq!(all(&temp.path().join("link")), ["link"], "the link itself");
    assert_eq!(all(&contents(&temp.path().join("link"))), [".", "file"]);
    assert_eq!(all(&src.join("file")), ["file"]);
    assert_eq!(all(&temp.path().join("link to file")), ["link to file"]);
    let source = Source::open(&src.join("file")).unwrap();
    assert!(source.open_file(&rel("file"), false).is_ok());
    assert!(
        source
            .open_file(&rel("src"), false)
            .unwrap_err()
            .is_not_found()
    );
    assert!(Source::open(&src.join("none")).is_err());
    assert!(
        Source::open(&contents(&src.join("file"))).is_err(),
        "not a directory"
    );
}

#[test]
fn many_sources_share_descriptors() {
    let temp = dirs();
    let paths: Vec<_> = (0..50)
        .map(|n| temp.path().join(format!("src/{n}")))
        .collect();
    paths.iter().for_each(|path| fs::create_dir(path).unwrap());
    let sources = Source::open_all(paths.iter().map(PathBuf::as_path));
    let sources: Vec<Source> = sources.into_iter().map(Result::unwrap).collect();
    assert!(
        sources
            .iter()
            .all(|source| source.shares_descriptors_with(&sources[0]))
    );
    let mut scan = Scan::new(sources, Filter::default(), Options::default()).unwrap();
    assert_eq!(describe_items(&mut scan).len(), 50);
    assert_eq!(scan.ended(), ScanEnd::Complete);
}

#[test]
fn scans_the_file_system_root() {
    let only = [Rule::Include("/proc/".into()), Rule::Exclude("/*/*".into())];
    let filter = Filter::new(&only).unwrap();
    let mut scan = scan(Path::new("/"), filter);
    assert!(describe_items(&mut scan).contains(&"proc".into()));
}

#[test]
fn unreadable_source_is_a_failure() {
    let temp = dirs();
    set_mode(temp.path(), 0o777);
    let src = temp.path().join("src");
    set_mode(&src, 0);
    as_ordinary_user(|| {
        let mut scan = scan(&src.join(""), Filter::default());
        assert_eq!(describe_items(&mut scan).len(), 1);
        assert_eq!(scan.ended(), ScanEnd::Failures(1));
    });
}

/// Makes these files and their directories, and opens sources.
fn sources(temp: &TempDir, files: &[&str], arguments: &[&str]) -> Vec<Source> {
    for file in files {
        let path = temp.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    let open = |argument: &&str| Source::open(&temp.path().join(argument)).unwrap();
    arguments.iter().map(open).collect()
}

#[test]
fn merges_directories_of_several_sources() {
    let files = ["a/s/d/1", "a/s/f", "b/s/d/0", "b/s/d/2", "b/t/x", "c/s/d/1"];
    let temp = dirs();
    let all = ["s", "s/d", "s/d/0", "s/d/1", "s/d/2", "s/f"];
    let scan_of = |arguments: &[&str]| {
        let sources = sources(&temp, &files, arguments);
        let mut scan = Scan::new(sources, Filter::default(), Options::default()).unwrap();
        (describe_items(&mut scan), scan.ended())
    };
    for arguments in [["a/s", "b/s"], ["b/s", "a/s"], ["a/s", "a/../b/s"]] {
        assert_eq!(scan_of(&arguments).0, all);
    }
    let (contents, end) = scan_of(&["a/", "b/"]);
    let expected = [
        ".", "s", "s/d", "s/d/0", "s/d/1", "s/d/2", "s/f", "t", "t/x",
    ];
    assert_eq!(
        (contents, end),
        (expected.map(String::from).into(), ScanEnd::Complete)
    );
    let (mixed, end) = scan_of(&["b/t/", "a/s", "b/", "b/t/x"]);
    let expected = [
        ".", "x", "s", "s/d", "s/d/0", "s/d/1", "s/d/2", "s/f", "t", "t/x",
    ];
    assert_eq!(
        (mixed, end),
        (expected.map(String::from).into(), ScanEnd::Complete)
    );
}

#[test]
fn copies_the_first_of_two_files_with_one_path() {
    let files = ["a/s/d/1", "b/s/d/1", "c/s/d", "d/s/d/1/x"];
    let temp = dirs();
    let scan_of = |arguments: &[&str]| {
        let sources = sources(&temp, &files, arguments);
        Scan::new(sources, Filter::default(), Options::default())
    };
    let described = |arguments: &[&str]| {
        let mut scan = scan_of(arguments).unwrap();
        (describe_items(&mut scan), scan.ended())
    };
    let (lines, end) = described(&["a/s", "b/s", "c/s", "d/s"]);
    let (failed, copied): (Vec<&str>, Vec<&str>) = lines
        .iter()
        .map(String::as_str)
        .partition(|line| line.contains(": "));
    let why = "conflict";
    assert_eq!(
        failed,
        [
            format!("s/d: {why}"),
            format!("s/d/1: {why}"),
            format!("s/d/1: {why}")
        ]
    );
    assert_eq!(copied, ["s", "s/d", "s/d/1"]);
    assert_eq!(end, ScanEnd::Complete);
    assert!(matches!(
        scan_of(&["a/s/d/1", "b/s/d/1"]),
        Err(SourceError::SameName { .. })
    ));
    assert!(matches!(
        scan_of(&["a/s/d", "c/s/d"]),
        Err(SourceError::SameName { .. })
    ));
    // Given twice.
    assert_eq!(
        described(&["a/s/d/1", "a/s/d/1"]),
        (vec!["1".into()], ScanEnd::Complete)
    );
    assert_eq!(
        described(&["a/s/", "a/s/"]),
        (
            [".", "d", "d/1"].map(String::from).into(),
            ScanEnd::Complete
        )
    );
}

#[test]
fn returns_entries_in_path_order() {
    let temp = dirs();
    let src = temp.path().join("src");
    for dir in ["a", "a-", "a.d", "B"] {
        fs::create_dir(src.join(dir)).unwrap();
        fs::write(src.join(dir).join("z"), "").unwrap();
    }
    let paths: Vec<_> = scan(&src, Filter::default())
        .filter_map(|item| match item {
            ScanItem::Entry { entry, .. } => Some(entry.path),
            _ => None,
        })
        .collect();
    assert!(paths.is_sorted(), "{paths:?}");
    assert_eq!(paths.len(), 9);
}

#[test]
fn skips_internal_files_and_sockets() {
    let temp = dirs();
    let src = temp.path().join("src");
    fs::write(src.join(".longhaul-manifest"), "").unwrap();
    let _listener = UnixListener::bind(src.join("socket")).unwrap();
    let mut scan = scan(&contents(&src), Filter::default());
    assert_eq!(
        describe_items(&mut scan),
        [".", "socket: sockets are not copied"]
    );
    assert_eq!(scan.ended(), ScanEnd::Complete);
}

#[test]
fn does_not_enter_excluded_directories() {
    let temp = dirs();
    set_mode(temp.path(), 0o777);
    let src = temp.path().join("src");
    fs::create_dir_all(src.join("a/cache/deep")).unwrap();
    set_mode(&src.join("a/cache"), 0);
    as_ordinary_user(|| {
        let mut filtered = scan(&src, exclude("cache/"));
        assert_eq!(describe_items(&mut filtered), ["src", "src/a"]);
        assert_eq!(
            filtered.ended(),
            ScanEnd::Complete,
            "what is excluded need not be readable"
        );
    });
}

#[test]
fn reports_unreadable_entries_and_continues() {
    let temp = dirs();
    set_mode(temp.path(), 0o777);
    let src = temp.path().join("src");
    fs::create_dir(src.join("locked")).unwrap();
    fs::write(src.join("locked too"), "").unwrap();
    fs::write(src.join("z"), "").unwrap();
    set_mode(&src.join("locked"), 0);
    set_mode(&src.join("locked too"), 0);
    as_ordinary_user(|| {
        let mut scan = scan(&src, Filter::default());
        let lines = describe_items(&mut scan);
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert_eq!(
            lines[1],
            "src/locked: cannot read: Permission denied (os error 13)"
        );
        assert!(
            lines[2].starts_with("src/locked too: cannot read: "),
            "{lines:?}"
        );
        assert_eq!(lines[3], "src/z");
        assert_eq!(scan.ended(), ScanEnd::Failures(2));
    });
}

#[test]
fn reports_entries_removed_during_the_scan() {
    let temp = dirs();
    let src = temp.path().join("src");
    for name in ["a", "b", "c"] {
        fs::write(src.join(name), "").unwrap();
    }
    let mut scan = scan(&contents(&src), Filter::default());
    assert!(matches!(scan.next(), Some(ScanItem::Top { .. })));
    assert!(matches!(scan.next(), Some(ScanItem::Entry { .. })));
    assert_eq!(scan.ended(), ScanEnd::Unfinished);
    fs::remove_file(src.join("b")).unwrap();
    assert!(describe_items(&mut scan)[0].starts_with("b: cannot access: No such file"));
    assert_eq!(scan.ended(), ScanEnd::Failures(1));
}

#[test]
fn does_not_enter_other_file_systems() {
    let mounted = Path::new("/dev/shm");
    let on_root = |path: &Path| sys::stat(path).map(|stat| stat.st_dev).ok();
    if on_root(mounted).is_none() || on_root(mounted) == on_root(Path::new("/dev")) {
        longhaul_testprograms::skip::record(format!("nothing is mounted at {}", mounted.display()));
        return;
    }
    let options = Options {
        one_file_system: true,
        ..Options::default()
    };
    let source = Source::open(Path::new("/dev/")).unwrap();
    let mut scan = Scan::new([source], exclude("/[a-rt-z]*"), options).unwrap();
    let skipped = scan.find(|item| {
        matches!(
            item,
            ScanItem::Skipped {
                reason: SkipReason::OtherFileSystem,
                ..
            }
        )
    });
    assert!(matches!(skipped, Some(ScanItem::Skipped { path, .. }) if path == rel("shm")));
    let inside = scan.any(
        |item| matches!(item, ScanItem::Entry { entry, .. } if entry.path.strip_prefix(&rel("shm")).is_some()),
    );
    assert!(!inside);
}

#[test]
fn copies_deep_trees_without_recursion() {
    let temp = dirs();
    let root = Root::open(&temp.path().join("src")).unwrap();
    let mut dir = rel("d");
    for _ in 0..1100 {
        root.make_dir(&dir).unwrap();
        dir = dir.join(b"d").unwrap();
    }
    let counts = plain_copy(
        &contents(&temp.path().join("src")),
        &temp.path().join("dst"),
    );
    assert_eq!((counts.changed, counts.failures), (1100, vec![]));
    let dst = Root::open(&temp.path().join("dst")).unwrap();
    let (removed, failures) = remove_all(&dst, &Filter::default(), &rel("d"));
    assert_eq!((removed, failures.len()), (1100, 0));
    assert_eq!(remove_all(&root, &Filter::default(), &rel("d")).0, 1100);
}

#[test]
fn reading_leaves_access_times_unchanged() {
    use std::os::unix::fs::MetadataExt;
    let temp = dirs();
    let src = temp.path().join("src");
    fs::create_dir(src.join("d")).unwrap();
    fs::write(src.join("d/f"), "data").unwrap();
    // Older than the modification time, so that the system would record any access.
    let old = fs::FileTimes::new().set_accessed(std::time::UNIX_EPOCH);
    let paths = [src.join("d/f"), src.join("d"), src.clone()];
    for path in &paths {
        fs::File::open(path).unwrap().set_times(old).unwrap();
    }
    plain_copy(&contents(&src), &temp.path().join("dst"));
    for path in &paths {
        assert_eq!(fs::metadata(path).unwrap().atime(), 0, "{}", path.display());
    }
}
