//! Reads Parquet files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;

/// The files below a directory.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let files = entries
        .map(|entry| entry.unwrap().path())
        .flat_map(|path| match path.is_dir() {
            true => files(&path),
            false => vec![path],
        });
    files
        .filter(|path| path.extension().is_some_and(|found| found == "parquet"))
        .collect()
}

/// Counts the texts in a column of the files below a directory.
///
/// # Panics
/// If a file lacks the column, or a row has no text in it.
pub fn texts(directory: &Path, column: &str) -> BTreeMap<String, usize> {
    let mut texts = BTreeMap::new();
    for path in files(directory) {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let mut columns = row.get_column_iter();
            match columns.find(|(name, _)| *name == column).unwrap().1 {
                Field::Str(text) => *texts.entry(text.clone()).or_default() += 1,
                other => panic!("not a text: {other:?}"),
            }
        }
    }
    texts
}
