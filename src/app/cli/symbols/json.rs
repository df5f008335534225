//! JSON output of `collector symbols`.

use std::path::Path;

use serde_json::{Value, json};

use super::{Companions, Done, compiled};
use tributary_symbols::{BuildId, CompileSummary, NameSource, SymbolFile, SymbolFileError};

fn pretty(value: &Value) -> Done {
    let text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
    Ok(text + "\n")
}

/// Returns the frames of each address, innermost first; no frames for an unknown address.
pub(super) fn lookup(symbols: &SymbolFile, addresses: &[u64]) -> Done {
    let (mut cursor, mut names) = (symbols.cursor(), symbols.names());
    let mut found = Vec::new();
    for address in addresses {
        let mut frames = Vec::new();
        for frame in cursor.frames(*address) {
            let Some(function) = names.of(frame.function) else {
                break;
            };
            frames.push(json!({
                "function": function.name,
                "file": function.file,
                "line": frame.line,
                "column": frame.column,
                "inlined": frame.inlined,
            }));
        }
        found.push(json!({"address": format!("{address:#x}"), "frames": frames}));
    }
    pretty(&Value::from(found))
}

pub(super) fn inspect(path: &Path, companions: &Companions) -> Done {
    let failed = |error: SymbolFileError| format!("{}: {error}", path.display());
    match SymbolFile::open(path) {
        Ok(file) => {
            file.verify()
                .map_err(|error| format!("{}: {error}", path.display()))?;
            return pretty(&json!({
                "kind": "symbol file",
                "bytes": file.bytes(),
                "build_id": file.build_id().map(BuildId::to_string),
                "ranges": file.ranges(),
            }));
        }
        Err(SymbolFileError::NotSymbolFile) => {}
        Err(error) => return Err(failed(error)),
    }
    let found = tributary_symbols::inspect(path).map_err(|error| error.about(path))?;
    let sections = found.sections.iter();
    let sections = sections.map(|(name, bytes)| json!({"name": name, "bytes": bytes}));
    let path_text = |path: &std::path::PathBuf| path.to_string_lossy().into_owned();
    let compiled = match compiled(path, companions) {
        Ok((_, summary)) => coverage(&summary),
        Err(error) => json!({"error": error}),
    };
    pretty(&json!({
        "kind": if found.is_debug_file { "debug file" } else { "binary" },
        "machine": found.machine,
        "build_id": found.build_id.as_ref().map(BuildId::to_string),
        "go_build_id": found.go_build_id,
        "sections": sections.collect::<Vec<_>>(),
        "debug_file": found.debug_link.as_ref().map(path_text),
        "supplementary_file": found.alternative_link.as_ref().map(path_text),
        "split_units": found.units.len(),
        "symbols": compiled,
    }))
}

/// Returns the number of code bytes with symbols, by source of the symbols.
fn coverage(summary: &CompileSummary) -> Value {
    let covered = NameSource::ALL.into_iter().zip(summary.covered);
    let covered: serde_json::Map<String, Value> = covered
        .map(|(source, bytes)| (source.name().to_owned(), bytes.into()))
        .collect();
    json!({
        "bytes": summary.bytes,
        "code_bytes": summary.code,
        "covered_bytes": covered,
        "damaged_units": summary.damaged_units,
        "missing_units": summary.missing_units,
    })
}
