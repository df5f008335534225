//! Reference pages as text for a terminal.

use std::fmt::Write;

use super::Page;
use super::keys::Key;
use super::markdown::{default, head};

/// Width of the text, in columns.
const WIDTH: usize = 100;

pub(super) fn render(page: &Page) -> String {
    let mut out = format!("{} {}\n\n", page.kind, page.name);
    wrap(&page.summary, 0, &mut out);
    out.push('\n');
    for line in head(page) {
        wrap(&line, 0, &mut out);
    }
    heading("EXAMPLE", &mut out);
    indented(&page.minimal, &mut out);
    notes(page, &mut out);
    heading("KEYS", &mut out);
    match page.keys.is_empty() {
        true => out.push_str("The component has no keys.\n"),
        false => keys(&page.keys, "", &mut out),
    }
    if !page.metrics.is_empty() {
        heading("METRICS", &mut out);
        for metric in &page.metrics {
            let _ = writeln!(out, "{}  ({})", metric.name, metric.kind);
            wrap(&metric.help, 4, &mut out);
        }
    }
    if !page.full.is_empty() {
        heading("FULL EXAMPLE", &mut out);
        indented(&page.full, &mut out);
    }
    out
}

fn heading(title: &str, out: &mut String) {
    let _ = writeln!(out, "\n{title}\n");
}

fn indented(text: &str, out: &mut String) {
    for line in text.lines() {
        let _ = writeln!(out, "    {line}");
    }
}

fn notes(page: &Page, out: &mut String) {
    for paragraph in page.notes.split("\n\n").filter(|text| !text.is_empty()) {
        out.push('\n');
        match paragraph.strip_prefix("## ") {
            Some(title) => {
                let _ = writeln!(out, "{}", title.to_uppercase());
            }
            None => paragraphs(&without_links(paragraph), out),
        }
    }
    let (own, others) = page.differences();
    if !own.is_empty() {
        let text = format!("Keys that the Collector does not have: {}.", own.join(", "));
        out.push('\n');
        wrap(&text, 0, out);
    }
    if !others.is_empty() {
        out.push_str("\nKeys with a difference from the Collector:\n");
        for (path, note) in others {
            let note = note.trim_matches(['(', ')']);
            wrap(&format!("- {path}: {note}"), 2, out);
        }
    }
}

fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let (words, name) = before.rsplit_once('[').unwrap_or((before, ""));
        out.push_str(words);
        out.push_str(name);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    out + rest
}

/// Appends a paragraph, or the items of a list.
fn paragraphs(text: &str, out: &mut String) {
    let mut current = String::new();
    for line in text.lines() {
        if line.starts_with("- ") && !current.is_empty() {
            wrap(&current, 0, out);
            current.clear();
        }
        current.push_str(line.trim());
        current.push(' ');
    }
    wrap(&current, 0, out);
}

fn keys(keys_: &[Key], path: &str, out: &mut String) {
    for key in keys_ {
        let _ = write!(out, "{path}{}  ({}", key.name, key.kind);
        let default = default(key);
        let _ = match default.as_str() {
            "" => writeln!(out, ")"),
            "required" => writeln!(out, ", required)"),
            default => writeln!(out, ", default: {default})"),
        };
        wrap(&key.description, 4, out);
        if let Some(note) = &key.collector {
            wrap(note, 4, out);
        }
        keys(
            &key.keys,
            &format!("{path}{}{}", key.name, key.shape.separator()),
            out,
        );
    }
}

/// Appends a text in lines of at most [`WIDTH`] columns.
fn wrap(text: &str, indent: usize, out: &mut String) {
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            out.push('\n');
            column = 0;
        }
        match column {
            0 => {
                let _ = write!(out, "{:indent$}", "");
                column = indent;
            }
            _ => {
                out.push(' ');
                column += 1;
            }
        }
        out.push_str(word);
        column += length;
    }
    if column > 0 {
        out.push('\n');
    }
}
