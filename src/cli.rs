//! The command line: arguments, and the sub-commands that do not run the service.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::config::{self, Sources};

/// What is left to do once the command line has been read.
#[derive(Debug)]
pub enum Invocation {
    /// Run the service. The caller loads the configuration: a reload does the same again.
    Run {
        /// Where the configuration comes from.
        sources: Sources,
        /// Whether warnings are errors.
        strict: bool,
    },
    /// Everything is done.
    Done(ExitCode),
}

#[derive(Debug, Parser)]
#[command(name = "collector", version, about)]
struct Arguments {
    #[arg(long, value_name = "FILE")]
    config: Vec<String>,
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[arg(long)]
    strict: bool,
    #[arg(long)]
    validate: bool,
}

/// Reads the arguments (the program's name first), does what needs no service, and says what is left to do.
pub fn parse_and_dispatch<I>(arguments: I) -> Invocation
where
    I: IntoIterator,
    I::Item: Into<OsString> + Clone,
{
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            return Invocation::Done(ExitCode::from(code));
        }
    };
    let sources = Sources {
        configs: arguments.config,
        sets: arguments.set,
    };
    if arguments.validate {
        let loaded = config::load(&sources, arguments.strict);
        eprint!("{}", loaded.report.render());
        return Invocation::Done(ExitCode::from(u8::from(loaded.report.has_errors())));
    }
    Invocation::Run {
        sources,
        strict: arguments.strict,
    }
}
