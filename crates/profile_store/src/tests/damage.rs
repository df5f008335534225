//! Damaged files.

use super::*;
use crate::testing::profile;

/// A store with a block of two series.
fn one_block() -> MemoryDisk {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    append(&store, profile("cart", "1", START, "main;f 5\n"), START);
    append(&store, profile("shop", "1", START, "main;g 7\n"), START);
    store.flush(START * NANOS).unwrap();
    disk
}

fn block(disk: &MemoryDisk) -> String {
    let names = disk.names();
    names
        .into_iter()
        .find(|name| name.ends_with(".block"))
        .unwrap()
}

#[test]
fn block_with_a_damaged_index_is_set_aside_and_counted() {
    for cut in [0, 1, 20, 40, 60] {
        let disk = one_block();
        let name = block(&disk);
        disk.change(&name, |bytes| match cut {
            0 => {
                let at = bytes.len() - 40;
                bytes[at] ^= 1;
            }
            cut => bytes.truncate(bytes.len() - cut),
        });
        let (store, recovered) = open(&disk);
        assert_eq!(recovered.damaged, 1, "cut {cut}");
        assert_eq!(store.stats().damaged, 1);
        assert_eq!(total(&store), 0);
        assert!(disk.names().contains(&format!("{name}.damaged")));
    }
}

#[test]
fn damaged_section_is_left_out_and_its_file_is_set_aside() {
    let disk = one_block();
    let name = block(&disk);
    // The first section begins after the first eight bytes.
    disk.change(&name, |bytes| bytes[20] ^= 1);
    let (store, recovered) = open(&disk);
    assert_eq!(recovered.damaged, 0);
    for _ in 0..2 {
        let answer = store.merge(&query("{}")).unwrap().unwrap();
        assert_eq!(answer.damaged, 1);
        assert_eq!(answer.folded().lines().count(), 1);
    }
    assert_eq!(store.stats().damaged, 1);
    // The compaction keeps readable data, and keeps the damaged file for inspection.
    store.maintain((START + 2 * 3600) * NANOS).unwrap();
    assert_eq!(store.stats().blocks, [0, 1, 0]);
    let kept = total(&store);
    assert!(kept == 5 || kept == 7, "{kept}");
    assert!(disk.names().contains(&format!("{name}.damaged")));
    let (store, _) = open(&disk);
    assert_eq!(total(&store), kept);
}

#[test]
fn every_damaged_byte_of_a_block_is_detected() {
    let disk = one_block();
    let name = block(&disk);
    let mut len = 0;
    disk.change(&name, |bytes| len = bytes.len());
    for at in 0..len {
        let disk = disk.after_kill();
        disk.change(&name, |bytes| bytes[at] ^= 0x10);
        let (store, _) = open(&disk);
        let _ = store.merge(&query("{}")).unwrap();
        assert_eq!(store.stats().damaged, 1, "byte {at}");
    }
}

#[test]
fn journal_with_a_damaged_header_is_set_aside() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    append(&store, profile("cart", "1", START, "main;f 5\n"), START);
    let crashed = disk.after_kill();
    let journal = crashed.names().pop().unwrap();
    crashed.change(&journal, |bytes| bytes[3] ^= 1);
    let (store, recovered) = open(&crashed);
    assert_eq!((recovered.requests, recovered.damaged), (0, 1));
    assert_eq!(total(&store), 0);
    assert!(crashed.names().contains(&format!("{journal}.damaged")));
}
