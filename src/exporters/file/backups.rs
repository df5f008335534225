//! Backups: the names of renamed files, and the deletion of old files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::config::FileRotation;

/// Format of the time in names, as in the Collector. Times with more or fewer decimals are read too.
const FORMAT: &str = "%Y-%m-%dT%H-%M-%S%.3f";
const HOURS_PER_DAY: i64 = 24;

/// Renames the file to a name with the current time. Never overwrites a file.
pub(super) fn set_aside(path: &Path, localtime: bool) -> io::Result<PathBuf> {
    let mut time = Timestamp::now();
    loop {
        let name = backup_name(path, time, localtime);
        // A file that another program creates between the two calls would be lost, which is very unlikely.
        if !name.try_exists()? {
            fs::rename(path, &name)?;
            return Ok(name);
        }
        time = time
            .checked_add(SignedDuration::from_millis(1))
            .map_err(io::Error::other)?;
    }
}

/// Deletes old files beyond the maximum number or age. Returns the number of deleted files.
///
/// # Errors
///
/// The last error, if some files could not be deleted. All other files are deleted.
pub(super) fn prune(path: &Path, rotation: &FileRotation) -> io::Result<usize> {
    let (stem, extension) = split_extension(path);
    let mut backups = Vec::new();
    for entry in fs::read_dir(directory(path))? {
        let entry = entry?;
        let name = entry.file_name();
        let time = name
            .to_str()
            .and_then(|name| name.strip_prefix(&stem)?.strip_prefix('-'))
            .and_then(|name| name.strip_suffix(&extension))
            .and_then(|time| parse_time(time, rotation.localtime));
        backups.extend(time.map(|time| (time, entry.path())));
    }
    backups.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    let expiry = i64::try_from(rotation.max_days)
        .ok()
        .filter(|days| *days > 0)
        .and_then(|days| days.checked_mul(HOURS_PER_DAY))
        .and_then(|hours| {
            let age = SignedDuration::try_from_hours(hours)?;
            Timestamp::now().checked_sub(age).ok()
        });
    let (mut deleted, mut outcome) = (0, Ok(()));
    for (at, (time, path)) in backups.iter().enumerate() {
        let exceeds_maximum = rotation.max_backups > 0 && at >= rotation.max_backups;
        if exceeds_maximum || expiry.is_some_and(|expiry| *time < expiry) {
            match fs::remove_file(path) {
                Ok(()) => deleted += 1,
                // Another process already deleted the file.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => outcome = Err(error),
            }
        }
    }
    outcome.map(|()| deleted)
}

fn zone(localtime: bool) -> TimeZone {
    match localtime {
        true => TimeZone::system(),
        false => TimeZone::UTC,
    }
}

fn backup_name(path: &Path, time: Timestamp, localtime: bool) -> PathBuf {
    let (stem, extension) = split_extension(path);
    let time = time.to_zoned(zone(localtime));
    path.with_file_name(format!("{stem}-{}{extension}", time.strftime(FORMAT)))
}

fn parse_time(text: &str, localtime: bool) -> Option<Timestamp> {
    let time = DateTime::strptime("%Y-%m-%dT%H-%M-%S%.f", text).ok()?;
    Some(time.to_zoned(zone(localtime)).ok()?.timestamp())
}

/// Splits a name into the name without its extension, and the extension with its dot.
fn split_extension(path: &Path) -> (String, String) {
    let text =
        |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
    let extension = text(path.extension()).map_or_else(String::new, |text| format!(".{text}"));
    (text(path.file_stem()).unwrap_or_default(), extension)
}

pub(super) fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn names(directory: &TempDir) -> Vec<String> {
        let entries = fs::read_dir(directory.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn backup_name_has_time_before_extension() {
        let time: Timestamp = "2022-09-14T05:02:14.173Z".parse().unwrap();
        let named = |path: &str| {
            backup_name(Path::new(path), time, false)
                .display()
                .to_string()
        };
        assert_eq!(named("a/data.json"), "a/data-2022-09-14T05-02-14.173.json");
        assert_eq!(named("data"), "data-2022-09-14T05-02-14.173");
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("data.json");
        for text in ["1", "2", "3"] {
            fs::write(&path, text).unwrap();
            set_aside(&path, false).unwrap();
        }
        assert_eq!(names(&directory).len(), 3);
    }

    #[test]
    fn newest_backups_are_kept_and_other_files_untouched() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("data.json");
        let now = Timestamp::now();
        let day = SignedDuration::from_hours(24);
        for ago in 0..5 {
            fs::write(backup_name(&path, now - day * ago, false), "x").unwrap();
        }
        for other in [
            "data.json",
            "data-old.json",
            "data-2022-09-14T05-02-14.173.txt",
        ] {
            fs::write(directory.path().join(other), "x").unwrap();
        }
        let rotation = |max_backups, max_days| FileRotation {
            max_backups,
            max_days,
            ..FileRotation::default()
        };
        assert_eq!(prune(&path, &rotation(0, 0)).unwrap(), 0);
        assert_eq!(prune(&path, &rotation(4, 0)).unwrap(), 1);
        assert_eq!(prune(&path, &rotation(4, 2)).unwrap(), 2);
        assert_eq!(names(&directory).len(), 2 + 3);
    }

    #[test]
    fn undeletable_backup_does_not_block_deletion_of_others() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("data.json");
        let long_ago = |days: i64| Timestamp::now() - SignedDuration::from_hours(24 * days);
        fs::create_dir(backup_name(&path, long_ago(10), false)).unwrap();
        fs::write(backup_name(&path, long_ago(20), false), "x").unwrap();
        let rotation = FileRotation {
            max_days: 5,
            ..FileRotation::default()
        };
        prune(&path, &rotation).unwrap_err();
        assert_eq!(names(&directory).len(), 1);
    }
}
