//! `audit_log`: who changed what, with the state before and after.

use sqlx::Row;

use super::{Store, StoreError, new_id};

/// One change. Keys, tokens and passwords are in no field of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// UUIDv7.
    pub id: String,
    /// Milliseconds UTC.
    pub at: i64,
    /// The operator's name, or `command line`.
    pub actor: String,
    /// `put`, `delete`, `import`, `reset`, …
    pub action: String,
    /// What was changed: `pool main_text`.
    pub object: String,
    /// JSON.
    pub before: Option<String>,
    /// JSON.
    pub after: Option<String>,
}

impl Store {
    /// Writes down a change that is no row of configuration.
    pub(crate) async fn audit(
        &self,
        actor: &str,
        action: &str,
        object: &str,
        before: Option<&str>,
        after: Option<&str>,
    ) -> Result<(), StoreError> {
        let mut connection = self.pool().acquire().await?;
        audit_in(&mut connection, actor, action, object, before, after).await
    }

    /// Changes, newest first, from behind `cursor`.
    pub(crate) async fn audit_log(
        &self,
        cursor: Option<&str>,
        limit: i64,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        if cursor.is_some_and(|cursor| uuid::Uuid::parse_str(cursor).is_err()) {
            return Err(StoreError::Cursor);
        }
        let rows = sqlx::query(
            "SELECT id, at, actor, action, object, before, after FROM audit_log
             WHERE $1 IS NULL OR id < $1 ORDER BY id DESC LIMIT $2",
        )
        .bind(cursor)
        .bind(limit)
        .fetch_all(self.pool())
        .await?;
        rows.iter()
            .map(|row| {
                Ok(AuditEntry {
                    id: row.try_get("id")?,
                    at: row.try_get("at")?,
                    actor: row.try_get("actor")?,
                    action: row.try_get("action")?,
                    object: row.try_get("object")?,
                    before: row.try_get("before")?,
                    after: row.try_get("after")?,
                })
            })
            .collect()
    }
}

/// The same inside a transaction.
pub(crate) async fn audit_in(
    connection: &mut sqlx::AnyConnection,
    actor: &str,
    action: &str,
    object: &str,
    before: Option<&str>,
    after: Option<&str>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO audit_log (id, at, actor, action, object, before, after)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(new_id())
    .bind(Store::now_ms())
    .bind(actor)
    .bind(action)
    .bind(object)
    .bind(before)
    .bind(after)
    .execute(connection)
    .await?;
    Ok(())
}
