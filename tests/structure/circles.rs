//! The direction of imports: modules of a folder, at any depth, import each other in one direction
//! only. Cargo rejects cycles between crates.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::modules::{Module, modules, sources};

/// Folders with circles of imports. The list must not grow.
const CIRCLES: [&str; 2] = ["src/app", "src/receivers/pprof"];

/// Imports between the modules of one folder.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// The path of a module or of an item in a module, from the root of the crate.
type Place = Vec<String>;

/// The modules of a crate by their paths, each with the paths that its own names stand for.
type Names = BTreeMap<Place, BTreeMap<String, Place>>;

#[test]
fn modules_of_a_folder_import_in_one_direction() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut circles = BTreeMap::new();
    for source in sources() {
        for (folder, imports) in folders(&modules(&source)) {
            let found = imports.keys().find_map(|module| way_back(&imports, module));
            if let Some(path) = found {
                let place = source.strip_prefix(root).unwrap().join(folder.join("/"));
                let place = place.to_str().unwrap().trim_end_matches('/').to_owned();
                circles.insert(place, path.join(" -> "));
            }
        }
    }
    let cut: Vec<_> = CIRCLES
        .iter()
        .filter(|folder| !circles.contains_key(**folder))
        .collect();
    assert!(
        cut.is_empty(),
        "without a circle, remove from `CIRCLES`: {cut:#?}"
    );
    circles.retain(|folder, _| !CIRCLES.contains(&folder.as_str()));
    assert!(
        circles.is_empty(),
        "move what both modules need to a module below them: {circles:#?}"
    );
}

#[test]
fn circle_of_three_modules_is_found() {
    let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let mut imports = Imports::from([
        ("a".to_owned(), of(&["b"])),
        ("b".to_owned(), of(&["c"])),
        ("c".to_owned(), of(&["a"])),
    ]);
    assert_eq!(way_back(&imports, "a").unwrap().join(" "), "a b c a");
    imports.insert("c".to_owned(), BTreeSet::new());
    assert_eq!(way_back(&imports, "a"), None);
}

#[test]
fn imports_are_found_in_groups_and_through_reexports() {
    let module = |path: &[&str], text: &str| Module {
        path: place(path),
        file: path.join("/").into(),
        text: text.to_owned(),
    };
    let modules = [
        module(&[], "mod a;\n"),
        module(&["a"], "pub use self::b::Item;\nmod b;\nmod c;\nmod d;\n"),
        module(
            &["a", "b"],
            "// crate::a::c\nuse super::{\n    d::{self, X},\n};\n",
        ),
        module(&["a", "c"], "fn f() -> super::Item {}\n"),
        module(&["a", "d"], ""),
    ];
    let folders = folders(&modules);
    let imports = &folders[&place(&["a"])];
    assert_eq!(imports["b"], BTreeSet::from(["d".to_owned()]));
    assert_eq!(imports["c"], BTreeSet::from(["b".to_owned()]));
    assert_eq!(folders.len(), 1);
}

fn folders(modules: &[Module]) -> BTreeMap<Place, Imports> {
    let mut names = Names::new();
    for module in modules {
        names.insert(module.path.clone(), BTreeMap::new());
    }
    for module in modules {
        let own = own_names(module, &names);
        names.insert(module.path.clone(), own);
    }
    let mut folders: BTreeMap<Place, Imports> = BTreeMap::new();
    let is_for_tests = |part: &String| part.starts_with("testing") || part.starts_with("fuzzing");
    for module in modules
        .iter()
        .filter(|one| !one.path.iter().any(is_for_tests))
    {
        for (path, _) in paths(&code(&module.text)) {
            let Some(to) = absolute(&path, &module.path, &names) else {
                continue;
            };
            let to = module_of(to, &names);
            let common = module
                .path
                .iter()
                .zip(&to)
                .take_while(|(a, b)| a == b)
                .count();
            if let (Some(from), Some(to)) = (module.path.get(common), to.get(common)) {
                let imports = folders.entry(module.path[..common].to_vec()).or_default();
                imports.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    folders
}

fn own_names(module: &Module, names: &Names) -> BTreeMap<String, Place> {
    let code = code(&module.text);
    let mut own = BTreeMap::new();
    for (at, _) in code.match_indices("use ") {
        let line = code[..at].rfind('\n').map_or(0, |end| end + 1);
        if !matches!(code.as_bytes()[line], b'p' | b'u') {
            continue;
        }
        let mut found = Vec::new();
        expand("", &mut &code[at + 4..], &mut found);
        for (path, alias) in found {
            let name = alias
                .as_deref()
                .or(path.trim_end_matches("::self").rsplit("::").next());
            if let Some((name, path)) = name.zip(absolute(&path, &module.path, names)) {
                own.insert(name.to_owned(), path);
            }
        }
    }
    own
}

/// The path from the root of the crate; `None` for paths into other crates.
fn absolute(path: &str, module: &[String], names: &Names) -> Option<Place> {
    let mut parts = path.split("::").filter(|part| !part.is_empty()).peekable();
    let mut place = module.to_vec();
    match *parts.peek()? {
        "crate" => {
            place.clear();
            parts.next();
        }
        "self" => drop(parts.next()),
        "super" => {
            while parts.next_if_eq(&"super").is_some() {
                place.pop()?;
            }
        }
        child => {
            let child = [module, &[child.to_owned()]].concat();
            names.get(&child)?;
        }
    }
    place.extend(parts.filter(|part| *part != "self").map(str::to_owned));
    Some(place)
}

/// The module in which the item of this path is, behind all re-exports.
fn module_of(mut path: Place, names: &Names) -> Place {
    // Names that stand for each other would have no end.
    for _ in 0..8 {
        let mut length = path.len();
        while length > 0 && !names.contains_key(&path[..length]) {
            length -= 1;
        }
        let item = path.get(length);
        let behind = item.and_then(|item| names.get(&path[..length])?.get(item));
        match behind {
            Some(behind) => path = [behind.as_slice(), &path[length + 1..]].concat(),
            None => return path[..length].to_vec(),
        }
    }
    path
}

/// The text without comments.
fn code(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines
        .map(|line| format!("{}\n", line.split(" //").next().unwrap_or(line)))
        .collect()
}

/// All paths that begin at the crate or at the module, with their other names.
fn paths(code: &str) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            if !code[..at].ends_with(|last: char| last == ':' || is_part_of_name(last)) {
                expand("", &mut &code[at..], &mut found);
            }
        }
    }
    found
}

/// Splits a path with groups, such as `a::{b, c::{d, e}}`, into single paths. Other names follow `as`.
fn expand(prefix: &str, rest: &mut &str, found: &mut Vec<(String, Option<String>)>) {
    let end = rest.find(|c: char| c != ':' && !is_part_of_name(c));
    let (head, behind) = rest.split_at(end.unwrap_or(rest.len()));
    let path = format!("{prefix}{head}");
    *rest = behind;
    let is_group = head.is_empty() || head.ends_with("::");
    match behind.strip_prefix('{').filter(|_| is_group) {
        Some(group) => {
            *rest = group;
            loop {
                *rest = rest.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
                if let Some(behind) = rest.strip_prefix('}') {
                    *rest = behind;
                    break;
                }
                let before = rest.len();
                expand(&path, rest, found);
                if rest.len() == before {
                    break;
                }
            }
        }
        None => {
            let alias = behind.strip_prefix(" as ").map(|alias| {
                let end = alias.find(|c: char| !is_part_of_name(c));
                let (alias, behind) = alias.split_at(end.unwrap_or(alias.len()));
                *rest = behind;
                alias.to_owned()
            });
            found.push((path, alias));
        }
    }
}

fn is_part_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn place(parts: &[&str]) -> Place {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

fn way_back(imports: &Imports, from: &str) -> Option<Vec<String>> {
    let mut seen = BTreeSet::new();
    let mut open = vec![vec![from.to_owned()]];
    while let Some(path) = open.pop() {
        for next in imports.get(path.last()?).into_iter().flatten() {
            let mut longer = path.clone();
            longer.push(next.clone());
            if next == from {
                return Some(longer);
            }
            if seen.insert(next.clone()) {
                open.push(longer);
            }
        }
    }
    None
}
