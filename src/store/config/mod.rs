//! The configuration tables, read whole and written row by row (by [`write`]). What a row holds is said by the
//! fields of its [`Section`], so that a new setting is one line there and one column.

mod write;

use std::collections::{BTreeMap, HashMap};

use forebay_wire::import::{Cell, Field, Kind, Section};
use serde_json::Value;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

pub(crate) use write::{
    delete, insert, set_bindings, set_key, set_model, set_own_keys, set_plan, set_setting, update,
};

use super::{Store, StoreError};

/// The whole configuration, as the tables hold it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration {
    /// Counts every change.
    pub version: i64,
    /// Providers, by key.
    pub providers: Vec<ConfigRow>,
    /// Accounts, by label.
    pub accounts: Vec<ConfigRow>,
    /// Pools, by key.
    pub pools: Vec<ConfigRow>,
    /// Models, by name.
    pub models: Vec<ConfigRow>,
    /// Callers, by name.
    pub callers: Vec<ConfigRow>,
    /// Which accounts serve which models.
    pub bindings: Vec<BindingRow>,
    /// Callers' tokens.
    pub tokens: Vec<TokenRow>,
    /// Settings by dotted name.
    pub settings: BTreeMap<String, Value>,
}

/// A row of one of the sections.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigRow {
    /// Its id.
    pub id: String,
    /// What tells it apart: key, label or name.
    pub name: String,
    /// The columns that are fields of its section.
    pub cells: BTreeMap<&'static str, Cell>,
    /// Milliseconds UTC.
    pub created_at: i64,
    /// Milliseconds UTC.
    pub updated_at: i64,
    /// Account: its key, sealed or (version 0) in the clear.
    pub key: Option<StoredKey>,
    /// Model: the id of its pool.
    pub group_id: Option<String>,
    /// Model: its own keys, in order; used where it has no binding.
    pub own_keys: Vec<OwnKey>,
    /// Model: JSON; its switches are under `routing`.
    pub metadata: Option<String>,
    /// Caller: its plan and the pools it may use (none = all).
    pub plan: Option<Plan>,
}

/// An account's key as it is stored.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredKey {
    /// Sealed, or in the clear.
    pub text: String,
    /// The master key that sealed it; 0 = in the clear.
    pub version: i64,
    /// Counts its replacements.
    pub revision: i64,
}

impl std::fmt::Debug for StoredKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredKey")
            .field("version", &self.version)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

/// A key that belongs to one model alone, as older installations keep them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnKey {
    /// The row's id.
    pub id: String,
    /// The key; its revision is always 1, since another key is another row.
    pub key: StoredKey,
    /// It may be used.
    pub is_enabled: bool,
}

/// Whose a stored key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOf {
    /// An account's.
    Account,
    /// A model's own.
    Model,
}

impl KeyOf {
    /// Its table and column.
    const fn place(self) -> (&'static str, &'static str) {
        match self {
            Self::Account => ("ai_model_api_accounts", "account_key"),
            Self::Model => ("ai_model_api_keys", "api_key"),
        }
    }
}

/// What a caller is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Tasks under way at once.
    pub concurrent_tasks: i64,
    /// Micro-units a month.
    pub monthly_credits: i64,
    /// Pool keys, sorted; none = every pool.
    pub pools: Vec<String>,
}

/// A binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingRow {
    /// The model's id.
    pub model_id: String,
    /// The account's id.
    pub account_id: String,
    /// Lower is used first.
    pub priority: i64,
}

/// A caller's token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// SHA-256 in hexadecimal.
    pub hash: String,
    /// Whose it is.
    pub caller_id: String,
    /// Milliseconds UTC; 0 = never.
    pub expires_at: i64,
}

impl Configuration {
    /// The rows of a section.
    pub fn rows(&self, section: Section) -> &Vec<ConfigRow> {
        match section {
            Section::Providers => &self.providers,
            Section::Accounts => &self.accounts,
            Section::Pools => &self.pools,
            Section::Models => &self.models,
            Section::Callers => &self.callers,
        }
    }

    /// The rows of a section, to change them.
    pub fn rows_mut(&mut self, section: Section) -> &mut Vec<ConfigRow> {
        match section {
            Section::Providers => &mut self.providers,
            Section::Accounts => &mut self.accounts,
            Section::Pools => &mut self.pools,
            Section::Models => &mut self.models,
            Section::Callers => &mut self.callers,
        }
    }

    /// A row by its name.
    pub fn find(&self, section: Section, name: &str) -> Option<&ConfigRow> {
        self.rows(section).iter().find(|row| row.name == name)
    }
}

impl ConfigRow {
    /// Text in a column; empty when there is none.
    pub fn text(&self, column: &str) -> &str {
        self.optional_text(column).unwrap_or_default()
    }

    /// Text in a column.
    pub fn optional_text(&self, column: &str) -> Option<&str> {
        match self.cells.get(column) {
            Some(Cell::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// A whole number in a column.
    pub fn whole(&self, column: &str) -> Option<i64> {
        match self.cells.get(column) {
            Some(Cell::Whole(number)) => Some(*number),
            _ => None,
        }
    }

    /// A number in a column.
    pub fn real(&self, column: &str) -> Option<f64> {
        match self.cells.get(column) {
            Some(Cell::Real(number)) => Some(*number),
            _ => None,
        }
    }

    /// A flag in a column.
    pub fn flag(&self, column: &str) -> bool {
        self.whole(column).unwrap_or_default() != 0
    }
}

/// The table of a section, and its column that tells rows apart.
const fn table(section: Section) -> (&'static str, &'static str) {
    match section {
        Section::Providers => ("ai_providers", "key"),
        Section::Accounts => ("ai_model_api_accounts", "label"),
        Section::Pools => ("ai_model_groups", "group_key"),
        Section::Models => ("ai_models", "name"),
        Section::Callers => ("callers", "name"),
    }
}

impl Store {
    /// Counts every change of configuration, whoever made it.
    pub(crate) async fn config_version(&self) -> Result<i64, StoreError> {
        let row =
            sqlx::query("SELECT version FROM config_version WHERE id = 1").fetch_one(self.pool()).await?;
        Ok(row.try_get("version")?)
    }

    /// The whole configuration at one moment.
    pub(crate) async fn configuration(&self) -> Result<Configuration, StoreError> {
        let mut transaction = self.read().await?;
        let configuration = read_all(&mut transaction).await?;
        transaction.commit().await?;
        Ok(configuration)
    }

    /// Replaces a sealed key by the same key sealed anew, unless it was changed meanwhile; `true` when it
    /// was replaced. Its revision stays: it is the same key.
    pub(crate) async fn reseal_key(
        &self,
        of: KeyOf,
        id: &str,
        old: &StoredKey,
        sealed: &str,
        version: i64,
    ) -> Result<bool, StoreError> {
        let (table, column) = of.place();
        let sql = format!(
            "UPDATE {table} SET {column} = $1, key_version = $2
             WHERE id = $3 AND key_version = $4 AND {column} = $5"
        );
        let done = sqlx::query(AssertSqlSafe(sql))
            .bind(sealed)
            .bind(version)
            .bind(id)
            .bind(old.version)
            .bind(&old.text)
            .execute(self.pool())
            .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Replaces a key in the clear by the same key sealed, unless it was changed meanwhile.
    pub(crate) async fn seal_key(
        &self,
        of: KeyOf,
        id: &str,
        clear: &str,
        sealed: &str,
        version: i64,
    ) -> Result<(), StoreError> {
        let (table, column) = of.place();
        // Another key of an account is another revision; another key of a model is another row.
        let revision = if of == KeyOf::Account { ", key_revision = key_revision + 1" } else { "" };
        let sql = format!(
            "UPDATE {table} SET {column} = $1, key_version = $2{revision}
             WHERE id = $3 AND key_version = 0 AND {column} = $4"
        );
        sqlx::query(AssertSqlSafe(sql))
            .bind(sealed)
            .bind(version)
            .bind(id)
            .bind(clear)
            .execute(self.pool())
            .await?;
        Ok(())
    }
}

/// Reads everything inside a transaction.
pub(crate) async fn read_all(connection: &mut AnyConnection) -> Result<Configuration, StoreError> {
    let version = sqlx::query("SELECT version FROM config_version WHERE id = 1")
        .fetch_one(&mut *connection)
        .await?
        .try_get("version")?;
    let mut configuration = Configuration { version, ..Configuration::default() };
    for section in Section::ALL {
        let (table, identity) = table(section);
        let sql = format!("SELECT * FROM {table} ORDER BY {identity}");
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&mut *connection).await?;
        let rows = rows.iter().map(|row| read_row(section, row)).collect::<sqlx::Result<Vec<_>>>()?;
        *configuration.rows_mut(section) = rows;
    }
    let bindings = "SELECT model_id, account_id, priority FROM ai_model_account_bindings
                    ORDER BY model_id, priority, account_id";
    for row in &sqlx::query(bindings).fetch_all(&mut *connection).await? {
        configuration.bindings.push(BindingRow {
            model_id: row.try_get("model_id")?,
            account_id: row.try_get("account_id")?,
            priority: row.try_get("priority")?,
        });
    }
    let mut own_keys: HashMap<String, Vec<OwnKey>> = HashMap::new();
    let text = "SELECT id, model_id, api_key, key_version, is_enabled FROM ai_model_api_keys
                ORDER BY model_id, position, id";
    for row in &sqlx::query(text).fetch_all(&mut *connection).await? {
        let key =
            StoredKey { text: row.try_get("api_key")?, version: row.try_get("key_version")?, revision: 1 };
        let is_enabled = row.try_get::<i64, _>("is_enabled")? != 0;
        let key = OwnKey { id: row.try_get("id")?, key, is_enabled };
        own_keys.entry(row.try_get("model_id")?).or_default().push(key);
    }
    for model in &mut configuration.models {
        model.own_keys = own_keys.remove(&model.id).unwrap_or_default();
    }
    let mut plans: HashMap<String, Plan> = HashMap::new();
    let text = "SELECT caller_id, concurrent_tasks, monthly_credits FROM member_plans";
    for row in &sqlx::query(text).fetch_all(&mut *connection).await? {
        let plan = plans.entry(row.try_get("caller_id")?).or_default();
        plan.concurrent_tasks = row.try_get("concurrent_tasks")?;
        plan.monthly_credits = row.try_get("monthly_credits")?;
    }
    let mut allowed: HashMap<String, Vec<String>> = HashMap::new();
    let text = "SELECT caller_id, group_key FROM caller_pools ORDER BY caller_id, group_key";
    for row in &sqlx::query(text).fetch_all(&mut *connection).await? {
        allowed.entry(row.try_get("caller_id")?).or_default().push(row.try_get("group_key")?);
    }
    for caller in &mut configuration.callers {
        // A caller that hand-written SQL made has the default plan.
        let plan = plans.remove(&caller.id).unwrap_or(Plan { concurrent_tasks: 10, ..Plan::default() });
        caller.plan = Some(Plan { pools: allowed.remove(&caller.id).unwrap_or_default(), ..plan });
    }
    for row in &sqlx::query("SELECT hash, caller_id, expires_at FROM caller_tokens")
        .fetch_all(&mut *connection)
        .await?
    {
        configuration.tokens.push(TokenRow {
            hash: row.try_get("hash")?,
            caller_id: row.try_get("caller_id")?,
            expires_at: row.try_get("expires_at")?,
        });
    }
    for row in &sqlx::query("SELECT key, value FROM settings").fetch_all(&mut *connection).await? {
        let value: String = row.try_get("value")?;
        // Text that is no JSON is a string that hand-written SQL left unquoted.
        let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
        configuration.settings.insert(row.try_get("key")?, value);
    }
    Ok(configuration)
}

fn read_row(section: Section, row: &AnyRow) -> sqlx::Result<ConfigRow> {
    let (_, identity) = table(section);
    let mut cells = BTreeMap::new();
    for field in section.fields() {
        cells.insert(field.name, read_cell(field, row)?);
    }
    Ok(ConfigRow {
        id: row.try_get("id")?,
        name: row.try_get(identity)?,
        cells,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
        key: match section {
            Section::Accounts => Some(StoredKey {
                text: row.try_get("account_key")?,
                version: row.try_get("key_version")?,
                revision: row.try_get("key_revision")?,
            }),
            _ => None,
        },
        own_keys: Vec::new(),
        group_id: if section == Section::Models { row.try_get("group_id")? } else { None },
        metadata: if section == Section::Models { row.try_get("metadata")? } else { None },
        plan: None,
    })
}

/// How a field is stored.
#[derive(Clone, Copy)]
enum Stored {
    Text,
    Whole,
    Real,
}

const fn stored(kind: Kind) -> Stored {
    match kind {
        Kind::Flag | Kind::Whole(..) | Kind::OptionalWhole(..) | Kind::Weight | Kind::Priority => {
            Stored::Whole
        }
        Kind::Real(..) | Kind::OptionalRate => Stored::Real,
        _ => Stored::Text,
    }
}

fn read_cell(field: &Field, row: &AnyRow) -> sqlx::Result<Cell> {
    Ok(match stored(field.kind) {
        Stored::Whole => row.try_get::<Option<i64>, _>(field.name)?.map(Cell::Whole),
        Stored::Real => row.try_get::<Option<f64>, _>(field.name)?.map(Cell::Real),
        Stored::Text => row.try_get::<Option<String>, _>(field.name)?.map(Cell::Text),
    }
    .unwrap_or(Cell::Null))
}
