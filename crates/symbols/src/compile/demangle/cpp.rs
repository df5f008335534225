//! Demangles C++ names of the Itanium ABI, in the notation of GNU's `c++filt`.
//!
//! The crate `cpp_demangle` 0.5 cannot read names of Clang 18 and later (`Tn`, in templates that use `std::enable_if`),
//! and writes some names wrongly (`T const` for `T const&` in packs).

mod expressions;
mod names;
mod node;
mod parse;
mod print;
mod special;
mod templates;
mod types;

use std::fmt::Write;

use self::parse::Parser;
use self::print::Printer;

/// Demangles a name into `output`. Returns false if the name is not mangled; `output` may then contain partial text.
pub(super) fn demangle(name: &str, output: &mut impl Write) -> bool {
    if let Some(rest) = name.strip_prefix("_GLOBAL_") {
        return global(rest, output);
    }
    let mangled = ["_Z", "__Z", "___Z", "____Z"];
    let mut mangled = mangled.iter().filter_map(|start| name.strip_prefix(start));
    let Some(mangled) = mangled.next() else {
        return false;
    };
    let mut parser = Parser::new(mangled);
    let Ok(root) = parser.encoding() else {
        return false;
    };
    let Some(clones) = clones(parser.rest()) else {
        return false;
    };
    if Printer::new(&parser, output).print(root).is_err() {
        return false;
    }
    clones
        .iter()
        .all(|clone| write!(output, " [clone {clone}]").is_ok())
}

/// Demangles the name of a function that constructs or destroys global variables.
fn global(rest: &str, output: &mut impl Write) -> bool {
    let Some(rest) = rest.strip_prefix(['.', '_', '$']) else {
        return false;
    };
    let (what, rest) = match rest.split_at_checked(2) {
        Some(("I_", rest)) => ("constructors", rest),
        Some(("D_", rest)) => ("destructors", rest),
        _ => return false,
    };
    if write!(output, "global {what} keyed to ").is_err() {
        return false;
    }
    match rest.starts_with("_Z") {
        true => demangle(rest, output),
        false => output.write_str(rest).is_ok(),
    }
}

/// Splits the suffixes of compiler-made copies of a function, such as `.part.0`. `None` for any other text.
fn clones(mut rest: &str) -> Option<Vec<&str>> {
    let mut clones = Vec::new();
    while !rest.is_empty() {
        let word = rest.strip_prefix('.')?;
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let length = word.bytes().take_while(|byte| is_word(*byte)).count();
        if length == 0 {
            return None;
        }
        let mut end = 1 + length;
        // A suffix may consist of a word and a number: `.part.0`, `.cold.1`.
        while let Some(number) = rest.get(end..).and_then(|rest| rest.strip_prefix('.')) {
            let digits = number.bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 {
                break;
            }
            end += 1 + digits;
        }
        let (clone, behind) = rest.split_at_checked(end)?;
        clones.push(clone);
        rest = behind;
    }
    Some(clones)
}
