//! Items in the zone's Parquet files. Finished files are read and removed, so that a long run does
//! not fill the disk.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};

use super::arrivals::Arrivals;

/// Stands for items that no connection delivered.
const NO_CONNECTION: u32 = u32::MAX;

/// Records the items in finished files, and removes the files.
pub fn collect(directory: &Path, arrivals: &Arrivals, began: SystemTime) {
    for path in finished(directory) {
        match read(&path, began) {
            Ok((numbers, at)) => arrivals.arrived_at(&numbers, NO_CONNECTION, at),
            Err(error) => {
                arrivals.defect(format!("{}: {error}", path.display()));
                // Kept for inspection under a name that is not read again.
                let _ = fs::rename(&path, path.with_extension("unreadable"));
                continue;
            }
        }
        let _ = fs::remove_file(&path);
    }
}

fn finished(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("_unfinished") {
            files.extend(finished(&path));
        } else if path.extension().is_some_and(|end| end == "parquet") {
            files.push(path);
        }
    }
    files
}

/// Returns the numbers in a file, and the time at which it was finished, since the beginning of the
/// run.
fn read(path: &Path, began: SystemTime) -> Result<(Vec<u64>, Duration), String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let modified = file.metadata().and_then(|metadata| metadata.modified());
    let at = modified.map(|at| at.duration_since(began).unwrap_or_default());
    let reader = SerializedFileReader::new(file).map_err(|error| error.to_string())?;
    let mut numbers = Vec::new();
    // Stacks are referenced by rows and are not items.
    let is_stacks = path
        .components()
        .any(|part| part.as_os_str().to_string_lossy().contains("stacks"));
    if !is_stacks {
        for row in reader
            .get_row_iter(None)
            .map_err(|error| error.to_string())?
        {
            let row = row.map_err(|error| error.to_string())?;
            let found = number(&row).ok_or_else(|| format!("a row without a number: {row}"))?;
            numbers.push(found);
        }
    }
    Ok((numbers, at.unwrap_or_default()))
}

fn number(row: &Row) -> Option<u64> {
    let column = |name: &str| {
        let mut columns = row.get_column_iter();
        columns
            .find(|(column, _)| *column == name)
            .map(|(_, field)| field)
    };
    match (column("value_int"), column("attribute_test_id")) {
        (Some(Field::Long(value)), _) => u64::try_from(*value).ok(),
        (_, Some(Field::Str(text))) => text.parse().ok(),
        _ => None,
    }
}
