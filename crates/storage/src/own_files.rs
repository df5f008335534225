//! Creates files and directories that only this process should choose.
//!
//! In a directory such as `/tmp` every user may create entries, and the sticky bit keeps other users from removing
//! them. Another user can create the name of an expected file first: as a symbolic link, to have another file of this
//! user overwritten; or as a file or directory of their own, to read its content. Linux prevents some of these attacks,
//! if the settings `fs.protected_symlinks` and `fs.protected_regular` are on.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;

/// Opens a file that this process writes, and creates the file if `options` say so. In a shared directory symbolic
/// links are not followed. Replaces the `custom_flags` of `options`.
///
/// # Errors
/// Fails if the file cannot be opened, if it is a symbolic link in a shared directory, or if a part of its path in a
/// shared directory belongs to another user.
pub fn open(options: &OpenOptions, path: &Path) -> io::Result<File> {
    open_as(geteuid().as_raw(), options, path)
}

/// Creates a directory and its parents for files that this process writes.
///
/// # Errors
/// Fails if the directory cannot be created, or if a part of the path in a shared directory belongs to another user.
pub fn create_directories(path: &Path, mode: u32) -> io::Result<()> {
    check(path)?;
    DirBuilder::new().recursive(true).mode(mode).create(path)?;
    // Another user may have created a part of the path in the meantime.
    check(path)
}

/// Checks that no part of a path is in a shared directory and belongs to another user. Missing
/// parts are not an error.
///
/// # Errors
/// Fails if another user owns a part, or if a directory cannot be read.
pub fn check(path: &Path) -> io::Result<()> {
    check_as(geteuid().as_raw(), path)
}

fn open_as(user: u32, options: &OpenOptions, path: &Path) -> io::Result<File> {
    check_as(user, path)?;
    if !is_shared(directory_of(path))? {
        return options.open(path);
    }
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let opened = options.clone().custom_flags(flags).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::LOOP.raw_os_error() => refused(path, "is a symbolic link"),
        _ => error,
    })?;
    // The file may be newer than the check above.
    match is_foreign(user, file.metadata()?.uid()) {
        true => Err(refused(path, "belongs to another user")),
        false => Ok(file),
    }
}

fn check_as(user: u32, path: &Path) -> io::Result<()> {
    check_parts(user, path)?;
    // A symbolic link elsewhere may lead into a shared directory.
    match directory_of(path).canonicalize() {
        Ok(directory) => check_parts(user, &directory),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn check_parts(user: u32, path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    let mut parts: Vec<&Path> = path.ancestors().collect();
    parts.reverse();
    for pair in parts.windows(2) {
        let [directory, part] = pair else {
            continue;
        };
        if !is_shared(directory)? {
            continue;
        }
        match fs::symlink_metadata(part) {
            Ok(metadata) if is_foreign(user, metadata.uid()) => {
                return Err(refused(part, "belongs to another user"));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether a user is neither the current user nor root.
fn is_foreign(user: u32, owner: u32) -> bool {
    owner != user && owner != 0
}

/// Whether every user may create entries in a directory, and remove only their own entries. A missing directory is not
/// shared.
fn is_shared(directory: &Path) -> io::Result<bool> {
    /// The sticky bit, and write permission for all users.
    const SHARED: u32 = 0o1002;
    match fs::metadata(directory) {
        Ok(metadata) => Ok(metadata.mode() & SHARED == SHARED),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The directory of a file. A bare name is in the current directory.
fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn refused(path: &Path, why: &str) -> io::Error {
    let text = format!(
        "{} {why}, and every user may create files in {}; use a directory of your own",
        path.display(),
        directory_of(path).display()
    );
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use tempfile::TempDir;

    use super::*;

    fn shared() -> TempDir {
        let directory = TempDir::new().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).unwrap();
        directory
    }

    fn appending() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        options
    }

    #[test]
    fn symbolic_link_in_a_shared_directory_is_not_followed() {
        let directory = shared();
        let (target, link) = (
            directory.path().join("target"),
            directory.path().join("link"),
        );
        fs::write(&target, "precious").unwrap();
        symlink(&target, &link).unwrap();
        let error = open(&appending(), &link).unwrap_err().to_string();
        assert!(error.contains("is a symbolic link"), "{error}");
        // Dangling links would create their target.
        fs::remove_file(&target).unwrap();
        open(&appending(), &link).unwrap_err();
        assert!(!target.exists());
    }

    #[test]
    fn symbolic_link_elsewhere_is_followed() {
        let directory = TempDir::new().unwrap();
        let (target, link) = (
            directory.path().join("target"),
            directory.path().join("link"),
        );
        symlink(&target, &link).unwrap();
        open(&appending(), &link).unwrap();
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn own_file_in_shared_directory_is_opened() {
        let directory = shared();
        let path = directory.path().join("log");
        for _ in 0..2 {
            open(&appending(), &path).unwrap();
        }
        create_directories(&directory.path().join("a/b"), 0o700).unwrap();
        open(&appending(), &directory.path().join("a/b/log")).unwrap();
    }

    #[test]
    fn foreign_file_in_shared_directory_is_refused() {
        let directory = shared();
        let path = directory.path().join("log");
        fs::write(&path, "").unwrap();
        let below = directory.path().join("a");
        fs::create_dir(&below).unwrap();
        // Every user trusts files of root.
        let (owner, user) = (54_321, 12_345);
        if geteuid().is_root() {
            for path in [&path, &below] {
                chown(path, Some(owner), None).unwrap();
            }
        }
        for path in [&path, &below.join("log"), &below.join("b/c/log")] {
            let error = open_as(user, &appending(), path).unwrap_err().to_string();
            assert!(error.contains("belongs to another user"), "{error}");
        }
        let elsewhere = TempDir::new().unwrap();
        let link = elsewhere.path().join("link");
        symlink(&below, &link).unwrap();
        open_as(user, &appending(), &link.join("log")).unwrap_err();
    }
}
