//! Destination of files: a directory or an object store.

pub(super) mod directory;
#[cfg(feature = "object-store")]
pub(super) mod store;

use std::io::{self, Write};
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Destination of files.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// A directory of this machine.
    Directory(Arc<directory::Directory>),
    /// A bucket of an object store.
    #[cfg(feature = "object-store")]
    Store(Arc<store::Store>),
    /// A directory whose files panic when they are written to.
    #[cfg(test)]
    Trap(Arc<directory::Directory>),
    /// A directory whose first file is never finished.
    #[cfg(test)]
    Stuck(Arc<directory::Directory>, Arc<AtomicBool>),
}

/// A file that readers do not see yet. Dropping it leaves nothing behind.
pub(super) enum Unfinished {
    /// A file with a temporary name.
    Directory(directory::Unfinished),
    /// An upload, which begins with the first full part.
    #[cfg(feature = "object-store")]
    Store(store::Unfinished),
    /// A file that is never finished.
    #[cfg(test)]
    Stuck(directory::Unfinished),
}

/// The writer of a file.
pub(super) type Out = Box<dyn Write + Send>;

/// Reason why a file could not be written; a retry may succeed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(super) struct PlaceError(pub(super) String);

impl Place {
    /// Begins a file with the final name `path`, relative to the root; returns the file and its
    /// writer. Blocks.
    ///
    /// # Errors
    /// If the file could not be created.
    pub(super) fn begin(&self, path: &str) -> Result<(Unfinished, Out), PlaceError> {
        match self {
            Place::Directory(directory) => {
                let (unfinished, out) = directory.begin(path)?;
                Ok((Unfinished::Directory(unfinished), out))
            }
            #[cfg(feature = "object-store")]
            Place::Store(store) => {
                let (unfinished, out) = store.begin(path)?;
                Ok((Unfinished::Store(unfinished), out))
            }
            #[cfg(test)]
            Place::Trap(directory) => {
                let (unfinished, _) = directory.begin(path)?;
                Ok((Unfinished::Directory(unfinished), Box::new(Trap::default())))
            }
            #[cfg(test)]
            Place::Stuck(directory, was_first) => {
                let (unfinished, out) = directory.begin(path)?;
                let unfinished = match was_first.swap(true, Relaxed) {
                    true => Unfinished::Directory(unfinished),
                    false => Unfinished::Stuck(unfinished),
                };
                Ok((unfinished, out))
            }
        }
    }
}

impl Unfinished {
    /// Passes on written data as far as possible.
    pub(super) async fn advance(&mut self) -> Result<(), PlaceError> {
        match self {
            Unfinished::Directory(_) => Ok(()),
            #[cfg(test)]
            Unfinished::Stuck(_) => Ok(()),
            #[cfg(feature = "object-store")]
            Unfinished::Store(upload) => upload.advance().await,
        }
    }

    /// Gives a completely written file its name. Returns the size.
    ///
    /// # Errors
    /// If the file could not be finished. The file then does not exist, as far as can be
    /// determined.
    pub(super) async fn finish(self) -> Result<u64, PlaceError> {
        match self {
            Unfinished::Directory(file) => tokio::task::spawn_blocking(move || file.finish())
                .await
                .map_err(|error| PlaceError(error.to_string()))?,
            #[cfg(feature = "object-store")]
            Unfinished::Store(upload) => upload.finish().await,
            #[cfg(test)]
            Unfinished::Stuck(file) => {
                let _file = file;
                std::future::pending().await
            }
        }
    }
}

/// Panics at the first write. Later writes fail, because a buffer on top of the trap tries again
/// when it is dropped.
#[cfg(test)]
#[derive(Default)]
struct Trap {
    sprung: bool,
}

#[cfg(test)]
impl Write for Trap {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        if std::mem::replace(&mut self.sprung, true) {
            return Err(io::Error::other("written to again"));
        }
        panic!("written to")
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl PlaceError {
    /// Describes a failed operation on a path.
    fn io(what: &str, path: &std::path::Path, error: &io::Error) -> Self {
        PlaceError(format!("cannot {what} {}: {error}", path.display()))
    }
}
