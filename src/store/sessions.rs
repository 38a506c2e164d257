//! `sessions` of the console. Ids are kept hashed: who reads the table can't use a session.

use sqlx::Row;

use super::{Store, StoreError};

impl Store {
    /// Writes a session; `expires_at` in milliseconds UTC.
    pub(crate) async fn save_session(
        &self,
        id_hash: &str,
        operator: Option<&str>,
        data: &str,
        expires_at: i64,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO sessions (id, operator, data, expires_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT (id) DO UPDATE SET operator = excluded.operator, data = excluded.data,
                 expires_at = excluded.expires_at",
        )
        .bind(id_hash)
        .bind(operator)
        .bind(data)
        .bind(expires_at)
        .execute(self.pool())
        .await?;
        Ok(())
    }

    /// A session's data, unless it has expired.
    pub(crate) async fn session(&self, id_hash: &str) -> Result<Option<String>, StoreError> {
        let row = sqlx::query("SELECT data FROM sessions WHERE id = $1 AND expires_at > $2")
            .bind(id_hash)
            .bind(Self::now_ms())
            .fetch_optional(self.pool())
            .await?;
        Ok(row.map(|row| row.try_get("data")).transpose()?)
    }

    /// Ends a session.
    pub(crate) async fn delete_session(&self, id_hash: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM sessions WHERE id = $1").bind(id_hash).execute(self.pool()).await?;
        Ok(())
    }

    /// Ends every session of an operator.
    pub(crate) async fn delete_sessions_of(&self, operator: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM sessions WHERE operator = $1").bind(operator).execute(self.pool()).await?;
        Ok(())
    }

    /// Forgets what has expired.
    pub(crate) async fn delete_expired_sessions(&self) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM sessions WHERE expires_at <= $1")
            .bind(Self::now_ms())
            .execute(self.pool())
            .await?;
        Ok(())
    }
}
