// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of random trees over random leftovers.

use super::*;

/// Step in the creation of a random tree.
#[derive(Debug, Clone)]
enum CreateStep {
    Dir(u32),
    File(Vec<u8>, u32, i64),
    Symlink(Vec<u8>),
    LinkToLast,
    Fifo,
    Sparse(u64),
    Xattr(Vec<u8>),
}

/// Seconds since 1970 that every file system stores. ext4 moves times before 1901 to 1901. Two
/// files of the same size with different data would then look the same.
const STORABLE_TIMES: std::ops::Range<i64> = -2_000_000_000..2_000_000_000;

fn any_step() -> impl Strategy<Value = CreateStep> {
    let target = vec(1u8..=255, 1..20);
    prop_oneof![
        (0o500u32..=0o777).prop_map(|mode| CreateStep::Dir(mode | 0o500)),
        (vec(any::<u8>(), 0..50), 0u32..=0o7777, STORABLE_TIMES)
            .prop_map(|(data, mode, time)| CreateStep::File(data, mode, time)),
        target.prop_map(CreateStep::Symlink),
        Just(CreateStep::LinkToLast),
        Just(CreateStep::Fifo),
        (1u64..1 << 20).prop_map(CreateStep::Sparse),
        vec(any::<u8>(), 0..100).prop_map(CreateStep::Xattr),
    ]
}

/// Creates a tree from the steps: each adds an entry, with one of few names, to one of the
/// directories so far.
fn make(top: &Path, steps: &[(CreateStep, usize, u8)]) {
    let (mut dirs, mut last) = (vec![top.to_owned()], None::<PathBuf>);
    let mut modes = Vec::new();
    for (step, dir, name) in steps {
        let names: [&[u8]; 5] = [b"a", b"b-", b"c\xff", b".d", b"e\n"];
        let name = std::ffi::OsStr::from_bytes(names[usize::from(*name) % names.len()]);
        let path = dirs[dir % dirs.len()].join(name);
        if let (CreateStep::Xattr(value), Some(file)) = (step, &last) {
            set_xattr(file, "user.x", value);
        }
        if path.symlink_metadata().is_ok() {
            continue;
        }
        match step {
            CreateStep::Dir(mode) => {
                fs::create_dir(&path).unwrap();
                modes.push((path.clone(), *mode));
                dirs.push(path);
            }
            CreateStep::File(data, mode, time) => {
                fs::write(&path, data).unwrap();
                set_mode(&path, mode | 0o600);
                set_times(&path, *time, time.rem_euclid(1_000_000_000));
                last = Some(path);
            }
            CreateStep::Symlink(target) => {
                symlink(std::ffi::OsStr::from_bytes(target), &path).unwrap();
            }
            CreateStep::LinkToLast => {
                if let Some(file) = &last {
                    fs::hard_link(file, &path).unwrap();
                }
            }
            CreateStep::Fifo => sys::mkfifoat(sys::CWD, &path, Mode::RUSR).unwrap(),
            CreateStep::Sparse(size) => fs::File::create(&path).unwrap().set_len(*size).unwrap(),
            CreateStep::Xattr(_) => {}
        }
    }
    modes
        .iter()
        .rev()
        .for_each(|(dir, mode)| set_mode(dir, *mode));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_trees_are_copied_over_random_leftovers(
        steps in vec((any_step(), any::<usize>(), any::<u8>()), 0..25),
        before in vec((any_step(), any::<usize>(), any::<u8>()), 0..6),
    ) {
        let temp = dirs();
        let (src, dst) = (temp.path().join("src"), temp.path().join("dst"));
        make(&src, &steps);
        make(&dst, &before);
        remove_what_differs_in_kind(&src, &dst);
        let counts = plain_copy(&contents(&src), &dst);
        prop_assert_eq!(counts.failures, Vec::<String>::new());
        delete_extras(&temp);
        prop_assert_eq!(listing(&dst), listing(&src));
        let again = plain_copy(&contents(&src), &dst);
        prop_assert_eq!((again.changed, again.wanted, again.failures), (0, 0, vec![]));
    }
}

/// Removes entries whose type blocks the copy: directories and other entries do not replace each
/// other.
fn remove_what_differs_in_kind(src: &Path, dst: &Path) {
    let (ours, theirs) = (listing(src), listing(dst));
    let is_dir = |line: &String| line.starts_with("directory true");
    for dir in theirs.iter().filter(|(_, line)| is_dir(line)) {
        set_mode(&dst.join(dir.0), 0o700);
    }
    for (path, line) in &theirs {
        let clash = ours
            .get(path)
            .is_some_and(|other| is_dir(other) != is_dir(line));
        match is_dir(line) {
            // The entry may have been removed with its directory.
            _ if !clash || dst.join(path).symlink_metadata().is_err() => {}
            true => fs::remove_dir_all(dst.join(path)).unwrap(),
            false => fs::remove_file(dst.join(path)).unwrap(),
        }
    }
}

fn delete_extras(temp: &TempDir) {
    let root = Root::open(&temp.path().join("dst")).unwrap();
    let filter = Filter::default();
    let mut scan = scan(&contents(&temp.path().join("src")), filter.clone());
    let mut plan = DeletionPlan::new(&root, &filter);
    let (mut dirs, mut top) = (Vec::new(), None);
    for item in scan.by_ref() {
        match item {
            ScanItem::Entry { entry, .. } => {
                plan.add_entry(&entry);
                dirs.push(entry);
            }
            ScanItem::Top { metadata, .. } => {
                plan.set_contents_copied();
                top = Some(metadata);
            }
            _ => {}
        }
    }
    let mut writer = TreeWriter::new(&root, PlaceOptions::default());
    for entry in dirs.iter().filter(|entry| entry.kind == Kind::Directory) {
        writer.write(entry).unwrap();
    }
    for path in plan.finish(scan.ended()).unwrap().found {
        assert!(remove_all(&root, &filter, &path).1.is_empty());
    }
    writer.set_top_metadata(top.unwrap());
    assert!(writer.finish().is_empty());
}
