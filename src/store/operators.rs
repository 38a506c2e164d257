//! `admin_users`: who may use the console and the admin API.

use sqlx::Row;
use sqlx::any::AnyRow;

use super::{Store, StoreError, flag, new_id};

/// An operator's row. The hashes are no secrets to be shown all the same.
#[derive(Clone, PartialEq, Eq)]
pub struct OperatorRow {
    /// UUIDv7.
    pub id: String,
    /// The name used at login.
    pub name: String,
    /// Argon2id; `None` = no login with a password.
    pub password_hash: Option<String>,
    /// `admin` or `viewer`.
    pub role: String,
    /// May sign in.
    pub is_enabled: bool,
}

impl std::fmt::Debug for OperatorRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OperatorRow")
            .field("name", &self.name)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

const COLUMNS: &str = "SELECT id, name, password_hash, role, is_enabled FROM admin_users";

impl Store {
    /// The operator called `name`.
    pub(crate) async fn operator(&self, name: &str) -> Result<Option<OperatorRow>, StoreError> {
        self.find_operator(&format!("{COLUMNS} WHERE name = $1"), name).await
    }

    /// The operator whose token has this hash.
    pub(crate) async fn operator_by_token(&self, hash: &str) -> Result<Option<OperatorRow>, StoreError> {
        self.find_operator(&format!("{COLUMNS} WHERE token_hash = $1"), hash).await
    }

    async fn find_operator(&self, sql: &str, value: &str) -> Result<Option<OperatorRow>, StoreError> {
        let row = sqlx::query(self.sql(sql)).bind(value).fetch_optional(self.pool()).await?;
        Ok(row.as_ref().map(operator).transpose()?)
    }

    /// Creates an operator, or gives one that exists a new password and role. Returns whether it is
    /// new.
    pub(crate) async fn put_operator(
        &self,
        name: &str,
        password_hash: &str,
        role: &str,
    ) -> Result<bool, StoreError> {
        let id = new_id();
        let kept: String = sqlx::query(
            "INSERT INTO admin_users (id, name, password_hash, role, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $5)
             ON CONFLICT (name) DO UPDATE SET password_hash = excluded.password_hash, role = excluded.role,
                 is_enabled = 1, updated_at = excluded.updated_at
             RETURNING id",
        )
        .bind(&id)
        .bind(name)
        .bind(password_hash)
        .bind(role)
        .bind(Self::now_ms())
        .fetch_one(self.pool())
        .await?
        .try_get("id")?;
        Ok(kept == id)
    }

    /// Replaces an operator's token; `false` when there is no such operator.
    pub(crate) async fn set_operator_token(
        &self,
        name: &str,
        hash: &str,
        prefix: &str,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query(
            "UPDATE admin_users SET token_hash = $1, token_prefix = $2, updated_at = $3 WHERE name = $4",
        )
        .bind(hash)
        .bind(prefix)
        .bind(Self::now_ms())
        .bind(name)
        .execute(self.pool())
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// How many operators there are.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn operator_count(&self) -> Result<i64, StoreError> {
        let row = sqlx::query("SELECT COUNT(*) AS count FROM admin_users").fetch_one(self.pool()).await?;
        Ok(row.try_get("count")?)
    }
}

fn operator(row: &AnyRow) -> sqlx::Result<OperatorRow> {
    Ok(OperatorRow {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        password_hash: row.try_get("password_hash")?,
        role: row.try_get("role")?,
        is_enabled: flag(row, "is_enabled")?,
    })
}
