//! Groups equal resources and equal scopes.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use prost::Message as _;

use super::id::{GroupId, Id as _};
use super::model::{ResourceProfiles, ScopeProfiles};
use super::table::Lists;

/// Groups resources and scopes by their whole content, ignoring the order of attributes.
#[derive(Debug, Default)]
pub(super) struct Groups {
    resources: Lists<GroupId, u8>,
    scopes: Lists<GroupId, u8>,
    key: Vec<u8>,
}

impl Groups {
    pub(super) fn resource(&mut self, from: &ResourceProfiles) -> usize {
        self.key.clear();
        self.text(&from.schema_url);
        if let Some(resource) = &from.resource {
            let mut resource = resource.clone();
            sort(&mut resource.attributes);
            self.key.push(1);
            let _ = resource.encode(&mut self.key);
        }
        position(self.resources.intern(&self.key))
    }

    /// Returns the position of a scope among the distinct scopes of all resources.
    pub(super) fn scope(&mut self, resource: usize, from: &ScopeProfiles) -> usize {
        self.key.clear();
        self.key.extend_from_slice(&resource.to_le_bytes());
        self.text(&from.schema_url);
        if let Some(scope) = &from.scope {
            let mut scope = scope.clone();
            sort(&mut scope.attributes);
            self.key.push(1);
            let _ = scope.encode(&mut self.key);
        }
        position(self.scopes.intern(&self.key))
    }

    pub(super) fn bytes(&self) -> usize {
        self.resources.bytes() + self.scopes.bytes()
    }

    fn text(&mut self, text: &str) {
        self.key.extend_from_slice(&text.len().to_le_bytes());
        self.key.extend_from_slice(text.as_bytes());
    }
}

/// Converts a group to a position. Index 0 is the empty key, which no resource and no scope has.
fn position(group: GroupId) -> usize {
    group.index().saturating_sub(1)
}

fn sort(attributes: &mut [KeyValue]) {
    attributes.sort_by(|a, b| a.key.cmp(&b.key));
}
