//! The two databases that stories run on: an SQLite file in a temporary folder, and a private
//! PostgreSQL that this process starts once and that stops when the process ends, however it ends.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay::store::Store;
use tempfile::TempDir;

/// A fresh, empty database.
pub(crate) struct Database {
    /// DATABASE_URL of it.
    pub(crate) url: String,
    /// `sqlite` or `postgres`, for messages.
    pub(crate) name: &'static str,
    /// Where an SQLite file lies, as long as the story lasts.
    _folder: TempDir,
}

impl Database {
    /// Opens it; the migrations run the first time.
    pub(crate) async fn open(&self) -> Store {
        Store::open(&self.url, false).await.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// Runs SQL that an operator might write, by a connection of its own.
    pub(crate) async fn sql(&self, text: &str) -> u64 {
        sqlx::any::install_default_drivers();
        let mut connection = <sqlx::AnyConnection as sqlx::Connection>::connect(&self.url)
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let done = sqlx::raw_sql(sqlx::AssertSqlSafe(text.to_owned())).execute(&mut connection).await;
        done.unwrap_or_else(|error| panic!("{}: {text}: {error}", self.name)).rows_affected()
    }

    /// The whole number that a query finds.
    pub(crate) async fn number(&self, query: &str) -> i64 {
        sqlx::any::install_default_drivers();
        let mut connection = <sqlx::AnyConnection as sqlx::Connection>::connect(&self.url)
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let row = sqlx::raw_sql(sqlx::AssertSqlSafe(query.to_owned())).fetch_one(&mut connection).await;
        let row = row.unwrap_or_else(|error| panic!("{}: {query}: {error}", self.name));
        sqlx::Row::try_get(&row, 0).unwrap_or_else(|error| panic!("{}: {query}: {error}", self.name))
    }
}

/// Runs `story` on SQLite, then on PostgreSQL. Without PostgreSQL's server binaries the second half is
/// skipped with a word, except under `CI=true`, where that is a failure.
pub(crate) async fn on_both(story: impl AsyncFn(Database)) {
    story(sqlite()).await;
    match postgres() {
        Some(database) => story(database).await,
        None if std::env::var("CI").is_ok_and(|ci| ci == "true") => panic!("PostgreSQL is not installed"),
        None => eprintln!("skipped on PostgreSQL: its server binaries are not installed"),
    }
}

/// A new SQLite file.
pub(crate) fn sqlite() -> Database {
    let folder = TempDir::new().expect("a temporary folder");
    let url = format!("sqlite:{}/forebay.db", folder.path().display());
    Database { url, name: "sqlite", _folder: folder }
}

/// A new database on the private PostgreSQL.
pub(crate) fn postgres() -> Option<Database> {
    static SERVER: OnceLock<Option<Postgres>> = OnceLock::new();
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let server = SERVER.get_or_init(Postgres::start).as_ref()?;
    let database = format!("story_{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let made = Command::new(server.binaries.join("psql"))
        .args(["-h", "127.0.0.1", "-p", &server.port.to_string(), "-U", "postgres", "-qc"])
        .arg(format!("CREATE DATABASE {database}"))
        .status()
        .expect("psql runs");
    assert!(made.success(), "the database {database} is made");
    let url = format!("postgres://postgres@127.0.0.1:{}/{database}", server.port);
    Some(Database { url, name: "postgres", _folder: TempDir::new().expect("a temporary folder") })
}

struct Postgres {
    binaries: PathBuf,
    port: u16,
    /// Stops the server once its standard input closes, which it does when this process ends.
    _keeper: Child,
}

impl Postgres {
    fn start() -> Option<Self> {
        let binaries = newest(Path::new("/usr/lib/postgresql"))?.join("bin");
        let folder = TempDir::new().ok()?.keep();
        let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        let data = folder.join("data");
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(&folder));
        }
        run(as_postgres(&binaries.join("initdb")).arg("-D").arg(&data).args([
            "-A",
            "trust",
            "-U",
            "postgres",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]));
        let options =
            format!("-p {port} -h 127.0.0.1 -k {} -c fsync=off -c max_connections=200", folder.display());
        run(as_postgres(&binaries.join("pg_ctl"))
            .arg("-D")
            .arg(&data)
            .arg("-l")
            .arg(folder.join("log"))
            .args(["-w", "-o", &options, "start"]));
        let stop = as_postgres(&binaries.join("pg_ctl"));
        let program = stop.get_program().to_string_lossy().into_owned();
        let arguments: Vec<_> =
            stop.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
        let script = format!(
            "trap '' INT; cat >/dev/null; {program} {} -D {} -m immediate stop >/dev/null 2>&1; rm -rf {}",
            arguments.join(" "),
            data.display(),
            folder.display()
        );
        let keeper = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        Some(Self { binaries, port, _keeper: keeper })
    }
}

fn newest(folder: &Path) -> Option<PathBuf> {
    let versions = std::fs::read_dir(folder).ok()?;
    versions
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("bin/initdb").exists())
        .max()
}

/// PostgreSQL refuses to run as root.
fn as_postgres(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--"]).arg(program);
    command
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.starts_with(b"0\n"))
}

fn run(command: &mut Command) {
    let done = command.stdout(Stdio::null()).stderr(Stdio::piped()).output();
    let done = done.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}
