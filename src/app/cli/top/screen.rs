//! Formats a snapshot for a terminal.

use std::fmt::Write as _;

use serde_json::Value;

use crate::app::cli::printable;

/// Size of the terminal in characters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    columns: usize,
    rows: usize,
}

impl Default for Size {
    /// Size without a terminal: lines are not truncated, and no line is omitted.
    fn default() -> Self {
        Size {
            columns: usize::MAX,
            rows: usize::MAX,
        }
    }
}

pub(super) fn size() -> Size {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => Size {
            columns: size.ws_col.into(),
            rows: size.ws_row.into(),
        },
        _ => Size::default(),
    }
}

/// Formats a snapshot, truncated to the size of the terminal.
pub(super) fn render(snapshot: &Value, size: Size) -> String {
    let mut text = header(snapshot);
    text.push('\n');
    text.push_str(&pipelines(snapshot));
    text.push('\n');
    text.push_str(&nodes(snapshot, "receiver"));
    text.push('\n');
    text.push_str(&exporters(snapshot));
    text.push_str(&errors(snapshot));
    text.push_str(&warnings(snapshot));
    let lines = text.lines().take(size.rows.saturating_sub(1));
    let mut fitting = String::new();
    for line in lines {
        fitting.extend(line.chars().take(size.columns));
        fitting.push('\n');
    }
    fitting
}

fn header(snapshot: &Value) -> String {
    let process = &snapshot["process"];
    let uptime = number(&snapshot["time"]) - number(&snapshot["started"]);
    format!(
        "collector {} on {}: {}, up {}, {:.2} cores, {} resident, {} of {} budget, connections: {}\n",
        word(&snapshot["version"]),
        word(&snapshot["host"]),
        word(&snapshot["phase"]),
        duration(uptime / 1000.0),
        number(&process["cores"]),
        bytes(number(&process["resident_bytes"])),
        bytes(number(&process["memory_used_bytes"])),
        bytes(number(&process["memory_limit_bytes"])),
        count(number(&process["open_connections"])),
    )
}

fn pipelines(snapshot: &Value) -> String {
    let mut table = Table::new(&[
        "PIPELINE",
        "items/s",
        "bytes/s",
        "received",
        "forwarded",
        "dropped",
        "refused",
        "in flight",
    ]);
    for pipeline in list(&snapshot["pipelines"]) {
        table.row([
            word(&pipeline["id"]),
            rate(&pipeline["items_per_second"]),
            bytes(number(&pipeline["bytes_per_second"])),
            count(number(&pipeline["received"])),
            count(number(&pipeline["forwarded"])),
            count(dropped(pipeline)),
            count(number(&pipeline["refused"])),
            count(number(&pipeline["in_flight"])),
        ]);
    }
    table.render()
}

fn nodes(snapshot: &Value, kind: &str) -> String {
    let mut table = Table::new(&["RECEIVER", "items/s", "bytes/s", "accepted", "refused"]);
    for node in list(&snapshot["nodes"])
        .iter()
        .filter(|node| node["kind"] == kind)
    {
        let sum = |key: &str| {
            list(&node["accounts"])
                .iter()
                .map(|account| number(&account[key]))
                .fold(0.0, |total, count| total + count)
        };
        table.row([
            word(&node["component"]),
            rate(&node["items_per_second"]),
            bytes(number(&node["bytes_per_second"])),
            count(sum("delivered")),
            count(sum("refused")),
        ]);
    }
    table.render()
}

fn exporters(snapshot: &Value) -> String {
    let mut table = Table::new(&[
        "EXPORTER",
        "signal",
        "delivered",
        "dropped",
        "refused",
        "in flight",
        "queue",
        "oldest",
    ]);
    for node in list(&snapshot["nodes"])
        .iter()
        .filter(|node| node["kind"] == "exporter")
    {
        for account in list(&node["accounts"]) {
            let mut queues = list(&node["queues"]).iter();
            let queue = queues.find(|queue| queue["signal"] == account["signal"]);
            table.row([
                word(&node["component"]),
                word(&account["signal"]),
                count(number(&account["delivered"])),
                count(dropped(account)),
                count(number(&account["refused"])),
                count(number(&account["in_flight"])),
                queue.map_or_else(String::new, fill),
                queue
                    .and_then(|queue| queue["oldest_seconds"].as_f64())
                    .map_or_else(String::new, duration),
            ]);
        }
    }
    table.render()
}

/// Returns the exporters that deliver nothing.
fn errors(snapshot: &Value) -> String {
    let mut text = String::new();
    for node in list(&snapshot["nodes"]) {
        let error = &node["last_error"];
        if let Some(failing) = error["failing_seconds"].as_f64() {
            let _ = writeln!(
                text,
                "\n{} ({}) has failed for {}: {}",
                word(&node["component"]),
                word(&error["signal"]),
                duration(failing),
                word(&error["message"]),
            );
        }
    }
    text
}

fn warnings(snapshot: &Value) -> String {
    let mut text = String::new();
    let age =
        |event: &Value| (number(&snapshot["time"]) - number(&event["time"])).max(0.0) / 1000.0;
    for (at, event) in list(&snapshot["events"]).iter().take(5).enumerate() {
        if at == 0 {
            text.push_str("\nLATEST WARNINGS\n");
        }
        let times = match number(&event["count"]) {
            count if count > 1.0 => format!(" ({count} times)"),
            _ => String::new(),
        };
        let _ = writeln!(
            text,
            "{} ago {}{times} {}",
            duration(age(event)),
            word(&event["level"]),
            word(&event["message"])
        );
    }
    text
}

/// Returns the fill of a queue, as in `12% of 512 MiB`.
fn fill(queue: &Value) -> String {
    let (size, capacity) = (number(&queue["size"]), number(&queue["capacity"]));
    let unit = word(&queue["unit"]);
    let total = match unit.as_str() {
        "bytes" => bytes(capacity),
        unit => format!("{} {unit}", count(capacity)),
    };
    match capacity > 0.0 {
        true => format!("{:.0}% of {total}", 100.0 * size / capacity),
        false => String::new(),
    }
}

fn dropped(account: &Value) -> f64 {
    let reasons = account["dropped"].as_object();
    // The sum of no numbers is -0.0.
    let counts = reasons.into_iter().flat_map(|reasons| reasons.values());
    counts.map(number).fold(0.0, |total, count| total + count)
}

/// Columns of text. The first column is aligned to the left, all other columns to the right.
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(head: &[&str]) -> Self {
        Table {
            rows: vec![head.iter().map(|&title| title.to_owned()).collect()],
        }
    }

    fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    fn render(&self) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let _ = match at {
                    0 => write!(line, "{cell:<width$}"),
                    _ => write!(line, "  {cell:>width$}"),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

/// Returns a text without control characters: names and errors come from other machines.
fn word(value: &Value) -> String {
    printable(value.as_str().unwrap_or_default()).replace('\t', " ")
}

fn rate(value: &Value) -> String {
    match number(value) {
        small if small > 0.0 && small < 10.0 => format!("{small:.1}"),
        large => count(large),
    }
}

/// Formats a number with at most four digits: `1234`, `12.3k`, `4.56M`.
fn count(number: f64) -> String {
    scaled(number, 1000.0, &["", "k", "M", "G", "T", "P"])
}

fn bytes(number: f64) -> String {
    scaled(
        number,
        1024.0,
        &[" B", " KiB", " MiB", " GiB", " TiB", " PiB"],
    )
}

fn scaled(mut number: f64, base: f64, units: &[&str]) -> String {
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    let is_whole = number < 10_000.0 && base < 1001.0 || number < base;
    while !is_whole && number >= base {
        let Some(larger) = units.next() else { break };
        number /= base;
        unit = larger;
    }
    match number {
        _ if is_whole => format!("{number:.0}{unit}"),
        number if number < 10.0 => format!("{number:.2}{unit}"),
        number if number < 100.0 => format!("{number:.1}{unit}"),
        number => format!("{number:.0}{unit}"),
    }
}

fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..=9 => format!("{seconds:.1}s"),
        10..=119 => format!("{whole}s"),
        120..=7199 => format!("{}m", whole / 60),
        7200..=172_799 => format!("{}h", whole / 3600),
        _ => format!("{}d", whole / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn snapshot_is_shown_as_tables() {
        let snapshot = json!({
            "time": 100_000, "started": 10_000, "version": "1.2.3", "host": "rack", "phase": "ready",
            "process": {"cores": 0.5, "resident_bytes": 10 << 20, "memory_used_bytes": 0, "memory_limit_bytes": 1 << 30,
                "open_connections": 3},
            "pipelines": [{"id": "traces", "items_per_second": 1.5, "bytes_per_second": 2048, "received": 12_345,
                "forwarded": 12_000, "dropped": {"filtered": 345}, "refused": 0, "in_flight": 0}],
            "nodes": [
                {"kind": "receiver", "component": "otlp", "items_per_second": 0, "bytes_per_second": 0,
                    "accounts": [{"signal": "traces", "delivered": 3, "refused": 1}]},
                {"kind": "exporter", "component": "otlp_grpc", "accounts": [{"signal": "traces", "delivered": 2_500_000,
                    "dropped": {}, "refused": 0, "in_flight": 7}],
                    "queues": [{"signal": "traces", "size": 256, "capacity": 1024, "unit": "bytes", "oldest_seconds": 3.25}],
                    "last_error": {"signal": "traces", "message": "refused\u{1b}[2J", "failing_seconds": 240}}
            ],
            "events": [{"time": 99_000, "level": "warn", "message": "m", "count": 2}]
        });
        let expected = "\
collector 1.2.3 on rack: ready, up 90s, 0.50 cores, 10.0 MiB resident, 0 B of 1.00 GiB budget, connections: 3

PIPELINE  items/s   bytes/s  received  forwarded  dropped  refused  in flight
traces        1.5  2.00 KiB     12.3k      12.0k      345        0          0

RECEIVER  items/s  bytes/s  accepted  refused
otlp            0      0 B         3        1

EXPORTER   signal  delivered  dropped  refused  in flight            queue  oldest
otlp_grpc  traces      2.50M        0        0          7  25% of 1.00 KiB    3.2s

otlp_grpc (traces) has failed for 4m: refused\u{fffd}[2J

LATEST WARNINGS
1.0s ago warn (2 times) m
";
        assert_eq!(render(&snapshot, Size::default()), expected);
        let small = render(
            &snapshot,
            Size {
                columns: 20,
                rows: 4,
            },
        );
        assert_eq!(small.lines().count(), 3);
        assert!(small.lines().all(|line| line.chars().count() <= 20));
    }
}
