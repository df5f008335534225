//! Compares symbol files of real programs with LLVM's symbolizer, address by address.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::*;

mod clang;
mod go;

const C: &str = r#"
#include <stdio.h>
#include <stdlib.h>

static inline __attribute__((always_inline)) int inner(int x) {
    if (x > 3) {
        return x * 7 + rand();
    }
    return x;
}

static inline __attribute__((always_inline)) int middle(int x) {
    int sum = 0;
    for (int i = 0; i < x; i++)
        sum += inner(i);
    return sum;
}

__attribute__((noinline)) int outer(int x) { return middle(x) + inner(x + 1); }

int main(int count, char **words) {
    printf("%s %d\n", words[0], outer(count) + middle(count));
    return 0;
}
"#;

const CPP: &str = r#"
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>
namespace shop {
struct Cart {
    std::vector<int> items;
    std::map<std::string, int> names;
    int total() const;
    template <class T> T sum(T start) const;
};
int Cart::total() const {
    int sum = 0;
    for (auto item : items) sum += item;
    return sum;
}
template <class T> T Cart::sum(T start) const {
    for (auto &pair : names) start += pair.second;
    return start;
}
}
int main(int count, char **words) {
    shop::Cart cart;
    for (int i = 0; i < count * 10; i++) {
        cart.items.push_back(i);
        cart.names[words[0] + std::to_string(i)] = i;
    }
    std::sort(cart.items.begin(), cart.items.end(), [](int a, int b) { return a > b; });
    printf("%d %f\n", cart.total(), cart.sum(1.5));
}
"#;

struct Program {
    directory: tempfile::TempDir,
    path: PathBuf,
    /// Addresses of symbols by name, as printed by `nm`.
    symbol_addresses: OnceCell<HashMap<String, String>>,
}

impl Program {
    /// Compiles a program; `None` with a message if the compiler does not support this.
    fn build(compiler: &str, source: &str, flags: &[&str]) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let name = match compiler {
            "g++" | "clang++" => "program.cc",
            "rustc" => "program.rs",
            _ => "program.c",
        };
        std::fs::write(directory.path().join(name), source).unwrap();
        let mut command = Command::new(compiler);
        command.current_dir(directory.path()).arg(name).args(flags);
        let made = command
            .args(["-o", "program"])
            .stderr(Stdio::null())
            .status();
        if !made.is_ok_and(|status| status.success()) {
            eprintln!("skipped: {compiler} {flags:?} does not work here");
            return None;
        }
        let path = directory.path().join("program");
        Some(Program {
            directory,
            path,
            symbol_addresses: OnceCell::new(),
        })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs a tool in the program's directory; false if the tool is not installed.
    fn run(&self, tool: &str, arguments: &[&str]) -> bool {
        let mut command = Command::new(tool);
        let command = command.current_dir(self.directory.path()).args(arguments);
        let status = command.stderr(Stdio::null()).status();
        let done = status.is_ok_and(|status| status.success());
        if !done {
            eprintln!("skipped: {tool} {arguments:?} does not work here");
        }
        done
    }

    fn symbols(&self) -> SymbolFile {
        symbols(&self.path, &[]).unwrap().0
    }

    /// Whether the compiler merged two functions: the first has no symbol, or both have one address.
    fn has_merged(&self, one: &str, other: &str) -> bool {
        let symbols = self.symbol_addresses.get_or_init(|| {
            let listing = Command::new("nm").arg(&self.path).output().unwrap();
            let listing = String::from_utf8(listing.stdout).unwrap();
            let symbol = |line: &str| {
                let (name, address) = (line.rsplit_once(' ')?.1, line.split_once(' ')?.0);
                Some((name.to_owned(), address.to_owned()))
            };
            listing.lines().filter_map(symbol).collect()
        });
        match symbols.get(one) {
            None => true,
            address => address == symbols.get(other),
        }
    }

    fn addresses(&self) -> Vec<u64> {
        let data = std::fs::read(&self.path).unwrap();
        let budget = std::cell::Cell::new(0);
        let elf = elf::Elf::parse(&data, &budget).unwrap();
        elf.code().into_iter().flatten().collect()
    }
}

fn symbols(path: &Path, others: &[PathBuf]) -> Result<(SymbolFile, CompileSummary), CompileError> {
    let mut output = Cursor::new(Vec::new());
    let inputs = Inputs {
        binary: path,
        supplementary: others,
    };
    let summary = compile(&inputs, &CompileLimits::default(), &mut output)?;
    let file = SymbolFile::from_bytes(output.into_inner()).unwrap();
    file.verify().unwrap();
    Ok((file, summary))
}

/// Function, and file, line and column, of each frame.
type Named = Vec<(String, String)>;

fn named(symbols: &SymbolFile, addresses: &[u64]) -> Vec<Named> {
    called(symbols, addresses, |function| function.name.to_owned())
}

fn called(
    symbols: &SymbolFile,
    addresses: &[u64],
    name: impl Fn(&FunctionNames<'_>) -> String,
) -> Vec<Named> {
    let (mut cursor, mut names) = (symbols.cursor(), symbols.names());
    let mut frame = |frame: Frame| {
        let function = names.of(frame.function)?;
        let place = format!("{}:{}:{}", function.file, frame.line, frame.column);
        Some((name(&function), place))
    };
    let frames = |address: &u64| cursor.frames(*address).map_while(&mut frame).collect();
    addresses.iter().map(frames).collect()
}

fn assert_same(one: &SymbolFile, other: &SymbolFile, addresses: &[u64]) {
    let (one, other) = (named(one, addresses), named(other, addresses));
    for (address, (one, other)) in addresses.iter().zip(one.into_iter().zip(other)) {
        assert_eq!(one, other, "{address:#x}");
    }
}

/// Runs LLVM's symbolizer; `None` if it is not installed. GNU addr2line is no reference, because version 2.40 sometimes
/// uses a file of the wrong unit.
fn llvm_symbolizer(path: &Path, addresses: &[u64]) -> Option<Vec<Named>> {
    let mut command = Command::new("llvm-symbolizer");
    command.args(["--inlines", "--no-demangle", "--output-style=LLVM", "--obj"]);
    let command = command.arg(path).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).spawn().ok()?;
    let mut input = child.stdin.take().unwrap();
    let lines = addresses.iter().map(|address| format!("{address:#x}\n"));
    let text: String = lines.collect();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let blocks = output.trim_end().split("\n\n").map(|block| {
        let lines: Vec<&str> = block.lines().collect();
        let frames = lines.chunks_exact(2);
        frames
            .map(|frame| (frame[0].to_owned(), frame[1].replace("??:", ":")))
            .collect()
    });
    Some(blocks.collect())
}

/// Compares functions and lines with LLVM's symbolizer where debug information exists. Returns the number of
/// compared addresses.
///
/// Expected differences: LLVM names the outermost function after the symbol table, which has separate symbols
/// for parts and copies of functions (`main.cold`, `outer.constprop.0`).
fn assert_like_llvm(program: &Program, symbols: &SymbolFile) -> usize {
    assert_like_llvm_at(program, symbols, &program.addresses())
}

/// Like [`assert_like_llvm`], for some addresses.
fn assert_like_llvm_at(program: &Program, symbols: &SymbolFile, addresses: &[u64]) -> usize {
    let Some(expected) = llvm_symbolizer(&program.path, addresses) else {
        eprintln!("skipped: there is no llvm-symbolizer here");
        return usize::MAX;
    };
    assert_eq!(expected.len(), addresses.len());
    let mut compared = 0;
    for ((address, ours), theirs) in addresses
        .iter()
        .zip(called(symbols, addresses, |function| {
            function.system_name.to_owned()
        }))
        .zip(expected)
    {
        // LLVM reports a file for code without debug information, the last symbol for code without a symbol, and lines
        // for padding between functions.
        if ours.iter().all(|(_, place)| place.ends_with(":0:0")) {
            let unknown =
                |(name, place): &(String, String)| name == "??" || place.ends_with(":0:0");
            assert!(theirs.iter().all(unknown), "{address:#x}: {theirs:?}");
            continue;
        }
        compared += 1;
        let places = |frames: &Named| -> Vec<_> {
            let places = frames.iter().map(|(_, place)| place.clone());
            places.collect()
        };
        assert_eq!(
            places(&ours),
            places(&theirs),
            "{address:#x}: {ours:?} {theirs:?}"
        );
        let count = ours.len();
        for (frame, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            let same = ours.0 == theirs.0;
            let is_outermost = frame + 1 == count;
            let split_off = is_outermost && theirs.0.starts_with(&ours.0);
            let merged =
                !same && !split_off && is_outermost && program.has_merged(&ours.0, &theirs.0);
            assert!(
                same || split_off || merged,
                "{address:#x}: {ours:?} {theirs:?}"
            );
        }
    }
    compared
}

#[test]
fn c_program_matches_llvm() {
    for flags in [
        &["-g", "-O2"][..],
        &["-g", "-O0"],
        &["-g", "-O2", "-no-pie"],
        &["-gdwarf-2", "-gstrict-dwarf", "-O2"],
        &["-gdwarf-3", "-O2"],
        &["-gdwarf-4", "-O2"],
        &["-g", "-O2", "-gz=zlib"],
        &["-g", "-O2", "-gz=zlib-gnu"],
        &["-g", "-O2", "-ffunction-sections"],
        &["-g", "-O2", "-flto"],
    ] {
        if let Some(program) = Program::build("gcc", C, flags) {
            let compared = assert_like_llvm(&program, &program.symbols());
            assert!(compared > 80, "{flags:?}: only {compared}");
        }
    }
}

#[test]
fn cpp_program_matches_llvm() {
    if let Some(program) = Program::build("g++", CPP, &["-g", "-O2"]) {
        let symbols = program.symbols();
        assert!(assert_like_llvm(&program, &symbols) > 3000);
        let names: BTreeSet<String> = named(&symbols, &program.addresses())
            .into_iter()
            .flatten()
            .map(|(function, _)| function)
            .collect();
        assert!(names.contains("shop::Cart::total() const"), "{names:?}");
        assert!(
            names.contains("double shop::Cart::sum<double>(double) const"),
            "{names:?}"
        );
    }
}

const STATIC: &str = r#"
#include <cstdio>
static __attribute__((noinline)) int helper(int x) {
    if (x == 42) throw 1;
    return x * 3 + std::printf("%d\n", x);
}
namespace shop {
static __attribute__((noinline)) int part(int x, int y) {
    if (x == 43) throw 2;
    return x * 3 + std::printf("%d\n", y);
}
}
int main(int count, char **) {
    try { return helper(count) + shop::part(count, 7); } catch (int error) { return error; }
}
"#;

/// The linker places rarely executed parts before the rest of the code.
#[test]
fn static_function_is_named_by_symbol_at_its_entry() {
    let Some(program) = Program::build("g++", STATIC, &["-g", "-O2"]) else {
        return;
    };
    let symbols = program.symbols();
    assert_like_llvm(&program, &symbols);
    let names = |system: bool| -> BTreeSet<String> {
        let name = |function: &FunctionNames<'_>| match system {
            true => function.system_name.to_owned(),
            false => function.name.to_owned(),
        };
        let named = called(&symbols, &program.addresses(), name);
        named.into_iter().flatten().map(|(name, _)| name).collect()
    };
    let (names, system) = (names(false), names(true));
    assert!(names.contains("helper(int)"), "{names:?}");
    assert!(names.contains("shop::part(int, int)"), "{names:?}");
    assert!(system.contains("_ZL6helperi"), "{system:?}");
    let copies = |name: &&String| name.contains("[clone") || name.contains(".cold");
    let with_lines = |name: &&String| !name.starts_with('_');
    let copies: Vec<_> = names.iter().filter(with_lines).filter(copies).collect();
    assert!(copies.is_empty(), "{copies:?}");
}

#[test]
fn inlined_calls_are_named_innermost_first() {
    let Some(program) = Program::build("gcc", C, &["-g", "-O2"]) else {
        return;
    };
    let symbols = program.symbols();
    let all = named(&symbols, &program.addresses());
    let chains: BTreeSet<Vec<&str>> = all
        .iter()
        .map(|frames| {
            frames
                .iter()
                .map(|(function, _)| function.as_str())
                .collect()
        })
        .collect();
    assert!(
        chains.contains(&vec!["inner", "middle", "outer"]),
        "{chains:?}"
    );
    assert!(
        chains.contains(&vec!["inner", "middle", "main"]),
        "{chains:?}"
    );
    let mut cursor = symbols.cursor();
    let inlined = program.addresses().into_iter().find_map(|address| {
        let frames: Vec<_> = cursor.frames(address).collect();
        (frames.len() == 3).then_some(frames)
    });
    let [inner, middle, outermost] = inlined.unwrap()[..] else {
        unreachable!();
    };
    let mut names = symbols.names();
    assert_eq!(names.of(inner.function).unwrap().start_line, 5);
    assert_eq!(names.of(middle.function).unwrap().start_line, 12);
    assert_eq!(
        [inner.inlined, middle.inlined, outermost.inlined],
        [true, true, false]
    );
    assert_eq!(middle.line, 15);
    assert_ne!(middle.column, 0);
    assert!(
        names
            .of(inner.function)
            .unwrap()
            .file
            .ends_with("/program.c")
    );
}

#[test]
fn split_debug_information_equals_single_file() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let Some(split) = Program::build("gcc", C, &[version, "-O2", "-gsplit-dwarf"]) else {
            continue;
        };
        let dwo = std::fs::read_dir(split.directory.path()).unwrap();
        let dwo: Vec<_> = dwo
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "dwo"))
            .collect();
        let (file, summary) = symbols(&split.path, &dwo).unwrap();
        assert_eq!([summary.missing_units, summary.damaged_units], [0, 0]);
        // The same source in the same directory gives equal paths.
        assert!(split.run("gcc", &[version, "-O2", "program.c", "-o", "whole"]));
        let (whole, _) = symbols(&split.file("whole"), &[]).unwrap();
        let addresses = split.addresses();
        assert_same(&file, &whole, &addresses);

        let (_, summary) = symbols(&split.path, &[]).unwrap();
        assert_eq!(summary.missing_units, 1);

        let name = dwo[0].file_name().unwrap().to_str().unwrap();
        // GNU dwp supports version 4 only.
        if version == "-gdwarf-4" && split.run("dwp", &["-o", "program.dwp", name]) {
            let (file, summary) = symbols(&split.path, &[split.file("program.dwp")]).unwrap();
            assert_eq!(summary.missing_units, 0);
            assert_same(&file, &whole, &addresses);
        }
    }
}

#[test]
fn stripped_binary_with_debug_file_equals_whole_binary() {
    let Some(program) = Program::build("gcc", C, &["-g", "-O2"]) else {
        return;
    };
    let whole = program.symbols();
    if !program.run(
        "objcopy",
        &["--only-keep-debug", "program", "program.debug"],
    ) || !program.run("objcopy", &["--strip-all", "program", "stripped"])
    {
        return;
    }
    let debug = program.file("program.debug");
    let addresses = program.addresses();
    let (both, _) = symbols(&program.file("stripped"), std::slice::from_ref(&debug)).unwrap();
    assert_same(&both, &whole, &addresses);
    let (alone, _) = symbols(&debug, &[]).unwrap();
    // The targets of stubs are in the code, which a debug file lacks.
    let is_stub = |frames: &Named| frames.iter().any(|(name, _)| name.ends_with("@plt"));
    let all = addresses.iter().zip(named(&whole, &addresses));
    let others: Vec<u64> = all
        .filter(|(_, frames)| !is_stub(frames))
        .map(|(address, _)| *address)
        .collect();
    assert!(others.len() < addresses.len());
    assert_same(&alone, &whole, &others);
    assert_eq!(alone.build_id(), whole.build_id());

    let other = Program::build("gcc", C, &["-g", "-O1"]).unwrap();
    let mixed = symbols(&program.file("stripped"), std::slice::from_ref(&other.path));
    assert!(matches!(mixed, Err(CompileError::Mismatch(_))));
}

#[test]
fn symbols_name_functions_without_debug_information() {
    let Some(program) = Program::build("gcc", C, &["-O2", "-rdynamic"]) else {
        return;
    };
    let (file, summary) = symbols(&program.path, &[]).unwrap();
    assert_eq!(summary.covered[NameSource::Dwarf as usize], 0);
    let functions = |symbols: &SymbolFile| -> BTreeSet<String> {
        let named = named(symbols, &program.addresses()).into_iter().flatten();
        named.map(|(function, _)| function).collect()
    };
    assert!(functions(&file).is_superset(&["main".into(), "outer".into(), "_start".into()].into()));
    if program.run("strip", &["program", "-o", "stripped"]) {
        let (file, summary) = symbols(&program.file("stripped"), &[]).unwrap();
        assert_eq!(summary.covered[NameSource::SymbolTable as usize], 0);
        assert!(functions(&file).contains("outer"));
    }
}

#[test]
fn linkage_table_stubs_are_named_by_target() {
    for flags in [
        &["-O2"][..],
        &["-g", "-O2", "-no-pie"],
        &["-O2", "-fcf-protection", "-Wl,-z,ibtplt", "-Wl,-z,lazy"],
        &["-O2", "-Wl,-z,now"],
    ] {
        let Some(program) = Program::build("g++", CPP, flags) else {
            return;
        };
        let listing = Command::new("objdump")
            .arg("-d")
            .arg(&program.path)
            .output();
        let Ok(listing) = listing else {
            eprintln!("skipped: there is no objdump here");
            return;
        };
        let listing = String::from_utf8(listing.stdout).unwrap();
        let stub = |line: &str| {
            let (address, name) = line.split_once(" <")?;
            let name = name
                .strip_suffix(">:")
                .filter(|name| name.ends_with("@plt"))?;
            Some((u64::from_str_radix(address, 16).unwrap(), name.to_owned()))
        };
        let (addresses, expected): (Vec<u64>, Vec<String>) =
            listing.lines().filter_map(stub).unzip();
        assert!(expected.len() > 5, "{flags:?}: {expected:?}");
        let symbols = program.symbols();
        let names = called(&symbols, &addresses, |function| {
            function.system_name.to_owned()
        });
        let names: Vec<_> = names
            .iter()
            .flatten()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(names, expected, "{flags:?}");
    }
}

#[test]
fn mini_debug_information_names_functions() {
    let Some(program) = Program::build("gcc", C, &["-O2"]) else {
        return;
    };
    let made = program.run(
        "objcopy",
        &["-S", "--keep-symbol=outer", "program", "small"],
    ) && program.run("xz", &["--check=crc32", "small"])
        && program.run("strip", &["program", "-o", "stripped"])
        && program.run(
            "objcopy",
            &[
                "--add-section",
                ".gnu_debugdata=small.xz",
                "stripped",
                "with",
            ],
        );
    if made {
        let (file, summary) = symbols(&program.file("with"), &[]).unwrap();
        assert_ne!(summary.covered[NameSource::MiniDebugInfo as usize], 0);
        let named = named(&file, &program.addresses());
        assert!(
            named
                .iter()
                .flatten()
                .any(|(function, _)| function == "outer")
        );
    }
}

#[test]
fn runtime_addresses_are_normalised() {
    for flags in [&["-g", "-O2"][..], &["-g", "-O2", "-no-pie"]] {
        let Some(program) = Program::build("gcc", C, flags) else {
            return;
        };
        let symbols = program.symbols();
        let data = std::fs::read(&program.path).unwrap();
        let budget = std::cell::Cell::new(0);
        let elf = elf::Elf::parse(&data, &budget).unwrap();
        let segment = elf
            .segments()
            .into_iter()
            .find(|segment| segment.executable)
            .unwrap();
        let address = segment.address + 0x30;
        let page = |at: u64| at & !0xfff;
        let size = 0x1000;
        // Mapping as in /proc/PID/maps.
        let start = 0x7f12_3456_7000;
        let loaded = MappingRange {
            memory_start: start,
            memory_limit: start + size,
            file_offset: page(segment.offset),
        };
        let distance = address - page(segment.address);
        assert_eq!(symbols.normalise(start + distance, &loaded), Some(address));
        // Mapping as reported by the eBPF profiler: addresses in the binary.
        let own = MappingRange {
            memory_start: page(segment.address),
            memory_limit: page(segment.address) + size,
            file_offset: page(segment.offset),
        };
        assert_eq!(symbols.normalise(address, &own), Some(address));
        // An address in the binary with the mapping of a process.
        assert_eq!(symbols.normalise(address, &loaded), Some(address));
        for limit in [0, u64::MAX] {
            let fake = MappingRange {
                memory_limit: limit,
                ..MappingRange::default()
            };
            assert_eq!(symbols.normalise(address, &fake), Some(address));
        }
        // An address in a data segment is not code: the debug files of some tools have few headers.
        let data = elf.segments().into_iter().filter(|one| !one.executable);
        let data = data.max_by_key(|one| one.offset).unwrap();
        let elsewhere = MappingRange {
            file_offset: page(data.offset),
            ..loaded
        };
        let inside = start + (data.offset - page(data.offset)) + 8;
        assert_eq!(symbols.normalise(inside, &elsewhere), Some(inside));
    }
}

#[test]
fn addresses_in_any_order_have_the_same_frames() {
    let Some(program) = Program::build("gcc", C, &["-g", "-O2"]) else {
        return;
    };
    let symbols = program.symbols();
    let addresses = program.addresses();
    let ascending = named(&symbols, &addresses);
    let mut mixed: Vec<usize> = (0..addresses.len()).collect();
    mixed.sort_by_key(|place| place.wrapping_mul(0x9e37_79b9) % 1009);
    let shuffled: Vec<u64> = mixed.iter().map(|place| addresses[*place]).collect();
    for (place, frames) in mixed.into_iter().zip(named(&symbols, &shuffled)) {
        assert_eq!(frames, ascending[place]);
    }
    assert!(symbols.cursor().frames(u64::MAX).next().is_none());
    assert!(symbols.cursor().frames(0).next().is_none());
}

#[test]
fn damaged_files_give_errors_or_wrong_names() {
    let Some(program) = Program::build("gcc", C, &["-g", "-O2"]) else {
        return;
    };
    let mut output = Cursor::new(Vec::new());
    let inputs = Inputs {
        binary: &program.path,
        supplementary: &[],
    };
    compile(&inputs, &CompileLimits::default(), &mut output).unwrap();
    let compiled = output.into_inner();
    let addresses = program.addresses();
    let mut random = 1_u64;
    let mut next = |bound: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % bound
    };
    for _ in 0..300 {
        let mut damaged = compiled.clone();
        for _ in 0..4 {
            let at = file::format::HEADER + next(damaged.len() - file::format::HEADER);
            damaged[at] = next(256) as u8;
        }
        let file = SymbolFile::from_bytes(damaged).unwrap();
        let _ = named(&file, &addresses);
    }
    for length in 0..compiled.len() {
        let cut = SymbolFile::from_bytes(compiled[..length].to_vec());
        assert!(cut.is_err(), "{length}");
    }
    let binary = std::fs::read(&program.path).unwrap();
    let limits = CompileLimits {
        entries: 1 << 20,
        ..CompileLimits::default()
    };
    for _ in 0..300 {
        let mut damaged = binary.clone();
        for _ in 0..8 {
            let at = next(damaged.len());
            damaged[at] = next(256) as u8;
        }
        let mut output = Cursor::new(Vec::new());
        let files = [(Path::new("program"), &damaged[..])];
        if compile::compile_bytes(&files, &limits, &mut output).is_ok() {
            let file = SymbolFile::from_bytes(output.into_inner()).unwrap();
            let _ = named(&file, &addresses);
        }
    }
}

#[test]
fn compilation_limits_are_enforced() {
    let Some(program) = Program::build("gcc", C, &["-g", "-O2", "-gz=zlib"]) else {
        return;
    };
    let good = CompileLimits::default();
    for (limits, what) in [
        (
            CompileLimits {
                input_bytes: 1000,
                ..good
            },
            "input",
        ),
        (
            CompileLimits {
                decompressed_bytes: 100,
                ..good
            },
            "decompressed bytes",
        ),
        (
            CompileLimits {
                output_bytes: 500,
                ..good
            },
            "output",
        ),
        (
            CompileLimits {
                entries: 10,
                ..good
            },
            "entries",
        ),
    ] {
        let inputs = Inputs {
            binary: &program.path,
            supplementary: &[],
        };
        let result = compile(&inputs, &limits, &mut Cursor::new(Vec::new()));
        assert!(
            matches!(result, Err(CompileError::Limit(limit)) if limit == what),
            "{result:?}"
        );
    }
}

#[test]
fn fifo_is_refused_without_waiting_for_a_writer() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    assert!(symbols(&fifo, &[]).is_err());
    assert!(inspect::inspect(&fifo).is_err());
    assert!(describe::describe(&fifo, 0).is_err());
}

#[test]
fn non_binary_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, "text").unwrap();
    assert!(matches!(symbols(&path, &[]), Err(CompileError::NotElf(_))));
    std::fs::write(&path, "").unwrap();
    assert!(matches!(symbols(&path, &[]), Err(CompileError::NotElf(_))));
    std::fs::write(&path, b"\x7fELF\x01\x01\x01").unwrap();
    assert!(matches!(
        symbols(&path, &[]),
        Err(CompileError::Unsupported(_))
    ));
    assert!(matches!(
        SymbolFile::open(&path),
        Err(SymbolFileError::NotSymbolFile)
    ));
}
