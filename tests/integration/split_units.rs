//! Split debug information: inlined functions are described in `.dwo` files, or in a package of them, and not in the
//! binary.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::symbolication::{PLAIN, Program, SOURCE, World};

/// Whether the function inlined into `work` has a name, with the files that `lay_out` puts into the directory of
/// symbols.
async fn inlined(program: &Program, lay_out: impl Fn(&Path)) -> bool {
    let world = World::start("", PLAIN).await;
    let place = program.place_in(&world.symbols());
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::copy(&program.file, &place).unwrap();
    lay_out(&world.symbols());
    let work = program.address("work");
    let inside: Vec<u64> = (work..work + 16).collect();
    let found = world.send(&program.build_id, &inside).await;
    assert!(found[0].last().unwrap().starts_with("work "), "{found:?}");
    found
        .iter()
        .any(|frames| frames.len() == 2 && frames[0].starts_with("twice program.c:"))
}

#[tokio::test]
async fn split_units_are_found_by_build_path_or_directory() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let program = Program::of(SOURCE, &["-g", "-gsplit-dwarf", version]);
        let unit = program.directory.path().join("program.dwo");
        assert!(
            !inlined(&program, |_| {}).await,
            "it is in the unit, which is built elsewhere"
        );
        let built_in = program.directory.path().canonicalize().unwrap();
        let below = built_in.strip_prefix("/").unwrap();
        let where_it_was_built = |symbols: &Path| {
            fs::create_dir_all(symbols.join(below)).unwrap();
            fs::copy(&unit, symbols.join(below).join("program.dwo")).unwrap();
        };
        assert!(inlined(&program, where_it_was_built).await, "{version}");
        let in_it = |symbols: &Path| {
            fs::copy(&unit, symbols.join("program.dwo")).unwrap();
        };
        assert!(inlined(&program, in_it).await, "{version}");
    }
}

#[tokio::test]
async fn package_is_found_beside_the_debug_file() {
    let program = Program::of(SOURCE, &["-g", "-gsplit-dwarf", "-gdwarf-4"]);
    let mut packing = Command::new("dwp");
    packing.args(["-o", "program.dwp", "program.dwo"]);
    // `dwp` of GNU binutils.
    let Ok(done) = packing.current_dir(program.directory.path()).status() else {
        eprintln!("skipped: there is no dwp");
        return;
    };
    assert!(done.success());
    let package = program.directory.path().join("program.dwp");
    let beside = |symbols: &Path| {
        let mut name = program.place_in(symbols).into_os_string();
        name.push(".dwp");
        fs::copy(&package, name).unwrap();
    };
    assert!(inlined(&program, beside).await);
}
