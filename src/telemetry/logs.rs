//! The collector's own logs, in the Collector's formats: tab-separated console lines, or JSON.

pub(crate) mod export;
mod fields;
mod outputs;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use self::export::{LogQueue, LogSender};
use self::fields::Fields;
use self::outputs::Outputs;
use crate::component::identity::resource;
use crate::introspection::warnings::RecentWarnings;
use crate::telemetry::config::{LogEncoding, LogLevel, Sampling, TelemetryConfig};
use crate::telemetry::terminal;

/// Handle that changes the logging of the process after a reload.
pub struct LogHandle {
    style: Current,
    /// Queues of lines for export whose consumers have not taken them yet.
    queues: Mutex<Vec<LogQueue>>,
}

/// Current logging settings, read for every line: a layer with a filter cannot be exchanged once it
/// is installed.
type Current = Arc<ArcSwap<Style>>;

/// Logging settings of the configuration.
#[derive(Clone)]
struct Style {
    outputs: Outputs,
    json: bool,
    initial: Map<String, Value>,
    /// Process attributes of every JSON line.
    resource: Option<Value>,
    /// Whether JSON lines contain their source location.
    has_caller: bool,
    has_colours: bool,
    threshold: Level,
    sampling: Option<Sampling>,
    /// Queues for the export of lines.
    export: Vec<LogSender>,
}

impl LogHandle {
    /// Installs the logger. Call it once; a process that already has a logger keeps it. Warnings and errors are also
    /// added to `warnings`.
    ///
    /// # Errors
    /// Returns an error that names the file if a file of `output_paths` cannot be opened.
    pub fn install(
        config: &TelemetryConfig,
        warnings: Arc<RecentWarnings>,
    ) -> io::Result<LogHandle> {
        let (style, queues) = Style::new(config)?;
        let style = Arc::new(ArcSwap::from_pointee(style));
        let subscriber = tracing_subscriber::registry().with(layer(style.clone(), warnings));
        let _ = tracing::subscriber::set_global_default(subscriber);
        Ok(LogHandle {
            style,
            queues: Mutex::new(queues),
        })
    }

    /// Whether lines are JSON objects.
    pub fn is_json(&self) -> bool {
        self.style.load().json
    }

    /// Applies the logging settings of `config`.
    ///
    /// # Errors
    /// Returns an error if a file of `output_paths` cannot be opened; the settings do not change.
    pub fn apply(&self, config: &TelemetryConfig) -> io::Result<()> {
        let (style, queues) = Style::new(config)?;
        self.style.store(Arc::new(style));
        *self.queues.lock() = queues;
        Ok(())
    }

    /// Returns the queues of lines for export, once after each change of the settings.
    pub(crate) fn take_queues(&self) -> Vec<LogQueue> {
        std::mem::take(&mut *self.queues.lock())
    }

    /// Ends the queues of lines for export: later lines are not exported.
    pub(crate) fn end_export(&self) {
        let style = self.style.load_full();
        self.style.store(Arc::new(Style {
            export: Vec::new(),
            ..(*style).clone()
        }));
    }
}

impl Style {
    fn new(telemetry: &TelemetryConfig) -> io::Result<(Style, Vec<LogQueue>)> {
        let config = &telemetry.logs;
        let (export, queues) = export::queues(&config.processors);
        let attributes = || {
            let attributes = resource(&telemetry.resource).into_iter();
            attributes.map(|(key, value)| (key, value.into())).collect()
        };
        let style = Style {
            outputs: Outputs::open(&config.output_paths)?,
            json: config.encoding == LogEncoding::Json,
            resource: (config.disable_zap_resource != Some(true))
                .then(|| Value::Object(attributes())),
            has_caller: config.disable_caller != Some(true),
            has_colours: config.output_paths == ["stderr"] && terminal::has_colours(),
            initial: config
                .initial_fields
                .iter()
                .map(|(key, value)| (key.clone(), value.clone().into()))
                .collect(),
            threshold: match config.level {
                LogLevel::Debug => Level::DEBUG,
                LogLevel::Info => Level::INFO,
                LogLevel::Warn => Level::WARN,
                LogLevel::Error => Level::ERROR,
            },
            sampling: config.sampling.clone(),
            export,
        };
        Ok((style, queues))
    }
}

fn layer<S>(style: Current, warnings: Arc<RecentWarnings>) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let filter = Threshold {
        style: style.clone(),
        seen: Mutex::default(),
    };
    let writer = style.clone();
    tracing_subscriber::fmt::layer()
        .with_writer(move || writer.load().outputs.clone())
        .event_format(Shape { style, warnings })
        .with_filter(filter)
}

/// Drops lines below the level, and repeated lines.
struct Threshold {
    style: Current,
    seen: Mutex<HashMap<Identifier, (Instant, u64)>>,
}

/// The user asked for the output of the `debug` exporter, and the exporter has its own sampling.
const NEVER_SAMPLED: &str = "tributary::exporters::debug";

impl<S> Filter<S> for Threshold {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        // Libraries have nothing to tell an operator unless something is wrong.
        let worth_it = is_ours(metadata) || *metadata.level() <= Level::WARN;
        worth_it && *metadata.level() <= self.style.load().threshold
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if metadata.target().starts_with(NEVER_SAMPLED) {
            return true;
        }
        let style = self.style.load();
        let configured = style.sampling.as_ref();
        let configured = configured.filter(|sampling| sampling.enabled);
        let sampling = match configured {
            // Clients can cause unlimited repetitions in libraries.
            _ if !is_ours(metadata) => &OF_LIBRARIES,
            Some(sampling) => sampling,
            None if *metadata.level() >= Level::DEBUG => return true,
            None => &OF_OURS,
        };
        let mut seen = self.seen.lock();
        let now = Instant::now();
        let (since, count) = seen.entry(metadata.callsite()).or_insert((now, 0));
        if now.duration_since(*since) >= *sampling.tick {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        let beyond = count.saturating_sub(sampling.initial);
        beyond == 0 || (sampling.thereafter > 0 && beyond.is_multiple_of(sampling.thereafter))
    }
}

fn is_ours(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("tributary")
}

/// Sampling of lines from one call site in a library.
const OF_LIBRARIES: Sampling = Sampling {
    enabled: true,
    tick: WINDOW,
    initial: 10,
    thereafter: 0,
};
/// Sampling of lines from one call site of the collector, above the level `debug`. Call sites limit
/// themselves; this bounds the disk usage of one that does not.
const OF_OURS: Sampling = Sampling {
    enabled: true,
    tick: WINDOW,
    initial: 1000,
    thereafter: 0,
};
const WINDOW: tributary_config::units::Duration = tributary_config::units::Duration::secs(10);

/// Format of lines.
struct Shape {
    style: Current,
    warnings: Arc<RecentWarnings>,
}

impl<S, N> FormatEvent<S, N> for Shape
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let style = self.style.load();
        let mut fields = Fields {
            message: String::new(),
            rest: style.initial.clone(),
        };
        event.record(&mut fields);
        if *event.metadata().level() <= Level::WARN {
            let is_error = *event.metadata().level() == Level::ERROR;
            self.warnings.add(is_error, fields.in_one_line());
        }
        if !style.export.is_empty() && export::is_exported(event.metadata()) {
            let record = export::record(*event.metadata().level(), &fields);
            for (sender, record) in style.export.iter().zip(record.into_iter().cycle()) {
                sender.send(record);
            }
        }
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        };
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        if style.json {
            let mut line = Map::new();
            line.insert("level".to_owned(), level.into());
            line.insert("ts".to_owned(), time.into());
            let caller = caller(event.metadata()).filter(|_| style.has_caller);
            if let Some(caller) = caller {
                line.insert("caller".to_owned(), caller.into());
            }
            line.insert("msg".to_owned(), fields.message.into());
            if let Some(resource) = &style.resource {
                line.insert("resource".to_owned(), resource.clone());
            }
            line.append(&mut fields.rest);
            return writeln!(writer, "{}", Value::Object(line));
        }
        // Red, yellow and blue, as in zap.
        let colour = match *event.metadata().level() {
            Level::ERROR => "31",
            Level::WARN => "33",
            _ => "34",
        };
        let level = match style.has_colours {
            true => format!("\x1b[{colour}m{level}\x1b[0m"),
            false => level.to_owned(),
        };
        write!(writer, "{time}\t{level}\t{}", fields.message)?;
        if !fields.rest.is_empty() {
            write!(writer, "\t{}", Value::Object(fields.rest))?;
        }
        writeln!(writer)
    }
}

/// Returns the source location of a line, as in `queue/delivery.rs:93`.
fn caller(metadata: &Metadata<'_>) -> Option<String> {
    let file = metadata.file()?;
    let file = file.rsplit_once("src/").map_or(file, |(_, file)| file);
    Some(format!("{file}:{}", metadata.line()?))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::telemetry::config::LogsConfig;

    /// Returns the number of lines written by `lines` calls of `log`.
    fn written(lines: usize, log: impl Fn()) -> usize {
        let file = tempfile::NamedTempFile::new().unwrap();
        let logs = LogsConfig {
            output_paths: vec![file.path().to_str().unwrap().to_owned()],
            ..LogsConfig::default()
        };
        let config = TelemetryConfig {
            logs,
            ..TelemetryConfig::default()
        };
        let style = Arc::new(ArcSwap::from_pointee(Style::new(&config).unwrap().0));
        let subscriber = tracing_subscriber::registry().with(layer(style, Arc::default()));
        tracing::subscriber::with_default(subscriber, || (0..lines).for_each(|_| log()));
        std::fs::read_to_string(file.path())
            .unwrap()
            .lines()
            .count()
    }

    #[test]
    fn lines_of_libraries_are_sampled() {
        let flood = || tracing::warn!(target: "h2::proto::ping_pong", "recv PING ack");
        assert_eq!(written(5000, flood), 10);
        assert_eq!(written(5000, || tracing::warn!("ours")), 1000);
    }

    #[test]
    fn log_file_is_private_to_the_user() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        Outputs::open(&[path.to_str().unwrap().to_owned()]).unwrap();
        let mode = std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o137, 0, "{mode:o}");
    }

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the line for an event with the given configuration.
    fn line(yaml: &str) -> Value {
        let config: TelemetryConfig = serde_yaml::from_str(yaml).unwrap();
        let style = Arc::new(ArcSwap::from_pointee(Style::new(&config).unwrap().0));
        let captured = Captured::default();
        let writer = captured.clone();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(move || writer.clone())
            .event_format(Shape {
                style,
                warnings: Arc::default(),
            });
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || tracing::info!(answer = 42, "hello"));
        let bytes = captured.0.lock();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn warnings_are_kept_with_component_and_fields() {
        let style = Style::new(&TelemetryConfig::default()).unwrap().0;
        let warnings = Arc::new(RecentWarnings::default());
        let shape = Shape {
            style: Arc::new(ArcSwap::from_pointee(style)),
            warnings: warnings.clone(),
        };
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(io::sink)
            .event_format(shape);
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!("not kept");
            tracing::warn!(
                otelcol.component.kind = "exporter",
                otelcol.component.id = "otlp",
                items = 3,
                suppressed = 0,
                "Failed."
            );
        });
        let latest = warnings.latest();
        assert_eq!(latest.len(), 1);
        assert_eq!(latest[0].text, "exporter otlp: Failed. items=3");
    }

    #[test]
    fn json_line_has_resource_and_caller_unless_disabled() {
        let all = line("{logs: {encoding: json}, resource: {service.name: shop}}");
        assert_eq!(all["resource"]["service.name"], "shop");
        assert!(all["resource"]["service.instance.id"].is_string());
        let caller = all["caller"].as_str().unwrap();
        assert!(caller.starts_with("telemetry/logs.rs:"), "{caller}");
        assert_eq!((&all["msg"], &all["answer"]), (&"hello".into(), &42.into()));
        let less = "{logs: {encoding: json, disable_caller: true, disable_zap_resource: true}}";
        let less = line(less);
        assert!(
            less["resource"].is_null() && less["caller"].is_null(),
            "{less}"
        );
    }
}
