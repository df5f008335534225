//! Conversion of the files of one request into one dictionary, within the limits of the request.

use bytes::Bytes;

use crate::receivers::profile_intake::{
    Converted, Origin, ReceivedBytes, Refused, Rules, SCOPE_BYTES, complete, decode, inflated,
    of_file,
};
use tributary_compression::decompress::DecompressError;
use tributary_memory::{NoRoom, Permit};
use tributary_profile_formats::{Format, FormatError, Limits};
use tributary_profiles::model::{Profiles, ResourceProfiles};
use tributary_profiles::pprof::Repairs;
use tributary_profiles::pprof;

/// Profiles of a request in the making.
pub(super) struct Request<'r> {
    rules: &'r Rules,
    profiles: Profiles,
    repairs: Repairs,
    /// Memory of the request, and of what its files became.
    permit: Permit,
    /// Bytes that the other files of the request may have after decompression.
    left: usize,
}

impl<'r> Request<'r> {
    /// Creates a request without profiles. `permit` covers the body.
    pub(super) fn new(rules: &'r Rules, permit: Permit) -> Self {
        Request {
            rules,
            profiles: Profiles::default(),
            repairs: Repairs::default(),
            permit,
            left: rules.options.limit,
        }
    }

    /// Memory of the request; grows for what is made of the body.
    pub(super) fn permit(&mut self) -> &mut Permit {
        &mut self.permit
    }

    /// Begins a new resource, to which further files belong.
    pub(super) fn resource(&mut self) {
        self.profiles.resources.push(ResourceProfiles::default());
    }

    /// Adds a pprof file. `origin` gets the sample types.
    pub(super) fn pprof(
        &mut self,
        file: Bytes,
        origin: impl FnOnce(&[&str]) -> Origin,
    ) -> Result<(), Refused> {
        let (file, rules, id) = self.inflate(file)?;
        let dictionary = &mut self.profiles.dictionary;
        let before = dictionary.bytes();
        let (converted, mut permit) =
            decode(file, &rules, dictionary, None).map_err(|refused| self.within_limit(refused))?;
        let after = self.profiles.dictionary.bytes() - before;
        self.keep(&mut permit, converted, after, id, origin)
    }

    /// Adds a file of another format. `origin` gets the sample types.
    pub(super) fn file(
        &mut self,
        file: Bytes,
        format: Format,
        origin: impl FnOnce(&[&str]) -> Origin,
    ) -> Result<(), Refused> {
        let (file, rules, id) = self.inflate(file)?;
        let limits = Limits {
            input: rules.options.limit,
            ..Limits::default()
        };
        let ReceivedBytes { bytes, mut permit } = file;
        let dictionary = &mut self.profiles.dictionary;
        let before = dictionary.bytes();
        let read =
            tributary_profile_formats::read(&bytes, Some(format), &limits, &mut permit, dictionary);
        drop(bytes);
        let converted = read.map_err(refused)?;
        let after = self.profiles.dictionary.bytes() - before;
        self.keep(&mut permit, converted, after, id, origin)
    }

    /// Adds the only profiles of a request, which have a dictionary of their own. `body` identifies them.
    pub(super) fn whole(&mut self, mut profiles: Profiles, body: &[u8], origin: &Origin) {
        let resources = std::mem::take(&mut profiles.resources);
        let scopes = resources.into_iter().flat_map(|resource| resource.scopes);
        let id = of_file(body);
        let completed = |scope| complete(scope, origin, &profiles.dictionary, None, id);
        profiles.resources = scopes.map(completed).collect();
        self.profiles = profiles;
    }

    /// Returns the profiles of the request.
    pub(super) fn finish(self) -> Result<(Converted, Repairs), Refused> {
        Ok((Converted::new(self.profiles, self.permit)?, self.repairs))
    }

    /// Returns a decompressed file with a permit of its own, the rules for reading it, and its identity.
    fn inflate(&mut self, file: Bytes) -> Result<(ReceivedBytes, Rules, u128), Refused> {
        self.permit.grow(SCOPE_BYTES).map_err(Refused::NoRoom)?;
        let mut rules = self.rules.clone();
        rules.options.limit = self.left;
        let held = ReceivedBytes {
            bytes: file,
            permit: self.permit.budget().empty_permit(),
        };
        let held = inflated(held, &rules).map_err(|refused| self.within_limit(refused))?;
        if held.bytes.len() > self.left {
            return Err(self.too_large());
        }
        self.left -= held.bytes.len();
        let id = of_file(&held.bytes);
        Ok((held, rules, id))
    }

    fn keep(
        &mut self,
        permit: &mut Permit,
        converted: pprof::Converted,
        dictionary_bytes: usize,
        id: u128,
        origin: impl FnOnce(&[&str]) -> Origin,
    ) -> Result<(), Refused> {
        let pprof::Converted {
            profiles: scope,
            main,
            repairs,
        } = converted;
        self.repairs.add(repairs);
        let samples = scope.profiles.iter().map(|profile| profile.samples.bytes());
        let kept = dictionary_bytes + samples.sum::<usize>();
        permit.shrink_to(0);
        self.permit.grow(kept).map_err(Refused::NoRoom)?;
        let dictionary = &self.profiles.dictionary;
        let types = scope.profiles.iter().map(|of| of.header.sample_type.kind);
        let types: Vec<&str> = types.map(|kind| dictionary.text(kind)).collect();
        let origin = origin(&types);
        let mut resource = complete(scope, &origin, dictionary, main, id);
        match self.profiles.resources.last_mut() {
            Some(last) if !last.scopes.is_empty() => last.scopes.append(&mut resource.scopes),
            Some(last) => *last = resource,
            None => self.profiles.resources.push(resource),
        }
        Ok(())
    }

    fn too_large(&self) -> Refused {
        Refused::TooLarge(self.rules.options.limit, self.rules.limit_key)
    }

    /// Names the limit of the request instead of what is left of it.
    fn within_limit(&self, refused: Refused) -> Refused {
        match refused {
            Refused::TooLarge(..) => self.too_large(),
            refused => refused,
        }
    }
}

/// Returns the refusal of a file in another format than pprof.
fn refused(error: FormatError) -> Refused {
    match error {
        FormatError::NoRoom(no_room)
        | FormatError::Compressed(DecompressError::NoMemory(no_room)) => Refused::NoRoom(no_room),
        error => Refused::Malformed(error.to_string()),
    }
}

/// Returns the refusal of data that cannot be read, or for which there is no memory.
pub(super) fn malformed<E: std::fmt::Display>(
    no_room: impl FnOnce(&E) -> Option<NoRoom>,
) -> impl FnOnce(E) -> Refused {
    |error| match no_room(&error) {
        Some(no_room) => Refused::NoRoom(no_room),
        None => Refused::Malformed(error.to_string()),
    }
}
