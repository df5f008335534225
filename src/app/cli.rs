//! The command line: arguments, and the sub-commands that do not run the service.

mod arguments;
mod components;
mod fetch;
mod gates;
mod health;
mod options;
mod profiles;
mod queue;
mod symbols;
mod top;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, Parser};

use self::arguments::{Arguments, Command, Common, DRAIN_TIMEOUT, Format};
use crate::app::config::Config;
use crate::app::service::ServiceOptions;
use crate::telemetry::terminal;
use tributary_config::Sources;

/// Exit code for invalid arguments, the same as clap's.
const BAD_USAGE: u8 = 2;

/// The action that remains after the command line is parsed.
#[derive(Debug)]
pub enum Invocation {
    /// Run the service. The service loads the configuration itself, at the start and at every
    /// reload.
    Run(ServiceOptions),
    /// All work is done. The exit code is 0 for success and 2 for invalid arguments. It is 1 for an
    /// invalid configuration, invalid profiles, profiles that grew too much, or an unhealthy
    /// collector.
    Done(ExitCode),
}

/// Parses the arguments (the program's name first), runs the sub-commands that need no service, and
/// returns the remaining action.
pub fn parse_and_dispatch<I>(arguments: I) -> Invocation
where
    I: IntoIterator,
    I::Item: Into<OsString> + Clone,
{
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(BAD_USAGE);
            // Help and version go to stdout, errors to stderr. A closed stream loses nothing of
            // value.
            let _ = error.print();
            return Invocation::Done(ExitCode::from(code));
        }
    };
    match dispatch(arguments) {
        Ok(invocation) => invocation,
        Err(Failure { code, text }) => {
            say(&text);
            Invocation::Done(ExitCode::from(code))
        }
    }
}

/// An early end: the message for stderr and the exit code.
struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    fn usage(text: String) -> Self {
        Failure {
            code: BAD_USAGE,
            text: format!("error: {text}\n"),
        }
    }
}

fn dispatch(arguments: Arguments) -> Result<Invocation, Failure> {
    reject_without_effect(&arguments)?;
    let before = arguments.common;
    let printed = match arguments.command {
        None if arguments.validate => {
            validate(&before)?;
            String::new()
        }
        Some(Command::Validate { common, shape }) => {
            let common = before.and(common);
            if shape.json {
                let (found, is_good) = findings(&common)?;
                return deliver(found.as_bytes(), ExitCode::from(u8::from(!is_good)));
            }
            validate(&common)?;
            String::new()
        }
        None => {
            note_gates(&before)?;
            let drain_timeout = arguments.drain_timeout.unwrap_or(DRAIN_TIMEOUT);
            return Ok(Invocation::Run(ServiceOptions {
                sources: before.sources(),
                strict: before.strict,
                drain_timeout: Duration::from_secs(drain_timeout.into()),
            }));
        }
        Some(Command::Components {
            component,
            markdown,
            shape,
        }) => match (component, markdown) {
            (_, Some(directory)) => components::write(&directory)?,
            (Some(component), None) => components::describe(&component, shape)?,
            (None, None) => components::list(shape)?,
        },
        Some(Command::PrintConfig { common, format }) => {
            let common = before.and(common);
            note_gates(&common)?;
            print(&load(&common.sources(), common.strict)?, format)?
        }
        Some(Command::Schema) => pretty(&crate::app::config::schema())?,
        Some(Command::Health {
            url,
            shape,
            fetching,
        }) => {
            let (answer, code) = health::ask(&url, shape, &fetching)?;
            return deliver(answer.as_bytes(), ExitCode::from(code));
        }
        Some(Command::Top {
            url,
            once,
            shape,
            fetching,
        }) => return top::run(&url, once, shape.json, &fetching),
        Some(Command::Profiles(command)) => {
            let outcome = profiles::run(&command, before.strict);
            let code = ExitCode::from(outcome.code);
            say(&outcome.notes);
            return deliver(&outcome.output, code);
        }
        Some(Command::Symbols(command)) => {
            let outcome = symbols::run(&command);
            say(&outcome.notes);
            return deliver(outcome.output.as_bytes(), ExitCode::from(outcome.code));
        }
        Some(Command::Queue(command)) => {
            let outcome = queue::run(&command, &before.locations);
            say(&outcome.notes);
            return deliver(outcome.output.as_bytes(), ExitCode::from(outcome.code));
        }
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            let mut command = Arguments::command();
            clap_complete::generate(shell, &mut command, "collector", &mut script);
            String::from_utf8_lossy(&script).into_owned()
        }
    };
    deliver(printed.as_bytes(), ExitCode::SUCCESS)
}

/// Refuses options before a sub-command that would ignore them, because the user expects an effect.
fn reject_without_effect(arguments: &Arguments) -> Result<(), Failure> {
    let Some(command) = &arguments.command else {
        return Ok(());
    };
    let common = &arguments.common;
    let reads = matches!(
        command,
        Command::Validate { .. } | Command::PrintConfig { .. }
    );
    let drains = matches!(command, Command::Queue(command) if command.reads_configuration());
    let checks = matches!(command, Command::Profiles(command) if command.is_check());
    for (option, is_given, acts) in [
        (
            "--config",
            !common.locations.config.is_empty(),
            reads || drains,
        ),
        ("--set", !common.locations.set.is_empty(), reads || drains),
        ("--strict", common.strict, reads || checks),
        ("--feature-gates", !common.feature_gates.is_empty(), reads),
        ("--validate", arguments.validate, false),
        ("--drain-timeout", arguments.drain_timeout.is_some(), false),
    ] {
        if is_given && !acts {
            return Err(Failure::usage(format!(
                "{option} has no effect on this sub-command: remove it\n\nFor more information, try '--help'."
            )));
        }
    }
    Ok(())
}

/// Prints notes about feature gates.
fn note_gates(common: &Common) -> Result<(), Failure> {
    for note in gates::check(&common.feature_gates).map_err(Failure::usage)? {
        say(&format!("notice: {note}\n"));
    }
    Ok(())
}

fn validate(common: &Common) -> Result<(), Failure> {
    note_gates(common)?;
    let sources = common.sources();
    require_config(&sources)?;
    load(&sources, common.strict)?;
    Ok(())
}

/// Returns the diagnostics of a configuration as JSON, and whether the configuration is usable.
fn findings(common: &Common) -> Result<(String, bool), Failure> {
    gates::check(&common.feature_gates).map_err(Failure::usage)?;
    let sources = common.sources();
    require_config(&sources)?;
    let loaded = crate::app::config::load(&sources, common.strict);
    let is_good = loaded.config.is_some();
    let found = serde_json::json!({
        "valid": is_good,
        "errors": loaded.report.errors(),
        "warnings": loaded.report.warnings(),
        "findings": loaded.report.to_json(),
    });
    Ok((pretty(&found)?, is_good))
}

fn deliver(printed: &[u8], code: ExitCode) -> Result<Invocation, Failure> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(printed).and_then(|()| stdout.flush());
    match written {
        Ok(()) => Ok(Invocation::Done(code)),
        // `collector schema | head` is not a failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Invocation::Done(code)),
        Err(error) => Err(Failure {
            code: 1,
            text: format!("error: cannot write to stdout: {error}\n"),
        }),
    }
}

fn load(sources: &Sources, strict: bool) -> Result<Config, Failure> {
    let loaded = crate::app::config::load(sources, strict);
    let text = loaded.report.render_for(terminal::has_colours());
    match loaded.config {
        Some(config) => {
            say(&text);
            Ok(config)
        }
        None => Err(Failure { code: 1, text }),
    }
}

fn require_config(sources: &Sources) -> Result<(), Failure> {
    if sources.configs.is_empty() {
        let text = "no configuration given: name a file, as in `collector validate --config=config.yaml`\n\nFor \
                    more information, try '--help'.";
        return Err(Failure::usage(text.to_owned()));
    }
    Ok(())
}

fn print(config: &Config, format: Format) -> Result<String, Failure> {
    let value = config.print();
    match format {
        Format::Yaml => serde_yaml::to_string(&value).map_err(|error| cannot_print(&error)),
        Format::Json => pretty(&value),
    }
}

fn pretty(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|error| cannot_print(&error))
}

fn cannot_print(error: &dyn std::error::Error) -> Failure {
    Failure {
        code: 1,
        text: format!("error: cannot print the result: {error}\n"),
    }
}

/// Replaces control characters in untrusted text for a terminal.
fn printable(text: &str) -> String {
    text.replace(|char: char| char.is_control() && char != '\t', "\u{fffd}")
}

/// Writes to stderr. A closed stream loses nothing of value.
fn say(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
