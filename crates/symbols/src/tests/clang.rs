//! Compares programs of Clang and rustc with LLVM's symbolizer: one file, split, link-time optimized,
//! processed by dwz.

use super::*;

const RUST: &str = r#"
use std::collections::HashMap;
use std::hint::black_box;

trait Shape {
    fn area(&self) -> f64;
}

struct Square(f64);

impl Shape for Square {
    #[inline(never)]
    fn area(&self) -> f64 {
        black_box(self.0) * self.0
    }
}

#[inline(never)]
fn total(items: &HashMap<String, u64>) -> u64 {
    items.values().copied().filter(|value| value % 3 != 0).sum()
}

fn main() {
    let count = std::env::args().count() as u64 * 10;
    let items = (0..count).map(|number| (number.to_string(), number)).collect();
    let shapes: Vec<Box<dyn Shape>> = vec![Box::new(Square(count as f64))];
    let areas: f64 = shapes.iter().map(|shape| shape.area()).sum();
    println!("{} {areas}", total(&items));
}
"#;

/// Templates with dependent parameters, and functions with internal linkage.
const TEMPLATES: &str = r#"
#include <cstdio>
#include <tuple>
#include <type_traits>
#include <vector>
namespace {
template <class T, typename std::enable_if<std::is_integral<T>::value, int>::type = 0>
__attribute__((noinline)) T scaled(T value) { return value * 3; }
template <class T, typename std::enable_if<std::is_floating_point<T>::value, int>::type = 0>
__attribute__((noinline)) T scaled(T value) { return value / 3; }
template <int N> struct Table {
    int cells[N];
    template <class F> __attribute__((noinline)) int each(F &&function) const {
        int sum = 0;
        for (int cell : cells) sum += function(cell);
        return sum;
    }
};
}
template <class... Values> __attribute__((noinline)) auto packed(Values &&...values) {
    return std::make_tuple(scaled(values)...);
}
int main(int count, char **) {
    Table<4> table{{count, 2, 3, 4}};
    std::vector<double> more(count, 1.5);
    auto made = packed(count, 2.5, more.back());
    printf("%d %f\n", table.each([&](int cell) { return cell + count; }), std::get<1>(made));
}
"#;

fn some_addresses(program: &Program) -> Vec<u64> {
    let addresses = program.addresses();
    let step = (addresses.len() / 20_000).max(1);
    addresses.into_iter().step_by(step).collect()
}

/// Returns the `.dwo` files of a program.
fn split_files(program: &Program) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(program.directory.path()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "dwo"))
        .collect()
}

#[test]
fn clang_programs_match_llvm() {
    for flags in [
        &["-g", "-O2"][..],
        &["-g", "-O0"],
        &["-gdwarf-4", "-O2"],
        &["-g", "-O2", "-gz"],
        &["-g", "-O2", "-flto", "-fuse-ld=lld"],
        &["-g", "-O2", "-flto=thin", "-fuse-ld=lld"],
    ] {
        for (compiler, source) in [("clang", C), ("clang++", CPP), ("clang++", TEMPLATES)] {
            if let Some(program) = Program::build(compiler, source, flags) {
                let compared = assert_like_llvm(&program, &program.symbols());
                assert!(compared > 80, "{compiler} {flags:?}: only {compared}");
            }
        }
    }
}

#[test]
fn templates_and_lto_match_llvm() {
    for flags in [&["-g", "-O2"][..], &["-g", "-O2", "-flto"]] {
        for source in [CPP, TEMPLATES] {
            if let Some(program) = Program::build("g++", source, flags) {
                let compared = assert_like_llvm(&program, &program.symbols());
                assert!(compared > 80, "{flags:?}: only {compared}");
            }
        }
    }
}

#[test]
fn rust_programs_match_llvm() {
    for flags in [
        &["-g", "-O"][..],
        &["-g"],
        &["-g", "-O", "-C", "lto=fat"],
        &["-g", "-O", "-C", "lto=thin"],
        &["-g", "-O", "-C", "split-debuginfo=unpacked"],
    ] {
        let Some(program) = Program::build("rustc", RUST, flags) else {
            continue;
        };
        let (symbols, summary) = symbols(&program.path, &split_files(&program)).unwrap();
        assert_eq!([summary.missing_units, summary.damaged_units], [0, 0]);
        let addresses = some_addresses(&program);
        let compared = assert_like_llvm_at(&program, &symbols, &addresses);
        assert!(compared > 1000, "{flags:?}: only {compared}");
    }
}

/// Clang writes the file table of a split unit, and the table's strings, into the binary.
#[test]
fn clang_split_debug_information_equals_single_file() {
    for flags in [
        &["-gdwarf-5", "-gsplit-dwarf"][..],
        &["-gdwarf-4", "-gsplit-dwarf"],
        &["-gdwarf-5", "-gsplit-dwarf", "-fsplit-dwarf-inlining"],
        &["-gdwarf-5", "-gsplit-dwarf", "-fdebug-types-section"],
        &["-gdwarf-4", "-gsplit-dwarf", "-fdebug-types-section"],
    ] {
        for (compiler, source) in [("clang", C), ("clang++", CPP), ("clang++", TEMPLATES)] {
            let flags = [&["-O2"], flags].concat();
            let Some(program) = Program::build(compiler, source, &flags) else {
                continue;
            };
            let split = split_files(&program);
            assert_eq!(split.len(), 1);
            let (whole, summary) = symbols(&program.path, &split).unwrap();
            assert_eq!([summary.missing_units, summary.damaged_units], [0, 0]);
            // LLVM's symbolizer finds no split files here. The test above compares the same program in one file.
            let source = if compiler == "clang" {
                "program.c"
            } else {
                "program.cc"
            };
            assert!(program.run(compiler, &["-O2", flags[1], source, "-o", "one"]));
            let (one, _) = symbols(&program.file("one"), &[]).unwrap();
            assert_same(&whole, &one, &program.addresses());

            let name = split[0].file_name().unwrap().to_str().unwrap();
            if program.run("llvm-dwp", &["-o", "program.dwp", name]) {
                let package = program.file("program.dwp");
                let (packaged, summary) = symbols(&program.path, &[package]).unwrap();
                assert_eq!([summary.missing_units, summary.damaged_units], [0, 0]);
                assert_same(&packaged, &whole, &program.addresses());
            }
        }
    }
}

#[test]
fn function_without_split_file_has_the_name_of_its_symbol() {
    for (compiler, flags) in [
        ("clang++", &["-gdwarf-5", "-gsplit-dwarf"][..]),
        (
            "clang++",
            &["-gdwarf-5", "-gsplit-dwarf", "-fsplit-dwarf-inlining"],
        ),
        (
            "clang++",
            &["-gdwarf-4", "-gsplit-dwarf", "-fsplit-dwarf-inlining"],
        ),
        ("g++", &["-gdwarf-5", "-gsplit-dwarf"]),
        ("g++", &["-gdwarf-4", "-gsplit-dwarf"]),
    ] {
        let flags = [&["-O2"], flags].concat();
        let Some(program) = Program::build(compiler, CPP, &flags) else {
            continue;
        };
        let (with_lines, summary) = symbols(&program.path, &[]).unwrap();
        assert_eq!(summary.missing_units, 1);
        assert!(program.run("strip", &["-g", "program", "-o", "plain"]));
        let (plain, _) = symbols(&program.file("plain"), &[]).unwrap();
        let addresses = program.addresses();
        let outermost = |symbols: &SymbolFile| -> Vec<Option<String>> {
            let system_name = |function: &FunctionNames<'_>| function.system_name.to_owned();
            let all = called(symbols, &addresses, system_name).into_iter();
            all.map(|frames| frames.last().map(|(name, _)| name.clone()))
                .collect()
        };
        let names = outermost(&with_lines).into_iter().zip(outermost(&plain));
        for (address, (ours, symbol)) in addresses.iter().zip(names) {
            let (ours, symbol) = (ours.unwrap_or_default(), symbol.unwrap_or_default());
            // A skeleton may have the source name, and `main.cold` has the name `main`.
            let is_part = !ours.is_empty() && symbol.contains(ours.as_str());
            assert!(
                ours == symbol || is_part,
                "{compiler} {flags:?}: {address:#x}: {ours}, {symbol}"
            );
        }
    }
}

#[test]
fn dwz_output_matches_llvm() {
    for (compiler, flags) in [
        ("clang++", &["-gdwarf-4", "-O2"][..]),
        ("clang++", &["-gdwarf-5", "-O2"]),
        ("g++", &["-gdwarf-5", "-O2"]),
    ] {
        let Some(program) = Program::build(compiler, CPP, flags) else {
            continue;
        };
        let whole = program.symbols();
        // Once alone, and once with a supplementary file shared with another program.
        if !program.run("dwz", &["program", "-o", "small"]) {
            continue;
        }
        let (small, summary) = symbols(&program.file("small"), &[]).unwrap();
        assert_eq!(summary.damaged_units, 0);
        assert_same(&small, &whole, &program.addresses());
        assert!(program.run("cp", &["program", "other"]));
        if program.run("dwz", &["-m", "common", "program", "other"]) {
            let common = program.file("common");
            let (shared, summary) = symbols(&program.path, &[common]).unwrap();
            assert_eq!(summary.damaged_units, 0);
            assert_same(&shared, &whole, &program.addresses());
        }
    }
}
