//! Arguments of the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(super) use super::options::{Locations, Shape};
use crate::app::cli::{fetch, profiles, queue, symbols};
use tributary_config::Sources;

/// Receives, processes and exports traces, metrics, logs and profiles.
///
/// Without a sub-command, runs the pipelines of the configuration until a signal ends the process:
/// SIGTERM and SIGINT shut down, SIGHUP reloads the configuration. Without --config, runs the
/// built-in default configuration.
#[derive(Debug, Parser)]
#[command(name = "collector", version)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) common: Common,
    /// Check the configuration and exit without starting anything.
    #[arg(long)]
    pub(super) validate: bool,
    /// Time limit for a shutdown to deliver buffered data, in seconds. Default: 25.
    #[arg(long, value_name = "SECONDS")]
    pub(super) drain_timeout: Option<u32>,
    #[command(subcommand)]
    pub(super) command: Option<Command>,
}

/// Default time limit of a shutdown, in seconds.
pub(super) const DRAIN_TIMEOUT: u32 = 25;

/// Options for loading a configuration.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Common {
    #[command(flatten)]
    pub(super) locations: Locations,
    /// Treat warnings as errors.
    #[arg(long)]
    pub(super) strict: bool,
    /// Feature gates of the OpenTelemetry Collector, comma-separated. The supported features are
    /// always on here.
    #[arg(long, value_name = "GATES", allow_hyphen_values = true)]
    pub(super) feature_gates: Vec<String>,
}

impl Common {
    /// Combines the options before a sub-command with the options after it.
    pub(super) fn and(mut self, behind: Common) -> Common {
        self.locations.config.extend(behind.locations.config);
        self.locations.set.extend(behind.locations.set);
        self.strict |= behind.strict;
        self.feature_gates.extend(behind.feature_gates);
        self
    }

    pub(super) fn sources(&self) -> Sources {
        Sources {
            configs: self.locations.config.clone(),
            sets: self.locations.set.clone(),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Check the configuration. Prints every error with its position; prints nothing if there is
    /// none.
    Validate {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        shape: Shape,
    },
    /// List the built-in components, or describe one: keys, defaults, metrics, differences from the OpenTelemetry
    /// Collector, examples.
    Components {
        /// Component to describe, as in `otlp_http` or, if the name is ambiguous, `exporter/kafka`.
        component: Option<String>,
        /// Write the descriptions of all components to this directory, as Markdown.
        #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["component", "json"])]
        markdown: Option<PathBuf>,
        #[command(flatten)]
        shape: Shape,
    },
    /// Print the effective configuration: merged, expanded, with defaults filled in and secrets
    /// masked.
    #[command(visible_alias = "print-initial-config")]
    PrintConfig {
        #[command(flatten)]
        common: Common,
        /// Output format.
        #[arg(long, value_enum, default_value_t = Format::Yaml)]
        format: Format,
    },
    /// Print the JSON Schema of a configuration file, for editors.
    Schema,
    /// Check the health of a running collector, for images without a shell or curl.
    ///
    /// Prints the response of the collector's health_check extension. Exits with 1 if the collector
    /// is unhealthy or does not respond.
    Health {
        /// URL of the health_check extension.
        #[arg(default_value = "http://localhost:13133/")]
        url: String,
        #[command(flatten)]
        shape: Shape,
        #[command(flatten)]
        fetching: fetch::Fetching,
    },
    /// Show the pipelines of a running collector, its queues, rates and errors, once a second.
    ///
    /// Reads the collector's console extension. Ctrl-C ends.
    Top {
        /// URL of the console extension.
        #[arg(default_value = "http://localhost:55679/")]
        url: String,
        /// Print one snapshot after a second, for scripts. Implied if the output is not a terminal.
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        shape: Shape,
        #[command(flatten)]
        fetching: fetch::Fetching,
    },
    /// Check, convert, merge, show and compare profiles from files and URLs.
    #[command(subcommand)]
    Profiles(Box<profiles::Command>),
    /// Symbolize addresses in binaries: compile symbol files, look up addresses, inspect binaries,
    /// upload symbols.
    #[command(subcommand)]
    Symbols(Box<symbols::Command>),
    /// Inspect, drain and export persistent queues of collectors that are not running.
    #[command(subcommand)]
    Queue(queue::Command),
    /// Print a completion script for a shell.
    Completions {
        /// Shell to complete for.
        shell: clap_complete::Shell,
    },
}

/// Output format of a configuration.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Format {
    Yaml,
    Json,
}
