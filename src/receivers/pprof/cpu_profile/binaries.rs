//! The binaries that are in memory: the program and its libraries.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;

use framehop::{ExplicitModuleSectionInfo, Module};

use super::elf::Elf;
use super::{BuildId, Mapped};

/// A binary in memory.
pub(super) struct Binary {
    /// Its code.
    pub(super) code: Vec<Mapped>,
    /// Unwind information, if the binary can be read.
    pub(super) module: Option<Module<Vec<u8>>>,
}

/// All of them, the program first.
///
/// # Errors
/// When the system does not tell.
pub(super) fn of_this_process() -> io::Result<Vec<Binary>> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let program = fs::read_link("/proc/self/exe")?;
    let program = program.to_string_lossy();
    let mut code: Vec<Mapped> = maps.lines().filter_map(code_of).collect();
    // Stable: a binary's parts stay in order.
    code.sort_by_key(|mapped| (*mapped.path != *program, mapped.path.clone()));
    let of_one_file = code.chunk_by(|a, b| a.path == b.path);
    Ok(of_one_file
        .map(|code| {
            let mut code = code.to_vec();
            // The program's file may have been replaced since; this is the one that runs.
            let path = match code.first() {
                Some(mapped) if mapped.path == program => "/proc/self/exe".to_owned(),
                first => first.map_or_else(String::new, |mapped| mapped.path.clone()),
            };
            let read = File::open(path).and_then(|file| {
                let elf = Elf::read(&file)?;
                let id = match elf.build_id.is_empty() {
                    true => BuildId::Hash(hash_of_ends(&file)?),
                    false => BuildId::Gnu(elf.build_id.clone()),
                };
                Ok((elf, id))
            });
            let module = read.ok().and_then(|(elf, id)| {
                for mapped in &mut code {
                    mapped.build_id.clone_from(&id);
                }
                module(&code, elf)
            });
            Binary { code, module }
        })
        .collect())
}

/// The first half of the SHA-256 of the first and the last 4096 bytes and the length (semantic conventions,
/// "Algorithm for process.executable.build_id.htlhash").
fn hash_of_ends(file: &File) -> io::Result<String> {
    const END: u64 = 4096;
    let length = file.metadata()?.len();
    let mut input = Vec::new();
    for at in [0, length.saturating_sub(END)] {
        let mut end = vec![0; usize::try_from(length.min(END)).unwrap_or_default()];
        file.read_exact_at(&mut end, at)?;
        input.extend_from_slice(&end);
    }
    input.extend_from_slice(&length.to_be_bytes());
    let digest = ring::digest::digest(&ring::digest::SHA256, &input);
    let half = digest.as_ref().iter().take(16);
    Ok(half.map(|byte| format!("{byte:02x}")).collect())
}

/// A line of `/proc/self/maps` (proc(5)) that is code of a file: `start-limit perms offset device inode path`.
fn code_of(line: &str) -> Option<Mapped> {
    let mut words = line.splitn(6, ' ');
    let (start, limit) = words.next()?.split_once('-')?;
    let permissions = words.next()?;
    let offset = words.next()?;
    let path = words.nth(2)?.trim_start();
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    (permissions.contains('x') && path.starts_with('/')).then_some(())?;
    Some(Mapped {
        start: number(start)?,
        limit: number(limit)?,
        file_offset: number(offset)?,
        path: path.to_owned(),
        build_id: BuildId::Unknown,
    })
}

fn module(code: &[Mapped], elf: Elf) -> Option<Module<Vec<u8>>> {
    let (first, last) = (code.first()?, code.last()?);
    // How far from where it is linked for it was loaded.
    let base = first.start.wrapping_sub(elf.address_of(first.file_offset)?);
    let (eh_frame_svma, eh_frame) = elf.eh_frame.unzip();
    let (eh_frame_hdr_svma, eh_frame_hdr) = elf.eh_frame_header.unzip();
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: elf.text,
        got_svma: elf.got,
        eh_frame_svma,
        eh_frame,
        eh_frame_hdr_svma,
        eh_frame_hdr,
        ..ExplicitModuleSectionInfo::default()
    };
    Some(Module::new(
        first.path.clone(),
        first.start..last.limit,
        base,
        sections,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_files_is_taken_from_the_maps() {
        let line =
            "55d0e6a01000-55d0e6b00000 r-xp 00001000 fe:01 1234                       /usr/bin/a b";
        let expected = Mapped {
            start: 0x55d0_e6a0_1000,
            limit: 0x55d0_e6b0_0000,
            file_offset: 0x1000,
            path: "/usr/bin/a b".to_owned(),
            build_id: BuildId::Unknown,
        };
        assert_eq!(code_of(line), Some(expected));
        for line in [
            "55d0e6a01000-55d0e6b00000 r--p 00001000 fe:01 1234  /usr/bin/a",
            "7ffc1-7ffc2 r-xp 00000000 00:00 0          [vdso]",
            "7ffc1-7ffc2 rwxp 00000000 00:00 0 ",
            "",
        ] {
            assert_eq!(code_of(line), None, "{line}");
        }
    }

    #[test]
    fn addresses_in_memory_are_those_of_the_file() {
        // A symbol's address is known both ways.
        let binaries = of_this_process().unwrap();
        let program = &binaries[0].code[0];
        let elf = Elf::read(&File::open("/proc/self/exe").unwrap()).unwrap();
        let base = program.start - elf.address_of(program.file_offset).unwrap();
        let text = elf.text.unwrap();
        assert!(text.start + base >= program.start && text.end + base <= program.limit);
        // The bytes of a function are where the file has them.
        let function = of_this_process as *const () as usize as u64;
        let (place, address) = &elf.segments[0];
        let at = place.start + (function - base - address);
        assert_eq!(at, program.file_offset + (function - program.start));
    }

    #[test]
    fn the_program_comes_first_and_can_be_unwound() {
        let binaries = of_this_process().unwrap();
        let program = std::env::current_exe().unwrap();
        assert_eq!(binaries[0].code[0].path, program.to_string_lossy());
        assert!(binaries[0].module.is_some());
        let known = |mapped: &Mapped| mapped.build_id != BuildId::Unknown;
        assert!(binaries[0].code.iter().all(known));
    }
}
