//! Releases memory pages of the program's code.

/// Returns resident code and constants to the system after a start or reload. Most of the resident memory of an idle
/// collector is code that reads the configuration, builds components and loads certificates, and most of this code never
/// runs again. The sidecar's example takes 21 MiB without this function. Released pages are loaded again from the system's
/// file cache, at the cost of a page fault of half a microsecond.
///
/// Returns the number of released bytes; 0 if the system does not support this.
pub fn release() -> usize {
    #[cfg(target_os = "linux")]
    {
        let Ok(mappings) = std::fs::read_to_string("/proc/self/smaps") else {
            return 0;
        };
        code(&mappings).into_iter().map(linux::release).sum()
    }
    #[cfg(not(target_os = "linux"))]
    0
}

/// Returns the mappings of proc_pid_smaps(5) with unmodified code and constants from files. Pages
/// modified by the linker or by a debugger's breakpoints stay, swapped out or not.
#[cfg(target_os = "linux")]
fn code(mappings: &str) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut current = None;
    for line in mappings.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        if !first.ends_with(':') {
            // The first line of a mapping: address range, permissions, offset, device, inode, path.
            let permissions = words.next();
            let of_a_file = words.nth(2) != Some("0");
            let of_a_file = of_a_file && matches!(permissions, Some("r-xp" | "r--p"));
            current = of_a_file.then(|| range(first)).flatten();
        } else if first == "Anonymous:" && words.next() != Some("0") {
            current = None;
        } else if first == "Swap:" && words.next() == Some("0") {
            // Modified pages that are swapped out do not count as anonymous. If released, they
            // would be loaded from the file without the modification.
            found.extend(current.take());
        }
    }
    found
}

#[cfg(target_os = "linux")]
fn range(text: &str) -> Option<std::ops::Range<usize>> {
    let (start, end) = text.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    Some(address(start)?..address(end)?)
}

#[cfg(target_os = "linux")]
#[allow(
    unsafe_code,
    reason = "there is no other way to ask the system; what is given back is read from its file again"
)]
mod linux {
    use std::ops::Range;

    pub(super) fn release(mapping: Range<usize>) -> usize {
        let bytes = mapping.len();
        let start = std::ptr::without_provenance_mut(mapping.start);
        // SAFETY: the range is a private mapping of a file, without write permission and without a
        // page that differs from the file. madvise(2): after MADV_DONTNEED an access to it loads
        // the same bytes again. It is code of the process, which stays mapped for as long as the
        // process runs: nothing is unloaded here.
        match unsafe { libc::madvise(start, bytes, libc::MADV_DONTNEED) } {
            0 => bytes,
            _ => 0,
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_unmodified_code_pages_are_released() {
        let mapping = |range: &str, permissions: &str, inode: u32, dirty: (u32, u32)| {
            let (anonymous, swap) = dirty;
            format!(
                "{range} {permissions} 00001000 fe:00 {inode}   /usr/bin/collector\nSize: 8 kB\nRss: 8 kB\n\
                 Anonymous:         {anonymous} kB\nSwap:              {swap} kB\nSwapPss:           0 kB\n\
                 VmFlags: rd ex mr mw me\n"
            )
        };
        let mappings = [
            mapping("1000-3000", "r--p", 7, (0, 0)),
            mapping("2000-3000", "r--p", 7, (8, 0)),
            mapping("2000-3000", "r--p", 7, (0, 8)),
            mapping("3000-5000", "r-xp", 7, (0, 0)),
            mapping("5000-7000", "r-xp", 7, (4, 0)),
            mapping("5000-7000", "r-xp", 7, (4, 4)),
            mapping("7000-9000", "rw-p", 7, (0, 0)),
            mapping("9000-b000", "r-xp", 0, (0, 0)),
            mapping("ffffffffff600000-ffffffffff601000", "r-xp", 9, (0, 0)),
        ];
        let expected = [
            0x1000..0x3000,
            0x3000..0x5000,
            0xffff_ffff_ff60_0000..0xffff_ffff_ff60_1000,
        ];
        assert_eq!(code(&mappings.concat()), expected);
        assert!(code("garbage\n: 5\nr-xp r-xp r-xp\n").is_empty());
    }

    #[test]
    fn released_code_runs_again() {
        assert!(release() > 0);
        assert_eq!(format!("{:.2}", 2.0_f64.sqrt()), "1.41");
    }
}
