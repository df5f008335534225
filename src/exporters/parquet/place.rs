//! Where files go: a directory or an object store.

pub(super) mod directory;
#[cfg(feature = "object-store")]
pub(super) mod store;

use std::io::{self, Write};
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Where files go.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// A directory of this machine.
    Directory(Arc<directory::Directory>),
    /// A bucket.
    #[cfg(feature = "object-store")]
    Store(Arc<store::Store>),
    /// A directory; who writes to its files panics.
    #[cfg(test)]
    Trap(Arc<directory::Directory>),
    /// A directory; the first file is never finished.
    #[cfg(test)]
    Stuck(Arc<directory::Directory>, Arc<AtomicBool>),
}

/// A file that nobody sees yet. Dropping it leaves nothing behind.
pub(super) enum Unfinished {
    /// A file of another name.
    Directory(directory::Unfinished),
    /// An upload that has begun, or will.
    #[cfg(feature = "object-store")]
    Store(store::Unfinished),
    /// Never finished.
    #[cfg(test)]
    Stuck(directory::Unfinished),
}

/// What is written to.
pub(super) type Out = Box<dyn Write + Send>;

/// Why a file could not be written; everything may be better next time.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(super) struct PlaceError(pub(super) String);

impl Place {
    /// Begins a file that will be called `path`, relative to the root; and what to write to. Blocks.
    ///
    /// # Errors
    /// There is no such file then.
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
    /// Some was written: what can be passed on is.
    pub(super) async fn advance(&mut self) -> Result<(), PlaceError> {
        match self {
            Unfinished::Directory(_) => Ok(()),
            #[cfg(test)]
            Unfinished::Stuck(_) => Ok(()),
            #[cfg(feature = "object-store")]
            Unfinished::Store(upload) => upload.advance().await,
        }
    }

    /// All was written: gives the file its name. Returns its size.
    ///
    /// # Errors
    /// There is no such file then, as far as anybody can know.
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

/// Panics when it is first written to; after that it fails, for a buffer on top of it tries again when it is dropped.
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
    /// What could not be done with what.
    fn io(what: &str, path: &std::path::Path, error: &io::Error) -> Self {
        PlaceError(format!("cannot {what} {}: {error}", path.display()))
    }
}
