//! A whole configuration: components by the registries, the `service` section, and the checks that need both.

mod assemble;
mod check;
mod counterparts;
mod facts;
mod load;
mod model;
mod print;
mod registries;
mod running;
mod schema;

pub(in crate::app) use counterparts::{Counterpart, TABLE as COUNTERPARTS};
pub(crate) use load::Registries;
pub use load::{Loaded, load};
pub use model::{Config, Configured, ServiceConfig};
pub(in crate::app) use print::ONLY_HERE;
pub use running::running_graph;
pub use schema::schema;
