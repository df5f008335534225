//! The Collector's `url_sanitizer` and `db_sanitizer`.
//!
//! All functions return the text borrowed if nothing changes, and are idempotent.

mod json;
mod redis;
mod sql;
mod url;

use std::borrow::Cow;

pub use json::json;
pub use redis::{memcached, redis};
pub use sql::sql;
pub use url::{span_name, url};

/// A kind of database that `db_sanitizer` supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Database {
    /// `sql`: MySQL, PostgreSQL, MariaDB, SQLite and `other_sql`.
    Sql,
    /// `redis`
    Redis,
    /// `valkey`
    Valkey,
    /// `memcached`
    Memcached,
    /// `mongo`
    Mongo,
    /// `opensearch`
    OpenSearch,
    /// `es`
    Elasticsearch,
}

impl Database {
    /// Returns the kind for a value of `db.system.name` or `db.system`, in upper or lower case.
    pub fn of_system(system: &str) -> Option<Database> {
        Some(match system.to_ascii_lowercase().as_str() {
            "other_sql" | "mysql" | "postgresql" | "mariadb" | "sqlite" => Database::Sql,
            "redis" => Database::Redis,
            "valkey" => Database::Valkey,
            "memcached" => Database::Memcached,
            "mongodb" => Database::Mongo,
            "opensearch" => Database::OpenSearch,
            "elasticsearch" => Database::Elasticsearch,
            _ => return None,
        })
    }

    /// Removes the values from a query of this kind.
    pub fn sanitize(self, query: &str) -> Cow<'_, str> {
        match self {
            Database::Sql => sql(query),
            Database::Redis | Database::Valkey => redis(query),
            Database::Memcached => memcached(query),
            Database::Mongo | Database::OpenSearch | Database::Elasticsearch => json(query),
        }
    }
}

/// Returns `output`, or the input borrowed if they are equal.
fn changed(input: &str, output: String) -> Cow<'_, str> {
    if output == input {
        Cow::Borrowed(input)
    } else {
        Cow::Owned(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_database_system_has_a_sanitizer() {
        for (system, query, expected) in [
            (
                "MySQL",
                "SELECT * FROM users WHERE id = 123",
                "SELECT * FROM users WHERE id = ?",
            ),
            ("redis", "SET user:123 john", "SET user:123 ?"),
            ("valkey", "SET key value", "SET key ?"),
            (
                "memcached",
                "set mykey 0 60 5\r\nsecret\r\n",
                "set mykey 0 60 5",
            ),
            ("mongodb", r#"{"find":"users"}"#, r#"{"find":"?"}"#),
            (
                "elasticsearch",
                r#"{"query":{"title":"secret"}}"#,
                r#"{"query":{"title":"?"}}"#,
            ),
        ] {
            let database = Database::of_system(system).unwrap();
            let once = database.sanitize(query);
            assert_eq!(once, expected);
            assert!(
                matches!(database.sanitize(&once), Cow::Borrowed(_)),
                "{system}"
            );
        }
        assert_eq!(Database::of_system("cassandra"), None);
    }
}
