//! Metrics of the connector.

use metrics::Counter;

pub(super) struct Metrics {
    /// Number of windows closed on time, and early.
    pub(super) in_time: Counter,
    pub(super) early: Counter,
    pub(super) first: Counter,
    pub(super) forgotten: Counter,
}

impl Metrics {
    pub(super) fn new(connector: &str) -> Self {
        let windows = |trigger: &'static str| {
            metrics::counter!(
                "tributary_connector_profile_metrics_windows",
                "connector" => connector.to_owned(),
                "trigger" => trigger
            )
        };
        Metrics {
            in_time: windows("interval"),
            early: windows("memory"),
            first: metrics::counter!(
                "tributary_connector_profile_metrics_first_profiles",
                "connector" => connector.to_owned()
            ),
            forgotten: metrics::counter!(
                "tributary_connector_profile_metrics_forgotten_series",
                "connector" => connector.to_owned()
            ),
        }
    }
}
