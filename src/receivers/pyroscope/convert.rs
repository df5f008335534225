//! Conversion of the files of one request into one dictionary, within the limits of the request.

use bytes::Bytes;

use crate::receivers::profile_intake::{
    Converted, Origin, ReceivedBytes, Refused, Rules, SCOPE_BYTES, complete, decode, inflated,
    of_file,
};
use tributary_memory::{NoRoom, Permit};
use tributary_profile_formats::Format;
use tributary_profiles::Dictionary;
use tributary_profiles::id::MappingId;
use tributary_profiles::model::{Profiles, ResourceProfiles, ScopeProfiles};
use tributary_profiles::pprof::{self, Repairs};

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

/// A converted file that is not yet part of its request.
pub(super) struct File {
    pub(super) profiles: ScopeProfiles,
    /// Mapping of the main program, if known.
    pub(super) main: Option<MappingId>,
    /// Identity of the content.
    pub(super) id: u128,
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

    /// Dictionary of all files of the request, and the memory of the request.
    pub(super) fn tables(&mut self) -> (&mut Dictionary, &mut Permit) {
        (&mut self.profiles.dictionary, &mut self.permit)
    }

    /// Returns the sample types of profiles of this request.
    pub(super) fn sample_types(&self, scope: &ScopeProfiles) -> Vec<&str> {
        let types = scope.profiles.iter().map(|of| of.header.sample_type.kind);
        types
            .map(|kind| self.profiles.dictionary.text(kind))
            .collect()
    }

    /// Converts a file. Without a format, the content decides between pprof and others.
    pub(super) fn read(&mut self, file: Bytes, format: Option<Format>) -> Result<File, Refused> {
        self.permit.grow(SCOPE_BYTES).map_err(Refused::NoRoom)?;
        let mut rules = self.rules.clone();
        rules.options.limit = self.left;
        let file = ReceivedBytes {
            bytes: file,
            permit: self.permit.budget().empty_permit(),
        };
        let file = inflated(file, &rules).map_err(|refused| self.within_limit(refused))?;
        let too_large = || Refused::TooLarge(self.rules.options.limit, self.rules.limit_key);
        let left = self.left.checked_sub(file.bytes.len());
        self.left = left.ok_or_else(too_large)?;
        let id = of_file(&file.bytes);
        let dictionary = &mut self.profiles.dictionary;
        let before = dictionary.bytes();
        let (converted, mut permit) = decode(file, format, &rules, dictionary, None)
            .map_err(|refused| self.within_limit(refused))?;
        let pprof::Converted {
            profiles,
            main,
            repairs,
        } = converted;
        self.repairs.add(repairs);
        let samples = profiles.profiles.iter().map(|of| of.samples.bytes());
        let kept = self.profiles.dictionary.bytes() - before + samples.sum::<usize>();
        permit.shrink_to(0);
        self.permit.grow(kept).map_err(Refused::NoRoom)?;
        Ok(File { profiles, main, id })
    }

    /// Begins a new resource, to which further profiles belong.
    pub(super) fn resource(&mut self) {
        self.profiles.resources.push(ResourceProfiles::default());
    }

    /// Adds the profiles of a file to the last resource.
    pub(super) fn add(&mut self, file: File, origin: &Origin) {
        let File { profiles, main, id } = file;
        let mut resource = complete(profiles, origin, &self.profiles.dictionary, main, id);
        match self.profiles.resources.last_mut() {
            Some(last) if !last.scopes.is_empty() => last.scopes.append(&mut resource.scopes),
            Some(last) => *last = resource,
            None => self.profiles.resources.push(resource),
        }
    }

    /// Adds the only profiles of a request, which have a dictionary of their own. `body` identifies them.
    pub(super) fn whole(&mut self, mut profiles: Profiles, body: &[u8], origin: &Origin) {
        let resources = std::mem::take(&mut profiles.resources);
        self.profiles.dictionary = profiles.dictionary;
        for profiles in resources.into_iter().flat_map(|resource| resource.scopes) {
            let file = File {
                profiles,
                main: None,
                id: of_file(body),
            };
            self.add(file, origin);
        }
    }

    /// Returns the profiles of the request.
    pub(super) fn finish(mut self) -> Result<(Converted, Repairs), Refused> {
        self.profiles
            .resources
            .retain(|resource| !resource.scopes.is_empty());
        Ok((Converted::new(self.profiles, self.permit)?, self.repairs))
    }

    /// Names the limit of the request instead of what is left of it.
    fn within_limit(&self, refused: Refused) -> Refused {
        match refused {
            Refused::TooLarge(..) => {
                Refused::TooLarge(self.rules.options.limit, self.rules.limit_key)
            }
            refused => refused,
        }
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
