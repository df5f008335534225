//! A whole configuration: components by the registries, the `service` section, and the checks that need both.

mod assemble;
mod check;
mod load;
mod model;
mod print;
mod schema;

pub use load::{Loaded, load};
pub use model::{Config, Configured, ServiceConfig};
pub use schema::schema;
