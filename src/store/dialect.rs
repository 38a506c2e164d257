//! Where SQLite and PostgreSQL differ.

use super::StoreError;

/// Which database it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite, in WAL mode.
    Sqlite,
    /// PostgreSQL 14 or newer.
    Postgres,
}

impl Dialect {
    /// From DATABASE_URL.
    ///
    /// # Errors
    /// When the URL names another kind of database.
    pub fn of(url: &str) -> Result<Self, StoreError> {
        match url.split(':').next() {
            Some("sqlite") => Ok(Self::Sqlite),
            Some("postgres" | "postgresql") => Ok(Self::Postgres),
            other => Err(StoreError::UnknownDatabase(other.unwrap_or_default().chars().take(16).collect())),
        }
    }

    /// What a new connection is told first.
    pub(super) const fn preparation(self, sync_full: bool) -> &'static [&'static str] {
        match (self, sync_full) {
            (Self::Sqlite, false) => &[
                "PRAGMA busy_timeout = 5000",
                "PRAGMA journal_mode = WAL",
                "PRAGMA synchronous = NORMAL",
                "PRAGMA foreign_keys = ON",
                "PRAGMA wal_autocheckpoint = 4000",
                "PRAGMA cache_size = -16000",
                "PRAGMA temp_store = MEMORY",
            ],
            (Self::Sqlite, true) => &[
                "PRAGMA busy_timeout = 5000",
                "PRAGMA journal_mode = WAL",
                "PRAGMA synchronous = FULL",
                "PRAGMA foreign_keys = ON",
                "PRAGMA wal_autocheckpoint = 4000",
                "PRAGMA cache_size = -16000",
                "PRAGMA temp_store = MEMORY",
            ],
            (Self::Postgres, _) => &[],
        }
    }

    /// Begins a transaction that will write.
    pub(super) const fn begin_write(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN IMMEDIATE",
            Self::Postgres => "BEGIN",
        }
    }

    /// Begins a transaction that sees one state of the database.
    pub(super) const fn begin_read(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN",
            Self::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        }
    }

    /// Spells a text that is written in the words of both:
    /// `rows($n) AS j` is the JSON array bound as `$n`, a row an element, with `j.key` its place and
    /// `j.value ->> 'x'` a field; `now_ms()` is the database's own clock in milliseconds;
    /// `locked()` locks the rows of a SELECT where the transaction did not lock everything already.
    pub fn spell(self, text: &str) -> String {
        let text = match self {
            Self::Sqlite => {
                text.replace("now_ms()", "CAST(unixepoch('subsec') * 1000 AS BIGINT)").replace("locked()", "")
            }
            Self::Postgres => text
                .replace("now_ms()", "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)")
                .replace("locked()", "FOR UPDATE"),
        };
        let mut spelt = String::with_capacity(text.len() + 64);
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("rows(") {
            let (placeholder, after) = after.split_once(") AS j").unwrap_or((after, ""));
            spelt.push_str(before);
            spelt.push_str(&match self {
                // The limit keeps the subquery whole: each element is then rendered and parsed once a
                // row, and not once a field.
                Self::Sqlite => {
                    format!("(SELECT key, value FROM json_each({placeholder}) LIMIT 1000000) AS j")
                }
                Self::Postgres => {
                    format!("jsonb_array_elements({placeholder}::jsonb) WITH ORDINALITY AS j(value, key)")
                }
            });
            rest = after;
        }
        spelt.push_str(rest);
        spelt
    }

    /// Makes every change of `table` count up the configuration version. Running it again changes
    /// nothing.
    pub(super) fn version_trigger(self, table: &str) -> Vec<String> {
        match self {
            Self::Sqlite => ["INSERT", "UPDATE", "DELETE"]
                .map(|event| {
                    format!(
                        "CREATE TRIGGER IF NOT EXISTS {table}_version_{event} AFTER {event} ON {table} \
                         BEGIN UPDATE config_version SET version = version + 1 WHERE id = 1; END"
                    )
                })
                .into(),
            Self::Postgres => vec![
                "CREATE OR REPLACE FUNCTION forebay_config_changed() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN UPDATE config_version SET version = version + 1 WHERE id = 1; RETURN NULL; END $$"
                    .to_owned(),
                format!(
                    "CREATE OR REPLACE TRIGGER {table}_version AFTER INSERT OR UPDATE OR DELETE ON {table} \
                     FOR EACH STATEMENT EXECUTE FUNCTION forebay_config_changed()"
                ),
            ],
        }
    }

    /// Takes the lock under which migrations run; it ends with the transaction.
    pub(super) const fn migration_lock(self) -> Option<&'static str> {
        match self {
            Self::Sqlite => None,
            Self::Postgres => Some("SELECT CAST(pg_advisory_xact_lock(7305816) AS TEXT)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_spelt_for_each_database() {
        let text = "SELECT j.value ->> 'a' FROM rows($1) AS j JOIN t ON TRUE";
        assert_eq!(
            Dialect::Sqlite.spell(text),
            "SELECT j.value ->> 'a' FROM (SELECT key, value FROM json_each($1) LIMIT 1000000) AS j JOIN t ON TRUE"
        );
        assert_eq!(
            Dialect::Postgres.spell(text),
            "SELECT j.value ->> 'a' FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY AS j(value, key) JOIN t ON TRUE"
        );
    }
}
