//! Arguments that several commands share.

use clap::Args;

/// Location of the configuration. Every sub-command that reads a configuration accepts these
/// options before and after its name.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Locations {
    /// Location of the configuration: a path, `file:PATH`, `env:NAME` or `yaml:TEXT`. May be given
    /// several times; later configurations override earlier ones.
    #[arg(long, value_name = "LOCATION")]
    pub(super) config: Vec<String>,
    /// A single value that overrides all files, such as `service.telemetry.logs.level=debug`. May
    /// be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,
}

/// Output format of a result.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(super) struct Shape {
    /// Print JSON, for scripts.
    #[arg(long)]
    pub(super) json: bool,
}
