// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trees with entries of every type, compared with the results of cp and rsync, as root and as an
//! ordinary user.

use super::*;

#[test]
fn copies_everything_and_second_run_changes_nothing() {
    let temp = dirs();
    let (src, dst) = (temp.path().join("src"), temp.path().join("dst"));
    make_every_type(&src);
    let first = plain_copy(&contents(&src), &dst);
    assert_eq!(first.failures, [""; 0]);
    assert_eq!(listing(&dst), listing(&src));
    let ids = inodes(&dst);
    let second = plain_copy(&contents(&src), &dst);
    let all = u32::try_from(listing(&src).len()).unwrap() - 1;
    assert_eq!(
        second,
        Counts {
            unchanged: all,
            ..Counts::default()
        }
    );
    assert_eq!(listing(&dst), listing(&src));
    assert_eq!(inodes(&dst), ids, "nothing was replaced or touched");
}

#[test]
fn ordinary_user_copies_own_files() {
    let temp = dirs();
    set_mode(temp.path(), 0o777);
    let theirs = temp.path().join("theirs");
    let (src, dst) = (theirs.join("src"), theirs.join("dst"));
    as_ordinary_user(|| {
        fs::create_dir_all(&src).unwrap();
        fs::create_dir(src.join("locked")).unwrap();
        fs::write(src.join("locked/file"), "x").unwrap();
        fs::write(src.join("read-only"), "x").unwrap();
        set_xattr(&src.join("read-only"), "user.a", b"1");
        set_mode(&src.join("read-only"), 0o400);
        set_mode(&src.join("locked"), 0o500);
        assert_eq!(plain_copy(&contents(&src), &dst).failures, [""; 0]);
        assert_eq!(listing(&dst), listing(&src));
        let again = plain_copy(&contents(&src), &dst);
        assert_eq!((again.changed, again.wanted, again.skipped), (0, 0, 0));
        set_mode(&src.join("locked"), 0o700);
        fs::write(src.join("locked/more"), "x").unwrap();
        set_mode(&src.join("locked"), 0o500);
        set_mode(&src.join("read-only"), 0o600);
        set_xattr(&src.join("read-only"), "user.a", b"2");
        set_mode(&src.join("read-only"), 0o400);
        assert_eq!(plain_copy(&contents(&src), &dst).failures, [""; 0]);
        assert_eq!(listing(&dst), listing(&src));
        for dir in [&src, &dst] {
            set_mode(&dir.join("locked"), 0o700);
        }
    });
}

#[test]
fn fields_denied_to_the_user_are_neither_set_nor_compared() {
    if !is_root() {
        longhaul_testprograms::skip::record("needs root to create files of another user");
        return;
    }
    let temp = dirs();
    let src = temp.path().join("src");
    make_every_type(&src);
    fs::remove_file(src.join("null")).unwrap();
    fs::remove_file(src.join("disk")).unwrap();
    set_mode(&src.join("linked"), 0o4755);
    set_mode(&src.join("dir/nothing"), 0o644);
    set_mode(temp.path(), 0o777);
    let dst = temp.path().join("theirs");
    let (first, second) = as_ordinary_user(|| {
        let first = plain_copy(&contents(&src), &dst);
        let before = inodes(&dst);
        let second = plain_copy(&contents(&src), &dst);
        let files = |all: BTreeMap<PathBuf, _>| -> Vec<_> {
            all.into_iter()
                .filter(|(path, _)| !dst.join(path).is_dir())
                .collect()
        };
        assert_eq!(files(inodes(&dst)), files(before));
        (first, second)
    });
    assert_eq!(first.failures, [""; 0]);
    assert_eq!((first.skipped, second.skipped), (0, 0));
    assert_eq!((second.wanted, second.changed), (0, 0));
    assert_eq!(second.failures, [""; 0]);
}

/// Compares a copy with that of another program.
fn compare_with(program: &str, arguments: &[&str]) {
    let temp = dirs();
    let (src, ours, theirs) = (
        temp.path().join("src"),
        temp.path().join("dst"),
        temp.path().join("theirs"),
    );
    make_every_type(&src);
    let from = format!("{}/.", src.display());
    let result = Command::new(program)
        .args(arguments)
        .arg(from)
        .arg(&theirs)
        .output();
    let Ok(output) = result else {
        longhaul_testprograms::skip::record(format!("{program} is not installed"));
        return;
    };
    assert!(output.status.success(), "{output:?}");
    plain_copy(&contents(&src), &ours);
    assert_eq!(listing(&ours), listing(&theirs));
}

#[test]
fn gives_the_same_result_as_cp() {
    compare_with("cp", &["-a", "--sparse=always"]);
}

#[test]
#[ignore = "needs rsync: make test-peers"]
fn gives_the_same_result_as_rsync() {
    compare_with("rsync", &["-aHAXS", "--numeric-ids"]);
}
