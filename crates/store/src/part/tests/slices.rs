// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;

#[test]
fn slices_write_one_file_that_is_then_finished() {
    let test_dir = TestDir::new();
    let slices = [0..4, 4..7, 7..10].map(|range| test_dir.open_slice(range));
    for (slice, range) in slices.iter().zip([0..4, 4..7, 7..10]) {
        assert_eq!(slice.missing(), std::slice::from_ref(&range));
        test_dir.write(slice, range.clone());
        assert_eq!(slice.commit().unwrap(), range.collect::<Vec<_>>());
    }
    assert!(
        matches!(test_dir.open(), Ok(OpenOutcome::Busy)),
        "the slices are open"
    );
    drop(slices);
    let whole = test_dir.open_resumed();
    assert_eq!(whole.missing(), []);
    assert_eq!(test_dir.names(), 2, "the part and one journal");
    let finished = whole.finish(Some(test_dir.hash()), |_| Ok(())).unwrap();
    finished.remove_journal().unwrap();
    assert_eq!(fs::read(test_dir.path(b"file")).unwrap(), test_dir.content);
    assert_eq!(test_dir.names(), 1);
}

/// The file exists as before, so another process removes what is beside it.
#[test]
fn keeps_slice_journals_while_a_slice_is_open() {
    let test_dir = TestDir::new();
    let done = test_dir.open_slice(0..4);
    test_dir.write(&done, 0..4);
    done.commit().unwrap();
    let open = test_dir.open_slice(4..8);
    drop(done);
    assert!(
        remove_leftovers(&test_dir.dir, b"file")
            .unwrap_err()
            .is_busy()
    );
    drop(open);
    assert_eq!(
        test_dir.open_resumed().missing(),
        std::slice::from_ref(&(4..10))
    );
}

/// A loss of power restores some of the removed names.
#[test]
fn reads_a_slice_journal_without_the_earlier_ones() {
    let test_dir = TestDir::new();
    let slices = [0..4, 4..8].map(|range| test_dir.open_slice(range));
    for (slice, range) in slices.iter().zip([0..4, 4..8]) {
        test_dir.write(slice, range);
        slice.commit().unwrap();
    }
    let first = internal_name(b"file", "journal-0");
    drop(slices);
    fs::remove_file(test_dir.path(&first)).unwrap();
    assert_eq!(test_dir.open_resumed().missing(), [0..4, 8..10]);
    assert_eq!(test_dir.names(), 2, "the part and one journal");
}

#[test]
fn taken_over_slice_keeps_durable_blocks_and_rewrites_changed_ones() {
    let test_dir = TestDir::new();
    let first = test_dir.open_slice(2..8);
    test_dir.write(&first, 3..6);
    first.commit().unwrap();
    let path = test_dir.path(first.internal_name());
    let successor = test_dir.open_slice(2..8);
    assert_eq!(successor.missing(), [2..3, 6..8]);
    // The slice that was taken for dead continues: both write the same.
    test_dir.write(&first, 2..3);
    test_dir.write(&successor, 2..3);
    first.commit().unwrap();
    successor.commit().unwrap();
    drop((first, successor));
    let mut bytes = fs::read(&path).unwrap();
    bytes[4 * LEN as usize] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(test_dir.open_slice(0..10).missing(), [0..2, 4..5, 6..10]);
}

#[test]
fn ignores_a_block_outside_the_slice() {
    let test_dir = TestDir::new();
    let slice = test_dir.open_slice(2..4);
    let (bytes, hash) = test_dir.block(&slice, 4);
    assert!(!slice.write(4, bytes, Some(hash)).unwrap());
    assert_eq!(slice.commit().unwrap(), [0; 0]);
}

/// Blocks between its ranges belong to other slices, whatever is known of them.
#[test]
fn slice_of_several_ranges_has_only_its_own_blocks() {
    let test_dir = TestDir::new();
    let first = test_dir.open_slice(2..8);
    test_dir.write(&first, 2..8);
    first.commit().unwrap();
    drop(first);
    let runs = [0..3, 6..10];
    let opened =
        Part::open_slice_with_block_len(&test_dir.dir, b"file", &test_dir.source_info, &runs, LEN);
    let Ok(OpenOutcome::Resumed(apart)) = opened else {
        panic!("not resumed");
    };
    let durable: Vec<u64> = apart.durable().iter().map(|(index, _)| *index).collect();
    assert_eq!(durable, [2, 6, 7]);
    assert_eq!(apart.missing(), [0..2, 3..6, 8..10]);
    test_dir.write(&apart, 0..2);
    test_dir.write(&apart, 8..10);
    apart.commit().unwrap();
    drop(apart);
    let Ok(OpenOutcome::Resumed(whole)) = test_dir.open() else {
        panic!("not resumed");
    };
    assert_eq!(whole.missing(), [0..0; 0]);
}

#[test]
fn limits_a_slice_to_the_file() {
    let test_dir = TestDir::new();
    assert_eq!(test_dir.open_slice(8..u64::MAX).block_range(), 8..10);
    #[expect(clippy::reversed_empty_ranges, reason = "the caller may be hostile")]
    let backwards = 7..2;
    for nothing in [backwards, 10..10, u64::MAX..u64::MAX] {
        assert_eq!(test_dir.open_slice(nothing).missing(), []);
    }
}

#[test]
fn slice_of_another_version_is_busy_until_the_former_is_closed() {
    let mut test_dir = TestDir::new();
    let slice = test_dir.open_slice(0..10);
    test_dir.write(&slice, 0..10);
    slice.commit().unwrap();
    test_dir.source_info.version.ctime.1 += 1;
    let other = Part::open_slice_with_block_len(
        &test_dir.dir,
        b"file",
        &test_dir.source_info,
        &[0..5],
        LEN,
    );
    assert!(matches!(other, Ok(OpenOutcome::Busy)));
    drop(slice);
    assert_eq!(test_dir.open_slice(0..5).missing(), [0..5]);
}

#[test]
fn limits_the_number_of_slices() {
    let test_dir = TestDir::new();
    let slices: Vec<Part> = (0..SLICES_MAX)
        .map(|_| test_dir.open_slice(0..10))
        .collect();
    let one_more = Part::open_slice_with_block_len(
        &test_dir.dir,
        b"file",
        &test_dir.source_info,
        &[0..10],
        LEN,
    );
    assert!(matches!(one_more, Ok(OpenOutcome::Busy)));
    drop(slices);
    drop(test_dir.open_slice(0..10));
    remove_leftovers(&test_dir.dir, b"file").unwrap();
    assert_eq!(test_dir.names(), 0);
}

#[test]
fn reads_only_unchecked_and_wrong_blocks_again() {
    for wrong in [None, Some(0), Some(4), Some(9)] {
        let test_dir = TestDir::new();
        let part = test_dir.open_fresh();
        test_dir.write(&part, 0..10);
        part.commit().unwrap();
        let path = test_dir.path(part.internal_name());
        drop(part);
        let change = |index: u64| {
            let mut bytes = fs::read(&path).unwrap();
            bytes[(index * LEN) as usize] ^= 1;
            fs::write(&path, bytes).unwrap();
        };
        wrong.into_iter().for_each(change);
        let part = test_dir.open_resumed();
        while part.verify_next_inherited().unwrap() {}
        // Blocks that were checked are trusted.
        match wrong {
            None => change(5),
            Some(index) => {
                let error = part.finish(None, |_| Ok(())).err().unwrap();
                assert!(
                    matches!(error, PartError::Changed { offset, .. } if offset == index * LEN)
                );
                continue;
            }
        }
        part.finish(Some(test_dir.hash()), |_| Ok(())).unwrap();
    }
}

#[test]
fn does_not_read_trusted_blocks_again() {
    let test_dir = TestDir::new();
    let part = test_dir.open_fresh();
    test_dir.write(&part, 0..10);
    part.commit().unwrap();
    let path = test_dir.path(part.internal_name());
    drop(part);
    let mut bytes = fs::read(&path).unwrap();
    bytes[3] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let part = test_dir.open_resumed();
    part.trust_inherited();
    part.finish(Some(test_dir.hash()), |_| Ok(())).unwrap();
    assert_eq!(fs::read(test_dir.path(b"file")).unwrap(), bytes);
}

#[test]
fn removes_slice_journals_of_an_older_version() {
    let mut test_dir = TestDir::new();
    let slice = test_dir.open_slice(0..10);
    test_dir.write(&slice, 0..10);
    slice.commit().unwrap();
    drop(slice);
    let first = test_dir.source_info.version;
    test_dir.source_info.version.ctime.1 += 1;
    drop(test_dir.open_fresh());
    test_dir.source_info.version = first;
    drop(test_dir.open_fresh());
    assert_eq!(test_dir.open_resumed().missing(), [0..10]);
}
