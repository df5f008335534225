//! Call trees as flame graphs, tables and sandwiches, of a store or of an uploaded file.

use std::collections::HashMap;

use bytes::Bytes;
use http::Response;
use serde::Serialize;
use serde_json::{Value, json as value};

use super::error::ApiError;
use super::index::Kind;
use super::params::{Params, Side, millis};
use super::{Asked, json};
use tributary_profile_store::table::{FunctionRow, files};
use tributary_profile_store::view::{FlameScales, normalized};
use tributary_profile_store::{
    FlameView, ProfileStore, Query, QueryAnswer, QueryError, Tree, Zoom,
};
use tributary_profiles::Dictionary;

/// Default number of frames of a flame graph: as many as a screen has room for.
const FRAMES: usize = 4000;
/// Default number of frames of each half of a sandwich.
const DEFAULT_SANDWICH_FRAMES: usize = 2000;
/// Maximum number of frames in a response.
pub(super) const MOST_FRAMES: usize = 100_000;
/// Default number of functions of a table.
const ROWS: usize = 1000;
/// Maximum number of functions of a table.
const MOST_ROWS: usize = 100_000;

type Answer = Result<Response<Bytes>, ApiError>;

/// A call tree to show, and the profiles it was made of.
pub(super) struct Shown {
    pub(super) tree: Tree,
    pub(super) scales: FlameScales,
    pub(super) compares: bool,
    /// Times that the profiles cover, in milliseconds since 1970.
    pub(super) covered: [u64; 2],
    pub(super) damaged: u64,
    /// Sample types of an uploaded file.
    pub(super) types: Option<Vec<Kind>>,
    pub(super) source: Box<dyn Source>,
}

/// The profiles of a tree, with their memory.
pub(super) trait Source {
    /// Dictionaries with the functions of the tree.
    fn dictionaries(&self) -> Vec<&Dictionary>;

    /// Reserves memory for structures made from the tree, up to a total number of bytes.
    fn meter(&mut self) -> Box<dyn FnMut(usize) -> Result<(), ApiError> + '_>;
}

/// Responses of a store; the last one is the selection.
impl Source for Vec<QueryAnswer> {
    fn dictionaries(&self) -> Vec<&Dictionary> {
        let answers = self.iter();
        answers.map(|answer| &answer.profiles.dictionary).collect()
    }

    fn meter(&mut self) -> Box<dyn FnMut(usize) -> Result<(), ApiError> + '_> {
        match self.last_mut() {
            None => Box::new(|_| Ok(())),
            Some(answer) => {
                let mut meter = answer.meter();
                Box::new(move |bytes| Ok(meter(bytes)?))
            }
        }
    }
}

#[derive(Serialize)]
struct Picture<'v> {
    #[serde(flatten)]
    view: &'v FlameView,
    scales: FlameScales,
    compares: bool,
    covered: [u64; 2],
    damaged: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    types: Option<&'v [Kind]>,
}

impl Asked {
    /// Merges the selected profiles of a request, and the profiles to compare with.
    pub(super) fn shown(&self, params: &Params, compares: bool) -> Result<Shown, ApiError> {
        let store = self.store(params)?;
        let query = self.query(params, Side::Selected)?;
        let before = match compares {
            true => Some(self.query(params, Side::Before)?),
            false => None,
        };
        let (tree, answers) = merged(&store, before.as_ref(), &query)?;
        let scales = match compares && params.word("normalize", &["total", "none"])? == "total" {
            true => normalized(&tree),
            false => [1.0; 2],
        };
        let covered = answers.last().map(|answer| answer.covered.clone());
        let covered = covered.unwrap_or(query.range);
        Ok(Shown {
            tree,
            scales,
            compares,
            covered: [millis(covered.start), millis(covered.end)],
            damaged: answers.iter().map(|answer| answer.damaged).sum(),
            types: None,
            source: Box::new(answers),
        })
    }
}

/// Returns the tree of the profiles of a query, and before them those of the query that it is compared with.
pub(super) fn merged(
    store: &ProfileStore,
    before: Option<&Query>,
    query: &Query,
) -> Result<(Tree, Vec<QueryAnswer>), QueryError> {
    let compares = before.is_some();
    let before = before.map(|before| store.merge(before)).transpose()?;
    let mut before = before.flatten();
    let mut after = store.merge(query)?;
    let tree = match (&mut before, &mut after) {
        (None, None) => Tree::default(),
        (None, Some(after)) if compares => after.tree_after()?,
        (None, Some(after)) => after.tree()?,
        (Some(before), Some(after)) => before.tree_with(after)?,
        (Some(before), None) => before.tree()?,
    };
    Ok((tree, before.into_iter().chain(after).collect()))
}

impl Shown {
    /// Returns the part of the tree that a request names.
    pub(super) fn view(&self, params: &Params, frames: usize) -> Result<FlameView, ApiError> {
        let most = params.number("max_frames", frames, 1..MOST_FRAMES + 1)?;
        let zoom = params.zoom()?;
        if self.tree.is_empty() && self.tree.totals() == [0; 2] {
            return Ok(FlameView::default());
        }
        let view = self.tree.view(&zoom, most, self.scales);
        view.ok_or_else(|| {
            ApiError::not_found(format!(
                "no function has the call path `{}` in the selected profiles",
                zoom.path.join(";")
            ))
        })
    }

    fn picture<'v>(&'v self, view: &'v FlameView) -> Picture<'v> {
        Picture {
            view,
            scales: self.scales,
            compares: self.compares,
            covered: self.covered,
            damaged: self.damaged,
            types: self.types.as_deref(),
        }
    }

    pub(super) fn flamegraph(&self, params: &Params) -> Answer {
        let view = self.view(params, FRAMES)?;
        json(&self.picture(&view))
    }

    pub(super) fn table(&self, params: &Params) -> Answer {
        let limit = params.number("limit", ROWS, 1..MOST_ROWS + 1)?;
        let by_own = params.word("sort", &["self", "total"])? == "self";
        let mut rows = self.tree.functions();
        let last = usize::from(self.compares);
        let weight = |row: &FunctionRow<'_>| {
            let of = |values: [i64; 2]| values.get(last).copied().unwrap_or_default();
            let [own, total] = [of(row.own), of(row.total)].map(i64::unsigned_abs);
            if by_own { (own, total) } else { (total, own) }
        };
        rows.sort_by(|a, b| weight(b).cmp(&weight(a)).then_with(|| a.name.cmp(b.name)));
        let count = rows.len();
        rows.truncate(limit);
        let mut sources: HashMap<&str, &str> = HashMap::new();
        for dictionary in self.source.dictionaries() {
            sources.extend(files(dictionary));
        }
        let functions = rows.iter().map(|row| self.row(row, &sources));
        let [first, second] = self.tree.totals();
        let mut table = value!({
            "type": self.tree.sample_type.0,
            "unit": self.tree.sample_type.1,
            "total": if self.compares { second } else { first },
            "count": count,
            "functions": functions.collect::<Vec<_>>(),
        });
        if let (true, Some(table)) = (self.compares, table.as_object_mut()) {
            table.insert("total_before".to_owned(), first.into());
        }
        if let (Some(types), Some(table)) = (&self.types, table.as_object_mut()) {
            table.insert("types".to_owned(), value!(types));
        }
        json(&table)
    }

    fn row(&self, row: &FunctionRow<'_>, files: &HashMap<&str, &str>) -> Value {
        let file = files.get(row.name).copied().unwrap_or_default();
        let ([own, own_after], [total, total_after]) = (row.own, row.total);
        match self.compares {
            false => value!({"name": row.name, "file": file, "self": own, "total": total}),
            true => value!({
                "name": row.name,
                "file": file,
                "self": own_after,
                "total": total_after,
                "self_before": own,
                "total_before": total,
            }),
        }
    }

    pub(super) fn sandwich(&mut self, params: &Params) -> Answer {
        let Some(function) = params.get("function") else {
            return Err(ApiError::bad("`function` must name a function"));
        };
        let most = params.number("max_frames", DEFAULT_SANDWICH_FRAMES, 1..MOST_FRAMES + 1)?;
        let found = self
            .tree
            .sandwich_within(function, self.source.meter())?
            .ok_or_else(|| {
                ApiError::not_found(format!(
                    "the selected profiles have no function `{function}`"
                ))
            })?;
        let whole = Zoom::default();
        let views = [&found.callers, &found.callees].map(|tree| {
            let view = tree.view(&whole, most, self.scales);
            view.unwrap_or_default()
        });
        let [callers, callees] = views.each_ref().map(|view| self.picture(view));
        json(&value!({"callers": callers, "callees": callees}))
    }
}

pub(super) fn flamegraph(asked: &Asked, params: &Params) -> Answer {
    asked.shown(params, false)?.flamegraph(params)
}

pub(super) fn diff(asked: &Asked, params: &Params) -> Answer {
    asked.shown(params, true)?.flamegraph(params)
}

pub(super) fn table(asked: &Asked, params: &Params) -> Answer {
    asked.shown(params, params.compares())?.table(params)
}

pub(super) fn sandwich(asked: &Asked, params: &Params) -> Answer {
    asked.shown(params, params.compares())?.sandwich(params)
}
