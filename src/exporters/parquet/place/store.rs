//! An object store. A file is uploaded in parts while it is written, and becomes an object when the
//! store acknowledges the last request.

use std::fmt::Display;
use std::io;
use std::sync::Arc;

use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt as _, Result};
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::super::config::ObjectStoreConfig;
use super::super::memory::{Charge, Memory};
use super::{Out, PlaceError};

#[cfg(test)]
pub(in super::super) mod testing;
#[cfg(test)]
mod tests;

/// Maximum number of parts of one file in flight.
const PARALLEL_PARTS: usize = 4;

/// A bucket and a prefix in it.
#[derive(Debug)]
pub(in super::super) struct Store {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    part_size: usize,
    memory: Arc<Memory>,
}

/// An upload, which begins when there is enough data for a part.
pub(in super::super) struct Unfinished {
    store: Arc<Store>,
    path: Path,
    written: Buffer,
    /// Bytes of the parts that were passed to the upload.
    bytes: u64,
    upload: Option<Upload>,
}

struct Upload {
    multipart: Box<dyn MultipartUpload>,
    in_flight: JoinSet<Result<()>>,
}

/// Written data that is not in flight yet.
#[derive(Clone)]
struct Buffer(Arc<Mutex<Written>>);

struct Written {
    part_size: usize,
    full: Vec<Piece>,
    last: Piece,
}

/// A part and its memory.
struct Piece {
    bytes: Vec<u8>,
    charge: Charge,
}

impl Store {
    /// Returns a client for the bucket. Does not connect.
    ///
    /// # Errors
    /// If the configuration does not describe a store.
    pub(in super::super) fn new(
        config: &ObjectStoreConfig,
        memory: &Arc<Memory>,
    ) -> std::result::Result<Self, PlaceError> {
        let (store, prefix) = config.bucket().client().map_err(PlaceError)?;
        Ok(Store {
            store,
            prefix,
            part_size: config.part_size.as_usize(),
            memory: memory.clone(),
        })
    }

    pub(super) fn begin(
        self: &Arc<Self>,
        path: &str,
    ) -> std::result::Result<(Unfinished, Out), PlaceError> {
        let written = Buffer(Arc::new(Mutex::new(Written {
            part_size: self.part_size,
            full: Vec::new(),
            last: Piece::new(&self.memory),
        })));
        let whole = format!("{}/{path}", self.prefix);
        let unfinished = Unfinished {
            store: self.clone(),
            // Names of services are already encoded and must not be encoded again.
            path: Path::parse(whole.trim_start_matches('/')).map_err(|error| unusable(&error))?,
            written: written.clone(),
            bytes: 0,
            upload: None,
        };
        Ok((unfinished, Box::new(written)))
    }
}

impl Unfinished {
    /// Uploads complete parts. Returns when the last ones are in flight; may be cancelled and
    /// called again.
    pub(super) async fn advance(&mut self) -> std::result::Result<(), PlaceError> {
        while self.written.has_full() {
            let ready = self.prepare().await;
            ready.map_err(|error| self.unwritable(&error))?;
            if let Some(piece) = self.written.take_full() {
                self.pass_on(piece);
            }
        }
        Ok(())
    }

    /// Uploads the remaining data and completes the object.
    pub(super) async fn finish(mut self) -> std::result::Result<u64, PlaceError> {
        self.advance().await?;
        let last = self.written.take_last(&self.store.memory);
        let Err(error) = self.complete(last).await else {
            return Ok(self.bytes);
        };
        if let Some(upload) = self.upload.take() {
            upload.abort().await;
        }
        // Perhaps only the response was lost: no other process writes an object of this name.
        let store = &self.store.store;
        match store.head(&self.path).await {
            Ok(object) if object.size == self.bytes => Ok(self.bytes),
            _ => {
                // The rows will be written again, so the object must not appear later.
                let _ = store.delete(&self.path).await;
                Err(self.unwritable(&error))
            }
        }
    }

    async fn complete(&mut self, last: Piece) -> Result<()> {
        if self.upload.is_none() {
            self.bytes = last.bytes.len() as u64;
            let _charge = last.charge;
            let put = self.store.store.put(&self.path, last.bytes.into());
            return put.await.map(drop);
        }
        if !last.bytes.is_empty() {
            self.prepare().await?;
            self.pass_on(last);
        }
        let Some(upload) = &mut self.upload else {
            return Ok(());
        };
        upload.wait_for_less_than(1).await?;
        upload.multipart.complete().await?;
        self.upload = None;
        Ok(())
    }

    /// Begins the upload if necessary, and waits until one more part may be in flight.
    async fn prepare(&mut self) -> Result<()> {
        let upload = match &mut self.upload {
            Some(upload) => upload,
            none => none.insert(Upload {
                multipart: self.store.store.put_multipart(&self.path).await?,
                in_flight: JoinSet::new(),
            }),
        };
        upload.wait_for_less_than(PARALLEL_PARTS).await
    }

    /// Passes the next part to the upload. Does not wait, because a removed part would be lost if
    /// the caller were cancelled.
    fn pass_on(&mut self, piece: Piece) {
        let Some(upload) = &mut self.upload else {
            return;
        };
        self.bytes += piece.bytes.len() as u64;
        let Piece { bytes, charge } = piece;
        let part = upload.multipart.put_part(bytes.into());
        upload.in_flight.spawn(async move {
            let _charge = charge;
            part.await
        });
    }

    fn unwritable(&self, error: &dyn Display) -> PlaceError {
        PlaceError(format!("cannot upload {}: {error}", self.path))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Stores keep parts, and charge for them, until the upload is aborted.
        if let Some(upload) = self.upload.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(upload.abort());
        }
    }
}

impl Upload {
    /// Waits until fewer than `most` parts are in flight, or one has failed.
    async fn wait_for_less_than(&mut self, most: usize) -> Result<()> {
        while self.in_flight.len() >= most {
            match self.in_flight.join_next().await {
                Some(part) => part??,
                None => break,
            }
        }
        Ok(())
    }

    async fn abort(mut self) {
        self.in_flight.shutdown().await;
        // The bucket's lifecycle rule removes parts whose upload could not be aborted.
        let _ = self.multipart.abort().await;
    }
}

impl Piece {
    fn new(memory: &Arc<Memory>) -> Self {
        Piece {
            bytes: Vec::new(),
            charge: memory.rows(),
        }
    }
}

impl Buffer {
    fn lock(&self) -> MutexGuard<'_, Written> {
        self.0.lock()
    }

    fn has_full(&self) -> bool {
        !self.lock().full.is_empty()
    }

    fn take_full(&self) -> Option<Piece> {
        let mut written = self.lock();
        (!written.full.is_empty()).then(|| written.full.remove(0))
    }

    fn take_last(&self, memory: &Arc<Memory>) -> Piece {
        std::mem::replace(&mut self.lock().last, Piece::new(memory))
    }
}

impl io::Write for Buffer {
    /// All parts have the same length, which some stores require.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = self.lock();
        let written = &mut *written;
        let last = &mut written.last;
        let taken = bytes.len().min(written.part_size - last.bytes.len());
        last.bytes
            .extend_from_slice(bytes.get(..taken).unwrap_or_default());
        last.charge.set(last.bytes.capacity());
        if last.bytes.len() == written.part_size {
            let next = Piece {
                bytes: Vec::new(),
                charge: last.charge.another(),
            };
            written.full.push(std::mem::replace(last, next));
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn unusable(error: &dyn Display) -> PlaceError {
    PlaceError(format!("cannot use the object store: {error}"))
}
