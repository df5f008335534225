//! Compares stripped Go programs with `go tool`. Needs the path of a go command in `SYMBOLS_GO`; otherwise the tests
//! report that they were skipped.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::*;

/// Prints some areas, and writes a CPU profile to the file given as argument.
const SOURCE: &str = r#"
package main

import (
	"fmt"
	"os"
	"runtime/pprof"
	"sort"
	"strings"
)

type shape interface{ area() float64 }
type square struct{ side float64 }

func (s square) area() float64 { return multiply(s.side, s.side) }
func multiply(a, b float64) float64 { return a*b + add(a) }
func add(a float64) float64 {
	if a > 3 {
		return a + 1
	}
	return a - 1
}

func main() {
	rounds := 1
	if len(os.Args) > 1 {
		rounds = 200
		file, err := os.Create(os.Args[1])
		if err != nil {
			panic(err)
		}
		pprof.StartCPUProfile(file)
		defer pprof.StopCPUProfile()
	}
	var text strings.Builder
	for range rounds {
		areas := []float64{}
		for i := range 20000 {
			var s shape = square{float64(i * 7919 % 1000)}
			areas = append(areas, s.area())
			if i%100 == 0 {
				fmt.Fprintf(&text, "%d %v", i, s)
			}
		}
		sort.Slice(areas, func(i, j int) bool { return areas[i] < areas[j] })
	}
	fmt.Println(text.Len())
}
"#;

fn go() -> Option<OsString> {
    let go = std::env::var_os("SYMBOLS_GO");
    if go.is_none() {
        eprintln!("skipped: SYMBOLS_GO is not the path of a go command");
    }
    go
}

/// Builds the program without symbol table and debug information.
fn build(go: &OsString, directory: &Path, architecture: &str, mode: &str) -> PathBuf {
    std::fs::write(directory.join("main.go"), SOURCE).unwrap();
    let binary = directory.join("program");
    let built = Command::new(go)
        .current_dir(directory)
        .env("GOARCH", architecture)
        .args(["build", "-ldflags=-s -w", "-buildmode", mode, "-o"])
        .args([&binary, Path::new("main.go")])
        .status();
    assert!(built.unwrap().success());
    binary
}

/// Expected difference: where the compiler recorded no line, `go tool addr2line` prints -1.
#[test]
fn stripped_go_binaries_match_addr2line() {
    let Some(go) = go() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    for (architecture, mode) in [("amd64", "exe"), ("amd64", "pie"), ("arm64", "exe")] {
        let binary = build(&go, directory.path(), architecture, mode);
        let (file, summary) = symbols(&binary, &[]).unwrap();
        let covered = summary.covered[NameSource::GoPclntab as usize];
        assert!(covered * 100 > summary.code * 99, "{summary:?}");
        let data = std::fs::read(&binary).unwrap();
        let budget = std::cell::Cell::new(0);
        let code = elf::Elf::parse(&data, &budget).unwrap().code();
        let addresses: Vec<u64> = code
            .into_iter()
            .flat_map(|range| range.step_by(61))
            .collect();
        let mut child = Command::new(&go)
            .args(["tool", "addr2line"])
            .arg(&binary)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let text: String = addresses.iter().map(|at| format!("{at:#x}\n")).collect();
        let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = output.lines().collect();
        let mut compared = 0;
        let mut inlined = 0;
        for ((address, frames), theirs) in addresses
            .iter()
            .zip(named(&file, &addresses))
            .zip(lines.chunks_exact(2))
        {
            // addr2line prints the outer function and the innermost line.
            let (Some((_, place)), Some((function, _))) = (frames.first(), frames.last()) else {
                continue;
            };
            assert_eq!(function, theirs[0], "{address:#x}");
            // The output has no columns.
            let place = place.strip_suffix(":0").unwrap();
            if !place.ends_with(":0") {
                assert_eq!(place, theirs[1], "{address:#x}");
            }
            compared += 1;
            inlined += usize::from(frames.len() > 1);
        }
        assert!(compared > 5000 && inlined > 500, "{compared} {inlined}");
        // The same without section headers, as in a memory dump.
        let mut data = data;
        data[40..48].fill(0);
        data[58..64].fill(0);
        let bare = directory.path().join("bare");
        std::fs::write(&bare, data).unwrap();
        let (bare, _) = symbols(&bare, &[]).unwrap();
        assert_same(&bare, &file, &addresses);
    }
}

/// Returns the locations of a profile as printed by `go tool pprof -raw`: by address, innermost first, with
/// `file:line:0`.
fn locations(raw: &str) -> BTreeMap<u64, Named> {
    let mut locations: BTreeMap<u64, Named> = BTreeMap::new();
    let mut current = None;
    let lines = raw.lines().skip_while(|line| *line != "Locations").skip(1);
    for line in lines.take_while(|line| *line != "Mappings") {
        // `     1: 0x481715 M=1 runtime.memmove /usr/local/go/src/runtime/memmove_amd64.s:122:0 s=35`; lines of inlined
        // frames have only the part after the mapping.
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if words.len() > 3 && words[2].starts_with("M=") {
            let address = u64::from_str_radix(words[1].trim_start_matches("0x"), 16);
            // The program is the first mapping, followed by the kernel's.
            current = address.ok().filter(|_| words[2] == "M=1");
            words.drain(..3);
        }
        if let (Some(address), [name @ .., place, _]) = (current, &words[..]) {
            let frame = (name.join(" "), (*place).to_owned());
            locations.entry(address).or_default().push(frame);
        }
    }
    locations
}

#[test]
fn stripped_go_profile_has_the_names_of_pprof() {
    let Some(go) = go() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let architecture = match cfg!(target_arch = "aarch64") {
        true => "arm64",
        false => "amd64",
    };
    let binary = build(&go, directory.path(), architecture, "exe");
    let profile = directory.path().join("cpu.pprof");
    let ran = Command::new(&binary).arg(&profile).output().unwrap();
    assert!(ran.status.success());
    let mut pprof = Command::new(&go);
    let raw = pprof.args(["tool", "pprof", "-raw"]).arg(&profile).output();
    let expected = locations(&String::from_utf8(raw.unwrap().stdout).unwrap());
    let (file, _) = symbols(&binary, &[]).unwrap();
    // The program is mapped at its link address.
    let addresses: Vec<u64> = expected.keys().copied().collect();
    for ((address, theirs), ours) in expected.iter().zip(named(&file, &addresses)) {
        assert_eq!(ours, *theirs, "{address:#x}");
    }
    assert!(expected.len() > 10, "{expected:?}");
    assert!(expected.values().any(|frames| frames.len() > 1));
}
