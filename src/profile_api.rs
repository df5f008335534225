//! The HTTP API of the profile stores: queries as JSON, and a part of Pyroscope's query API.
//!
//! ```text
//! request -> a turn (few at a time, few waiting) -> a thread that may block: parameters, query, answer
//! ```
//!
//! The server is elsewhere: [`ProfileApi::handle`] gets the whole request and returns the whole response, so that any
//! server with its own limits and authentication can offer the API. `docs/profile-store.md` describes the paths.
//!
//! Ingestion never waits for a query. Queries run on threads of their own, within the memory of their store and a time
//! limit, and are refused beyond either. Uploaded files take their memory from the budget of the process.

mod connect;
mod download;
mod error;
mod flame;
mod index;
mod params;
#[cfg(test)]
mod tests;
mod upload;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use self::error::ApiError;
use self::params::Params;
use crate::profile_stores::ProfileStores;
use tributary_memory::Budget;
use tributary_net::server::cores;

/// Beginning of the paths of the API's own.
pub const PREFIX: &str = "/api/v1/profiles/";
/// Beginning of the paths of Pyroscope's query API.
pub const PYROSCOPE_PREFIX: &str = "/querier.v1.QuerierService/";
/// Maximum size of a request body as sent, in bytes.
pub const MAX_BODY: usize = 32 << 20;
/// Maximum time from the arrival of a request to its response, including the wait for a turn.
const TIME: Duration = Duration::from_secs(10);
/// Maximum number of requests that wait for a turn. A page with several pictures requests all of them at once.
const WAITING: usize = 32;
/// Maximum number of queries at a time; more would only compete for the same processors.
const AT_ONCE: usize = 4;

/// The API over the stores of a process.
#[derive(Debug)]
pub struct ProfileApi {
    stores: ProfileStores,
    budget: Arc<Budget>,
    turns: Arc<Semaphore>,
    waiting: Semaphore,
    time: Duration,
}

impl ProfileApi {
    /// Creates the API. `budget` is that of the process, for uploaded files.
    pub fn new(stores: ProfileStores, budget: Arc<Budget>) -> Self {
        ProfileApi {
            stores,
            budget,
            turns: Arc::new(Semaphore::new(cores().min(AT_ONCE))),
            waiting: Semaphore::new(WAITING),
            time: TIME,
        }
    }

    /// Whether a path belongs to the API.
    pub fn serves(path: &str) -> bool {
        path.starts_with(PREFIX) || path.starts_with(PYROSCOPE_PREFIX)
    }

    /// Handles a request. The path begins with [`PREFIX`] or [`PYROSCOPE_PREFIX`]; the body is complete, still
    /// encoded, and has at most [`MAX_BODY`] bytes.
    pub async fn handle(&self, request: Request<Bytes>) -> Response<Bytes> {
        let (parts, body) = request.into_parts();
        let is_connect = parts.uri.path().starts_with(PYROSCOPE_PREFIX);
        let answered = self.answer(parts, body).await;
        answered.unwrap_or_else(|error| match is_connect {
            true => connect::error_response(&error),
            false => error.response(),
        })
    }

    async fn answer(&self, parts: Parts, body: Bytes) -> Result<Response<Bytes>, ApiError> {
        let deadline = Instant::now() + self.time;
        if body.len() > MAX_BODY {
            return Err(ApiError::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is larger than {MAX_BODY} bytes"),
            ));
        }
        let busy = || ApiError::busy("too many queries are running; retry in a second");
        let waiting = self.waiting.try_acquire().map_err(|_| busy())?;
        let turn = timeout(self.time, self.turns.clone().acquire_owned()).await;
        let turn = turn.map_err(|_| busy())?;
        drop(waiting);
        let asked = Asked {
            stores: self.stores.clone(),
            budget: self.budget.clone(),
            deadline,
        };
        let work = move || {
            let _turn = turn;
            asked.answer(&parts, body)
        };
        let failed = |error| {
            let message = format!("the query failed: {error}");
            Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message))
        };
        spawn_blocking(work).await.unwrap_or_else(failed)
    }
}

/// A request that has its turn.
struct Asked {
    stores: ProfileStores,
    budget: Arc<Budget>,
    deadline: Instant,
}

impl Asked {
    fn answer(&self, parts: &Parts, body: Bytes) -> Result<Response<Bytes>, ApiError> {
        let path = parts.uri.path();
        if let Some(method) = path.strip_prefix(PYROSCOPE_PREFIX) {
            allow(parts, &Method::POST)?;
            return connect::answer(self, method, &parts.headers, &body);
        }
        let path = path.strip_prefix(PREFIX).unwrap_or_default();
        let allowed = match path {
            "view" => Method::POST,
            _ => Method::GET,
        };
        let route = Route::of(path)?;
        allow(parts, &allowed)?;
        let params = Params::parse(parts.uri.query())?;
        match route {
            Route::Stores => index::stores(self),
            Route::Types => index::types(self, &params),
            Route::Labels => index::labels(self, &params),
            Route::Values(label) => index::values(self, &params, &label),
            Route::Series => index::series(self, &params),
            Route::Totals => index::totals(self, &params),
            Route::HeatMap => index::heat_map(self, &params),
            Route::Flamegraph => flame::flamegraph(self, &params),
            Route::Diff => flame::diff(self, &params),
            Route::Table => flame::table(self, &params),
            Route::Sandwich => flame::sandwich(self, &params),
            Route::Download => download::download(self, &params),
            Route::View => upload::view(self, &params, body),
        }
    }
}

/// A path below [`PREFIX`].
enum Route {
    Stores,
    Types,
    Labels,
    /// The values of this label.
    Values(String),
    Series,
    Totals,
    HeatMap,
    Flamegraph,
    Diff,
    Table,
    Sandwich,
    Download,
    View,
}

impl Route {
    fn of(path: &str) -> Result<Self, ApiError> {
        let label = path
            .strip_prefix("labels/")
            .and_then(|rest| rest.strip_suffix("/values"));
        Ok(match path {
            "stores" => Route::Stores,
            "types" => Route::Types,
            "labels" => Route::Labels,
            "series" => Route::Series,
            "totals" => Route::Totals,
            "heatmap" => Route::HeatMap,
            "flamegraph" => Route::Flamegraph,
            "diff" => Route::Diff,
            "table" => Route::Table,
            "sandwich" => Route::Sandwich,
            "download" => Route::Download,
            "view" => Route::View,
            _ => match label.and_then(crate::serving::query::decode) {
                Some(label) => Route::Values(label),
                None => {
                    return Err(ApiError::new(
                        StatusCode::NOT_FOUND,
                        format!(
                            "unknown path `{path}`; available: stores, types, labels, labels/NAME/values, series, \
                             totals, heatmap, flamegraph, diff, table, sandwich, download, view"
                        ),
                    ));
                }
            },
        })
    }
}

fn allow(parts: &Parts, method: &Method) -> Result<(), ApiError> {
    match parts.method == *method {
        true => Ok(()),
        false => Err(ApiError::not_allowed(method)),
    }
}

/// Returns a value as JSON.
fn json(value: &impl Serialize) -> Result<Response<Bytes>, ApiError> {
    let body = serde_json::to_vec(value).map_err(|error| {
        let message = format!("the answer is not JSON: {error}");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    })?;
    Ok(response(StatusCode::OK, "application/json", body.into()))
}

fn response(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
