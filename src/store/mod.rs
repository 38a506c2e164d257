//! The database: one set of SQL texts on SQLite and PostgreSQL, one file a table family.
//!
//! Placeholders are `$n`; booleans are BIGINT 0/1, times BIGINT milliseconds UTC, JSON is TEXT.
//! What the two databases spell differently is in [`dialect`] and nowhere else.

pub mod audit;
pub mod batch;
pub mod callers;
pub(crate) mod checkpoint;
pub mod config;
pub mod dialect;
pub mod events;
mod migrate;
pub mod nodes;
pub mod operators;
mod retention;
pub mod sessions;
pub mod tasks;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sqlx::any::{AnyPoolOptions, AnyRow};
use sqlx::{AnyConnection, AnyPool, AssertSqlSafe, Connection, Executor, Row};

pub use dialect::Dialect;

/// Why the database could not do something. No variant holds a URL, which may hold a password.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// DATABASE_URL names neither SQLite nor PostgreSQL.
    #[error("DATABASE_URL must begin with sqlite: or postgres://, not with {0:?}")]
    UnknownDatabase(String),
    /// The folder of the SQLite file could not be made.
    #[error("can't make the folder {path} of the database: {source}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file could not be made.
    #[error("can't make the file {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A migration failed; nothing of it was kept.
    #[error("migration {name} failed: {source}")]
    Migration {
        /// Its file's name.
        name: &'static str,
        /// Why.
        source: sqlx::Error,
    },
    /// The database was written by a newer Forebay.
    #[error("the database is at migration {found}, this Forebay knows {known}: run a newer one")]
    Newer {
        /// The newest migration in the database.
        found: i64,
        /// The newest that this program has.
        known: i64,
    },
    /// A cursor that no page gave out.
    #[error("the cursor is none that a page gave out")]
    Cursor,
    /// A row broke a unique constraint.
    #[error("{0} exists already")]
    Exists(String),
    /// Anything else that the database said.
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
}

/// A pool of connections, and the way to a dedicated one.
#[derive(Clone)]
pub struct Store {
    pool: AnyPool,
    url: Arc<str>,
    dialect: Dialect,
    sqlite_sync_full: bool,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("dialect", &self.dialect).finish_non_exhaustive()
    }
}

/// Makes a folder that nobody else may look into; one that is there stays as it is.
pub fn make_private_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Makes a file that nobody else may read.
///
/// # Errors
/// [`AlreadyExists`](std::io::ErrorKind::AlreadyExists), and what else the file system says.
pub fn make_private_file(path: &Path) -> std::io::Result<File> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

impl Store {
    /// Opens the database at `url`, makes the SQLite file and its folder where they are missing, and
    /// runs the migrations that are due, under a lock. `sqlite_sync_full` makes every commit on
    /// SQLite survive a loss of power, not only the end of the process.
    ///
    /// # Errors
    /// When the URL is neither kind, the folder can't be made, the database does not answer within
    /// ten seconds, or a migration fails.
    pub async fn open(url: &str, sqlite_sync_full: bool) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        let dialect = Dialect::of(url)?;
        let url: Arc<str> = match dialect {
            Dialect::Sqlite => {
                if let Some(file) = sqlite_path(url) {
                    let folder = file.parent().unwrap_or(Path::new("."));
                    make_private_folder(folder)
                        .map_err(|source| StoreError::Folder { path: folder.to_owned(), source })?;
                    // Where this fails, the file is there already or SQLite says what is wrong with it.
                    let _ = make_private_file(&file);
                }
                if url.contains('?') { url.into() } else { format!("{url}?mode=rwc").into() }
            }
            Dialect::Postgres => url.into(),
        };
        let pool = AnyPoolOptions::new()
            .max_connections(if dialect == Dialect::Sqlite { 4 } else { 10 })
            .acquire_timeout(Duration::from_secs(10))
            .after_connect(move |connection, _| {
                Box::pin(async move { prepare(connection, dialect, sqlite_sync_full).await })
            })
            .connect(&url)
            .await?;
        let store = Self { pool, url, dialect, sqlite_sync_full };
        migrate::run(&store).await?;
        Ok(store)
    }

    /// Which database it is.
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The SQLite file; `None` on PostgreSQL and for a database in memory.
    pub fn sqlite_file(&self) -> Option<PathBuf> {
        if self.dialect == Dialect::Sqlite { sqlite_path(&self.url) } else { None }
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// What the database said instead.
    pub async fn ping(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1").execute(&self.pool).await?;
        Ok(())
    }

    /// Copies an SQLite database to `file`, as it is at one moment, while it is in use.
    ///
    /// # Errors
    /// When the file exists or can't be written.
    pub async fn copy_to(&self, file: &Path) -> Result<(), StoreError> {
        make_private_file(file).map_err(|source| StoreError::File { path: file.to_owned(), source })?;
        sqlx::query("VACUUM INTO $1").bind(file.to_string_lossy().into_owned()).execute(&self.pool).await?;
        Ok(())
    }

    /// Closes every connection of the pool, once its query has ended.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// Milliseconds UTC, by the clock of this machine: for the columns that say when a row was made.
    #[expect(
        clippy::disallowed_methods,
        reason = "rows say when they were written, whatever clock the engine runs on"
    )]
    pub fn now_ms() -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    pub(crate) const fn pool(&self) -> &AnyPool {
        &self.pool
    }

    /// A connection of its own, outside the pool, which leaves copying SQLite's log to the
    /// [`checkpoint`]er.
    pub(crate) async fn connect(&self) -> Result<AnyConnection, sqlx::Error> {
        let mut connection = AnyConnection::connect(&self.url).await?;
        prepare(&mut connection, self.dialect, self.sqlite_sync_full).await?;
        if self.dialect == Dialect::Sqlite {
            let log_pages = format!("PRAGMA wal_autocheckpoint = {}", checkpoint::LOG_PAGES);
            connection.execute(AssertSqlSafe(log_pages)).await?;
        }
        Ok(connection)
    }

    /// A transaction that writes: on SQLite it takes the lock at once, so that it never fails half-way
    /// because another writer came first.
    pub(crate) async fn write(&self) -> Result<sqlx::Transaction<'static, sqlx::Any>, StoreError> {
        Ok(self.pool.begin_with(self.dialect.begin_write()).await?)
    }

    /// A transaction that reads one state of the whole database.
    pub(crate) async fn read(&self) -> Result<sqlx::Transaction<'static, sqlx::Any>, StoreError> {
        Ok(self.pool.begin_with(self.dialect.begin_read()).await?)
    }

    /// `text` as this database spells it.
    pub(crate) fn sql(&self, text: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(self.dialect.spell(text))
    }
}

/// What every connection needs before its first query.
async fn prepare(connection: &mut AnyConnection, dialect: Dialect, sync_full: bool) -> sqlx::Result<()> {
    for statement in dialect.preparation(sync_full) {
        connection.execute(*statement).await?;
    }
    Ok(())
}

fn sqlite_path(url: &str) -> Option<PathBuf> {
    let path = url.strip_prefix("sqlite:")?;
    let path = path.strip_prefix("//").unwrap_or(path);
    let path = path.split('?').next().unwrap_or(path);
    (!path.is_empty() && !path.starts_with(":memory:")).then(|| PathBuf::from(path))
}

/// A UUIDv7 as text: the id of a new row.
pub fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// 0 and 1 as the tables keep them.
pub(crate) fn flag(row: &AnyRow, column: &str) -> sqlx::Result<bool> {
    Ok(row.try_get::<i64, _>(column)? != 0)
}

/// Turns a broken unique constraint into [`StoreError::Exists`].
pub(crate) fn exists(what: impl Into<String>) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |error| match &error {
        sqlx::Error::Database(broken) if broken.is_unique_violation() => StoreError::Exists(what.into()),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_an_sqlite_url() {
        for (url, path) in [
            ("sqlite:data/forebay.db", Some("data/forebay.db")),
            ("sqlite:///var/forebay.db?mode=rwc", Some("/var/forebay.db")),
            ("sqlite::memory:", None),
        ] {
            assert_eq!(sqlite_path(url), path.map(PathBuf::from), "{url}");
        }
    }
}
