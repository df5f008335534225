//! Fuzz target for the output of the `debug` exporter.

use tributary_otlp::Decoded;
use tributary::fuzzing::exporters::printed;

use crate::oracle;
use crate::telemetry::request;

/// Telemetry cannot forge output: the output has no control characters, one line for each item, and
/// no additional line that looks like a heading.
pub fn debug(input: &[u8]) {
    let (signal, request, _) = request(input);
    let decoded = Decoded::decode(signal, &request).unwrap();
    let [normal, detailed] = printed(&decoded);
    for text in [&normal, &detailed] {
        let control = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(control, None, "{text}");
    }
    let Heads {
        resources,
        scopes,
        entries,
        lines,
    } = Heads::of(&decoded);
    assert_eq!(normal.lines().count(), resources + scopes + lines);
    let [resource, scope, entry] = match &decoded {
        Decoded::Traces(_) => ["ResourceSpans #", "ScopeSpans #", "Span #"],
        Decoded::Metrics(_) => ["ResourceMetrics #", "ScopeMetrics #", "Metric #"],
        Decoded::Logs(_) => ["ResourceLog #", "ScopeLogs #", "LogRecord #"],
        Decoded::Profiles(_) => ["ResourceProfiles #", "ScopeProfiles #", "Profile #"],
    };
    for (head, expected) in [(resource, resources), (scope, scopes), (entry, entries)] {
        let found = detailed.lines().filter(|line| line.starts_with(head));
        assert_eq!(found.count(), expected, "{head} {detailed}");
    }
}

/// Number of items to print.
#[derive(Default)]
struct Heads {
    resources: usize,
    scopes: usize,
    /// Spans, metrics, log records or profiles.
    entries: usize,
    /// Lines below the scopes in verbosity `normal`: one for each entry, or for each data point of
    /// a metric with data.
    lines: usize,
}

impl Heads {
    fn of(decoded: &Decoded) -> Self {
        let mut heads = Heads::default();
        macro_rules! count {
            ($request:expr, $resources:ident, $scopes:ident, $entries:ident) => {
                for resource in &$request.$resources {
                    heads.resources += 1;
                    for scope in &resource.$scopes {
                        heads.scopes += 1;
                        heads.entries += scope.$entries.len();
                    }
                }
            };
        }
        match decoded {
            Decoded::Traces(request) => count!(request, resource_spans, scope_spans, spans),
            Decoded::Logs(request) => count!(request, resource_logs, scope_logs, log_records),
            Decoded::Profiles(request) => {
                count!(request, resource_profiles, scope_profiles, profiles);
            }
            Decoded::Metrics(request) => {
                count!(request, resource_metrics, scope_metrics, metrics);
                let metrics = request.resource_metrics.iter();
                let metrics = metrics.flat_map(|resource| &resource.scope_metrics);
                let metrics = metrics.flat_map(|scope| &scope.metrics);
                let without_data = metrics.filter(|metric| metric.data.is_none()).count();
                heads.lines = oracle::items(decoded) + without_data;
                return heads;
            }
        }
        heads.lines = heads.entries;
        heads
    }
}
