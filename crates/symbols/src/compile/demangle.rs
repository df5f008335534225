//! Names of linkers as names for people.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// Deeper names stay as they are: both for reading and for writing.
const DEEPEST: u32 = 192;
/// In bytes. A short hostile name can stand for gigabytes.
const LONGEST: usize = 16 << 10;

/// Demangles a name of Rust (legacy and v0, without the hash) or C++ (Itanium) into `output`, which is empty. False, and nothing is
/// there, if it is neither.
pub(super) fn demangle(name: &str, output: &mut String) -> bool {
    let mut bounded = Bounded(output);
    // A stub of the linker's has the name of what it jumps to.
    let (name, suffix) = match name.strip_suffix("@plt") {
        Some(name) => (name, "@plt"),
        None => (name, ""),
    };
    let rust = rustc_demangle::try_demangle(name);
    let demangled = match rust {
        Ok(rust) => write!(bounded, "{rust:#}").is_ok(),
        Err(_) => cpp(name, &mut bounded),
    };
    let demangled = demangled && bounded.write_str(suffix).is_ok();
    if !demangled {
        output.clear();
    }
    demangled
}

fn cpp(name: &str, output: &mut Bounded<'_>) -> bool {
    // Not everything that can be read as a mangled name is one: `i` is no name of a function `int`.
    if !name.starts_with("_Z") && !name.starts_with("__Z") && !name.starts_with("_GLOBAL_") {
        return false;
    }
    let reading = ParseOptions::default().recursion_limit(DEEPEST);
    let Ok(symbol) = Symbol::new_with_options(name, &reading) else {
        return false;
    };
    let writing = DemangleOptions::new().recursion_limit(DEEPEST);
    let text = symbol.structured_demangle(output, &writing);
    text.is_ok()
}

struct Bounded<'o>(&'o mut String);

impl Write for Bounded<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demangled(name: &str) -> Option<String> {
        let mut output = String::new();
        demangle(name, &mut output).then_some(output)
    }

    #[test]
    fn names_of_rust_and_cpp_become_readable() {
        for (mangled, expected) in [
            (
                "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
                "core::fmt::Formatter::pad",
            ),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_ZN3foo3barEi", "foo::bar(int)"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backEOi",
                "std::vector<int, std::allocator<int> >::push_back(int&&)",
            ),
            ("_ZL6helperv.part.0", "helper() [clone .part.0]"),
            ("_Znwm@plt", "operator new(unsigned long)@plt"),
        ] {
            assert_eq!(demangled(mangled).as_deref(), Some(expected));
        }
    }

    #[test]
    fn other_names_stay_as_they_are() {
        for name in ["main", "i", "_Z", "runtime.main", "_ZN", "printf@plt", ""] {
            assert_eq!(demangled(name), None, "{name}");
        }
    }

    #[test]
    fn a_short_name_that_stands_for_a_long_one_stays_as_it_is() {
        // `std::pair` is the first substitution; each pair is made of two of the one before.
        let mut bomb = "_Z1fSt4pairIiiE".to_owned();
        for before in "0123456789ABCDEFGH".chars() {
            bomb.push_str(&format!("S_IS{before}_S{before}_E"));
        }
        assert_eq!(demangled(&bomb), None);
    }
}
