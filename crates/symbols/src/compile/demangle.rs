//! Demangles linkage names.

mod cpp;

use std::fmt::{self, Write};

/// Maximum length in bytes. A short malicious name can expand to gigabytes.
const MAX_NAME_LENGTH: usize = 16 << 10;

/// Demangles a Rust name (legacy and v0, without the hash) or a C++ name (Itanium ABI) into `output`, which
/// must be empty. Returns false, with `output` empty, for any other name.
pub(super) fn demangle(name: &str, output: &mut String) -> bool {
    let mut bounded = Bounded(output);
    let (name, suffix) = match name.strip_suffix("@plt") {
        Some(name) => (name, "@plt"),
        None => (name, ""),
    };
    let rust = rustc_demangle::try_demangle(name);
    let demangled = match rust {
        Ok(rust) => write!(bounded, "{rust:#}").is_ok(),
        Err(_) => cpp::demangle(name, &mut bounded),
    };
    let demangled = demangled && bounded.write_str(suffix).is_ok();
    if !demangled {
        output.clear();
    }
    demangled
}

struct Bounded<'o>(&'o mut String);

impl Write for Bounded<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_NAME_LENGTH {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    fn demangled(name: &str) -> Option<String> {
        let mut output = String::new();
        demangle(name, &mut output).then_some(output)
    }

    #[test]
    fn rust_and_cpp_names_are_demangled() {
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
            (
                "_ZNSsC1EPKcm",
                "std::basic_string<char, std::char_traits<char>, std::allocator<char> >::basic_string(char const*, unsigned long)",
            ),
            ("_ZNK1AcvbEv", "A::operator bool() const"),
            ("_Z1fRA10_KiPFivE", "f(int const (&) [10], int (*)())"),
            ("_Z1fIJidEEvDpRT_", "void f<int, double>(int&, double&)"),
            ("_ZN4llvm7ManagerIiJEE3runEv", "llvm::Manager<int>::run()"),
            ("_Z3fooIXadL_Z3barvEEEvv", "void foo<&(bar())>()"),
            (
                "_ZZ4mainENKUlT_E_clIiEEDaS_",
                "auto main::{lambda(auto:1)#1}::operator()<int>(int) const",
            ),
            ("_GLOBAL__I_a", "global constructors keyed to a"),
            (
                "_ZThn24_NK1A4sizeEv",
                "non-virtual thunk to A::size() const",
            ),
        ] {
            assert_eq!(demangled(mangled).as_deref(), Some(expected), "{mangled}");
        }
    }

    /// Clang writes conditions of functions since version 3.5, and constraints of dependent template
    /// parameters since version 18.
    #[test]
    fn clang_names_with_conditions_are_demangled() {
        for (mangled, expected) in [
            (
                "_ZN4shop3sumIdTnNSt9enable_ifIXsr3std17is_floating_pointIT_EE5valueEiE4typeELi0EEES2_S2_",
                "double shop::sum<double, 0>(double)",
            ),
            (
                "_Z3addUa9enable_ifIXgtLi1ELi0EEEii",
                "add(int, int) [enable_if:((1)>(0))]",
            ),
            ("_ZN1SILi5EEC2ITkSt8integraliEET_", "S<5>::S<int>(int)"),
        ] {
            assert_eq!(demangled(mangled).as_deref(), Some(expected), "{mangled}");
        }
    }

    /// Compares with the names of the installed C++ library. `c++filt` omits a space where an argument list
    /// ends with an empty pack.
    #[test]
    fn standard_library_names_match_cppfilt() {
        let Some(names) = library_names() else {
            eprintln!("skipped: there is no C++ library, nm or c++filt here");
            return;
        };
        let mut child = Command::new("c++filt");
        // `-i` keeps `std::string` instead of its expansion.
        let child = child.arg("-i").stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut child) = child.spawn() else {
            eprintln!("skipped: there is no c++filt here");
            return;
        };
        let mut input = child.stdin.take().unwrap();
        let text = names.join("\n");
        let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
        let expected = child.wait_with_output().unwrap().stdout;
        writer.join().unwrap().unwrap();
        let expected = String::from_utf8(expected).unwrap();
        let spaces = |text: &str| text.replace("> >", ">>").replace("> >", ">>");
        let mut compared = 0;
        for (name, expected) in names.iter().zip(expected.lines()) {
            // `c++filt` leaves unknown names unchanged.
            if expected == name {
                continue;
            }
            compared += 1;
            let ours = demangled(name).unwrap_or_default();
            assert_eq!(spaces(&ours), spaces(expected), "{name}");
        }
        assert!(compared > 3000, "only {compared}");
    }

    fn library_names() -> Option<Vec<String>> {
        let output = |command: &mut Command| {
            let output = command.output().ok()?;
            String::from_utf8(output.stdout).ok()
        };
        let path = output(Command::new("g++").arg("-print-file-name=libstdc++.so.6"))?;
        let symbols = ["-D", "--defined-only", path.trim()];
        let symbols = output(Command::new("nm").args(symbols))?;
        let names = symbols.lines().filter_map(|line| line.split(' ').nth(2));
        let names = names.filter_map(|name| name.split('@').next());
        let names = names.filter(|name| name.starts_with("_Z"));
        let names: Vec<String> = names.map(str::to_owned).collect();
        (!names.is_empty()).then_some(names)
    }

    #[test]
    fn deeply_nested_names_stay_mangled() {
        for name in [
            format!("_Z1f{}", "P".repeat(100_000)),
            format!("_Z1fI{}", "J".repeat(100_000)),
            format!("_Z1f{}i", "PF".repeat(5_000)),
        ] {
            assert_eq!(demangled(&name), None);
        }
    }

    #[test]
    fn unmangled_names_stay_unchanged() {
        for name in ["main", "i", "_Z", "runtime.main", "_ZN", "printf@plt", ""] {
            assert_eq!(demangled(name), None, "{name}");
        }
    }

    #[test]
    fn name_with_exponential_expansion_stays_mangled() {
        // `std::pair` is the first substitution; each further pair consists of two of the previous pair.
        let mut bomb = "_Z1fSt4pairIiiE".to_owned();
        for before in "0123456789ABCDEFGH".chars() {
            bomb.push_str(&format!("S_IS{before}_S{before}_E"));
        }
        assert_eq!(demangled(&bomb), None);
    }
}
