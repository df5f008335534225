//! `collector symbols compile`, `lookup` and `inspect`, with programs that the compilers of this machine make.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::harness::collector::BINARY;
use crate::symbolication::{Program, address};

fn symbols(arguments: &[&OsStr]) -> Output {
    let mut command = Command::new(BINARY);
    command.arg("symbols").args(arguments).output().unwrap()
}

/// Returns the output of a successful command.
fn printed(arguments: &[&OsStr]) -> String {
    let output = symbols(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the error message of a failed command.
fn error_output(arguments: &[&OsStr]) -> String {
    let output = symbols(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn lookup(file: &Path, address: u64) -> String {
    let address = format!("{address:#x}");
    printed(&["lookup".as_ref(), file.as_ref(), address.as_ref()])
}

#[test]
fn binary_symbol_file_and_build_id_give_same_names() {
    let program = Program::compile();
    let main = program.address("main");
    let compiled = program.file.with_extension("compiled");
    let said = printed(&[
        "compile".as_ref(),
        program.file.as_ref(),
        "--output".as_ref(),
        compiled.as_ref(),
    ]);
    assert!(said.contains("dwarf"), "{said}");
    let part = program.file.with_extension("compiled.part");
    assert!(!part.exists(), "nothing is left beside it");
    let names = lookup(&program.file, main);
    let first = names.lines().nth(1).unwrap_or_default();
    assert!(
        first.starts_with("  main at ") && first.contains("program.c:"),
        "{names}"
    );
    assert_eq!(lookup(&compiled, main), names);

    let root = program.directory.path().join("symbols");
    let place = program.place_in(&root);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::copy(&program.file, place).unwrap();
    let hexadecimal = format!("{main:x}");
    let by_build_id = |directory: &Path| {
        symbols(&[
            "lookup".as_ref(),
            program.build_id.as_ref(),
            hexadecimal.as_ref(),
            "--directory".as_ref(),
            directory.as_ref(),
        ])
    };
    assert_eq!(String::from_utf8(by_build_id(&root).stdout).unwrap(), names);
    let elsewhere = by_build_id(&root.join("elsewhere"));
    let said = String::from_utf8(elsewhere.stderr).unwrap();
    assert_eq!(elsewhere.status.code(), Some(1));
    assert!(
        said.contains(&program.build_id) && said.contains("elsewhere"),
        "{said}"
    );
}

#[test]
fn inspect_reports_contents_and_problems() {
    let program = Program::compile();
    let said = printed(&["inspect".as_ref(), program.file.as_ref()]);
    for expected in ["A binary for", &program.build_id, ".debug_info", "dwarf"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let compiled = program.file.with_extension("compiled");
    let arguments = [
        "compile".as_ref(),
        program.file.as_ref(),
        "-o".as_ref(),
        compiled.as_ref(),
    ];
    printed(&arguments);
    let said = printed(&["inspect".as_ref(), compiled.as_ref()]);
    assert!(
        said.contains("A symbol file of") && said.contains(&program.build_id),
        "{said}"
    );
    let mut bytes = fs::read(&compiled).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&compiled, bytes).unwrap();
    let said = error_output(&["inspect".as_ref(), compiled.as_ref()]);
    assert!(said.contains("damaged"), "{said}");
    let source = program.file.with_extension("c");
    for command in ["compile", "inspect"] {
        let said = error_output(&[command.as_ref(), source.as_ref()]);
        assert!(said.contains("not an ELF file"), "{said}");
    }
    let said = error_output(&["lookup".as_ref(), program.file.as_ref(), "0x1".as_ref()]);
    assert!(said.contains("no symbols for these addresses"), "{said}");
}

#[test]
fn json_of_symbols_matches_text() {
    let program = Program::compile();
    let json = |arguments: &[&OsStr]| -> serde_json::Value {
        let json = [arguments, &["--json".as_ref()]].concat();
        serde_json::from_str(&printed(&json)).unwrap()
    };
    let inspected = json(&["inspect".as_ref(), program.file.as_ref()]);
    assert_eq!(
        (&inspected["kind"], &inspected["build_id"]),
        (&"binary".into(), &program.build_id.as_str().into())
    );
    let covered = &inspected["symbols"]["covered_bytes"]["dwarf"];
    assert!(covered.as_u64().unwrap() > 0, "{inspected}");
    let main = format!("{:#x}", program.address("main"));
    let found = json(&[
        "lookup".as_ref(),
        program.file.as_ref(),
        main.as_ref(),
        "0x1".as_ref(),
    ]);
    assert_eq!(found[0]["address"], main);
    let frame = &found[0]["frames"][0];
    assert_eq!(
        (&frame["function"], &frame["inlined"]),
        (&"main".into(), &false.into())
    );
    let file = frame["file"].as_str().unwrap();
    assert!(
        file.ends_with("program.c") && frame["line"].is_u64(),
        "{frame}"
    );
    assert_eq!(found[1]["frames"], serde_json::json!([]));
}

#[test]
fn rust_functions_have_their_source_names() {
    const SOURCE: &str = "mod inner {
    #[inline(never)]
    pub fn work(number: u64) -> u64 { std::hint::black_box(number) + 1 }
}
fn main() { println!(\"{}\", inner::work(2)); }
";
    let directory = tempfile::tempdir().unwrap();
    let (source, file) = (
        directory.path().join("program.rs"),
        directory.path().join("program"),
    );
    fs::write(&source, SOURCE).unwrap();
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    for mangling in ["v0", "legacy"] {
        let mut command = Command::new(&compiler);
        command
            .args(["-g", "-Copt-level=1", "-o"])
            .arg(&file)
            .arg(&source);
        if mangling == "v0" {
            command.arg("-Csymbol-mangling-version=v0");
        }
        assert!(command.status().unwrap().success());
        let work = address(&file, |name| {
            name.contains("inner") && name.contains("work")
        });
        let names = lookup(&file, work);
        assert!(names.contains("program::inner::work at "), "{names}");
        assert!(names.contains("program.rs:3"), "{names}");
    }
}

#[test]
fn compressed_debug_information_gives_equal_result() {
    let program = Program::compile();
    let addresses = [program.address("work"), program.address("main")];
    let names = addresses.map(|address| lookup(&program.file, address));
    let other = program.file.with_extension("compressed");
    let objcopy = |how: &'static str| {
        let mut command = Command::new("objcopy");
        command.arg(format!("--compress-debug-sections={how}"));
        (how, command)
    };
    let mut dwz = Command::new("dwz");
    dwz.arg("-o").arg(&other);
    let [zlib, zstd] = ["zlib", "zstd"].map(objcopy);
    for (how, mut command) in [zlib, zstd, ("dwz", dwz)] {
        command.arg(&program.file);
        if how != "dwz" {
            command.arg(&other);
        }
        if !command.output().is_ok_and(|done| done.status.success()) {
            eprintln!("skipped: this machine has no tool for {how}");
            continue;
        }
        let found = addresses.map(|address| lookup(&other, address));
        assert_eq!(found, names, "{how}");
    }
}
