//! The commands that work on the database directly, also while a server runs on it: the server takes
//! the change within two seconds.

mod print;
mod providers;
mod smoke;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use forebay_engine::clock::TokioClock;
use forebay_engine::{LocalState, State};
use forebay_wire::import::{self, Section};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::auth::tokens::{self, NewToken};
use crate::auth::{KeyRing, Role, SecretsError, password};
use crate::catalog::{Author, Catalog, CatalogError, UrlGuard};
use crate::ledger::Micros;
use crate::store::{Dialect, Store, StoreError};
use print::Printer;

/// Who the audit log says it was.
const BY: Author<'static> = Author("command line");

/// What a new caller begins with, unless it is said.
const CREDITS: &str = "100";

/// What the commands need to know.
#[derive(Clone)]
pub struct Settings {
    /// DATABASE_URL.
    pub database_url: String,
    /// FOREBAY_SQLITE_SYNC is `full`.
    pub sqlite_sync_full: bool,
    /// FOREBAY_MASTER_KEYS.
    pub master_keys: Option<SecretString>,
    /// FOREBAY_ADDR.
    pub addr: std::net::SocketAddr,
    /// Checks URLs as they are saved.
    pub guard: Option<UrlGuard>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("sqlite_sync_full", &self.sqlite_sync_full).finish_non_exhaustive()
    }
}

/// A command on the database.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Apply an import file (YAML or JSON; `${NAME}` reads the environment), whole or nothing
    Import {
        /// The file; - reads standard input
        file: PathBuf,
        /// Only say what would change
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Print the configuration as an import file; keys are masked
    Export,
    /// Operators
    #[command(subcommand)]
    Admin(AdminCommand),
    /// Callers
    #[command(subcommand)]
    Caller(CallerCommand),
    /// Look whether database, keys and configuration are in order
    Check {
        /// Also ask every provider: its name, certificate, latency and each key
        #[arg(long)]
        providers: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Send one small task of every capability through a running server, and show its chain
    Smoke {
        /// Where the server is [http://FOREBAY_ADDR]
        #[arg(long)]
        url: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Seal every upstream key with the newest key of FOREBAY_MASTER_KEYS; may be stopped and run again
    RotateKeys {
        #[command(flatten)]
        output: Output,
    },
    /// Copy the SQLite database to a file, while it is in use
    Backup {
        /// Where to; must not exist
        file: PathBuf,
        #[command(flatten)]
        output: Output,
    },
}

/// A command on operators.
#[derive(Clone, Debug, Subcommand)]
pub enum AdminCommand {
    /// Create an operator, or give one that exists a new password and role
    Create {
        /// The name used at login
        name: String,
        /// Read the password from standard input; without it one is made and printed
        #[arg(long)]
        password_stdin: bool,
        /// admin changes things, viewer looks at them [admin, or the role that an operator has]
        #[arg(long, value_parser = ["admin", "viewer"])]
        role: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Make a new API token for an operator; an older one ends
    Token {
        /// The operator
        name: String,
        #[command(flatten)]
        output: Output,
    },
}

/// A command on callers.
#[derive(Clone, Debug, Subcommand)]
pub enum CallerCommand {
    /// Create a caller and print its token; one that exists gets a further token
    Create {
        /// The caller's name
        name: String,
        /// Credits to begin with; only for a new caller [100]
        #[arg(long)]
        credits: Option<String>,
        /// Tasks under way at once [10]
        #[arg(long)]
        concurrent_tasks: Option<u32>,
        #[command(flatten)]
        output: Output,
    },
}

/// How a command answers.
#[derive(Args, Clone, Copy, Debug)]
pub struct Output {
    /// Answer in JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Secrets(#[from] SecretsError),
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error("{0}")]
    Said(String),
}

/// Runs a command: 0 when it did what it was asked, 1 when it could not, with why on standard error.
pub async fn run(command: Command, settings: &Settings) -> ExitCode {
    match run_command(command, settings).await {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("forebay: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run_command(command: Command, settings: &Settings) -> Result<ExitCode, Failure> {
    match command {
        Command::Import { file, dry_run, output } => import_file(settings, &file, dry_run, output).await?,
        Command::Export => {
            let catalog = open(settings).await?.catalog;
            println!("{}", pretty(&catalog.export()));
        }
        Command::Admin(AdminCommand::Create { name, password_stdin, role, output }) => {
            create_admin(settings, &name, password_stdin, role.as_deref(), output).await?;
        }
        Command::Admin(AdminCommand::Token { name, output }) => admin_token(settings, &name, output).await?,
        Command::Caller(CallerCommand::Create { name, credits, concurrent_tasks, output }) => {
            create_caller(settings, &name, credits, concurrent_tasks, output).await?;
        }
        Command::Check { providers, output } => return Ok(check(settings, providers, output).await),
        Command::Smoke { url, output } => return smoke::run(settings, url, output).await,
        Command::RotateKeys { output } => return rotate_keys(settings, output).await,
        Command::Backup { file, output } => backup(settings, &file, output).await?,
    }
    Ok(ExitCode::SUCCESS)
}

struct Opened {
    store: Store,
    catalog: Arc<Catalog>,
}

async fn open(settings: &Settings) -> Result<Opened, Failure> {
    let store = Store::open(&settings.database_url, settings.sqlite_sync_full).await?;
    let keys = KeyRing::load(settings.master_keys.as_ref().map(ExposeSecret::expose_secret), &store)?;
    let state: Arc<dyn State> = Arc::new(LocalState::new());
    let clock = Arc::new(TokioClock::new());
    let catalog = Catalog::open(store.clone(), keys, state, clock, settings.guard.clone()).await?;
    Ok(Opened { store, catalog })
}

async fn import_file(
    settings: &Settings,
    file: &PathBuf,
    dry_run: bool,
    output: Output,
) -> Result<(), Failure> {
    let text = if file.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(file)
    };
    let text = text.map_err(|error| Failure::Said(format!("{}: {error}", file.display())))?;
    let document = import::parse(&text, &|name| std::env::var(name).ok())
        .map_err(|problems| Failure::Catalog(CatalogError::Invalid(problems)))?;
    let catalog = open(settings).await?.catalog;
    let difference = catalog.import(&document, BY, dry_run).await?;
    let warnings = catalog.warnings(&difference).await;
    let printer = Printer::new(output);
    printer.json(&json!({ "dry_run": dry_run, "changes": difference.changes, "warnings": warnings }));
    for change in &difference.changes {
        printer.line(&format!("{} {}", change.action, change.object));
        if change.action == "change" {
            printer.fields(&change.before, &change.after);
        }
    }
    for warning in &warnings {
        printer.line(&format!("warning: {warning}"));
    }
    printer.line(&match (difference.changes.len(), dry_run) {
        (0, _) => "nothing changes".to_owned(),
        (n, true) => format!("{n} rows would change"),
        (n, false) => format!("{n} rows changed"),
    });
    Ok(())
}

async fn create_admin(
    settings: &Settings,
    name: &str,
    password_stdin: bool,
    role: Option<&str>,
    output: Output,
) -> Result<(), Failure> {
    if name.is_empty() || name.trim() != name || name.chars().any(char::is_control) {
        return Err(Failure::Said("the name must not be empty, nor have spaces around it".into()));
    }
    let (secret, made) = if password_stdin {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(|error| Failure::Said(error.to_string()))?;
        (text.trim_end_matches(['\r', '\n']).to_owned(), false)
    } else {
        (NewToken::random("").token.chars().take(20).collect(), true)
    };
    if secret.chars().count() < password::SHORTEST {
        return Err(Failure::Said(format!(
            "the password must have at least {} characters",
            password::SHORTEST
        )));
    }
    let store = Store::open(&settings.database_url, settings.sqlite_sync_full).await?;
    let kept = store.operator(name).await?.map(|operator| operator.role);
    let role: Role = role
        .or(kept.as_deref())
        .unwrap_or("admin")
        .parse()
        .map_err(|error: forebay_engine::policy::Invalid| Failure::Said(error.to_string()))?;
    let hash = password::hash(secret.clone()).await;
    let hash = hash.ok_or_else(|| Failure::Said("the password could not be hashed".into()))?;
    let is_new = store.put_operator(name, &hash, role.as_str()).await?;
    store.delete_sessions_of(name).await?;
    let after = json!({ "role": role.as_str() }).to_string();
    store
        .audit(
            BY.0,
            if is_new { "create" } else { "change" },
            &format!("operator {name}"),
            None,
            Some(&after),
        )
        .await?;
    let printer = Printer::new(output);
    let done = if is_new { "created" } else { "changed" };
    printer.json(&json!({
        "operator": name, "role": role.as_str(), "created": is_new, "password": made.then_some(&secret),
    }));
    printer.line(&format!("{done} {} {name}", role.as_str()));
    if made {
        printer.line("its password, shown only now:");
        printer.line(&secret);
    }
    Ok(())
}

async fn admin_token(settings: &Settings, name: &str, output: Output) -> Result<(), Failure> {
    let store = Store::open(&settings.database_url, settings.sqlite_sync_full).await?;
    let new = NewToken::random(tokens::OPERATOR);
    if !store.set_operator_token(name, &new.hash, &new.prefix).await? {
        return Err(Failure::Said(format!(
            "there is no operator {name}; make one with: forebay admin create {name}"
        )));
    }
    let after = json!({ "prefix": new.prefix }).to_string();
    store.audit(BY.0, "create token", &format!("operator {name}"), None, Some(&after)).await?;
    let printer = Printer::new(output);
    printer.json(&json!({ "operator": name, "token": new.token }));
    printer.line(&format!("a new token for {name}, shown only now; older ones have ended:"));
    printer.line(&new.token);
    Ok(())
}

async fn create_caller(
    settings: &Settings,
    name: &str,
    credits: Option<String>,
    concurrent_tasks: Option<u32>,
    output: Output,
) -> Result<(), Failure> {
    let Opened { store, catalog } = open(settings).await?;
    let is_new = catalog.caller_id(name).is_err();
    let mut row = json!({});
    if let Some(credits) = credits.or(is_new.then(|| CREDITS.to_owned())) {
        row["credits"] = credits.into();
    }
    if let Some(concurrent_tasks) = concurrent_tasks {
        row["plan"] = json!({ "concurrent_tasks": concurrent_tasks });
    }
    let item = import::parse_row(Section::Callers, name, &row).map_err(CatalogError::Invalid)?;
    catalog.put(item, BY).await?;
    let new = catalog.issue_token(name, 0, BY).await?;
    let id = catalog.caller_id(name)?;
    let balance = Micros(store.balances().await?.get(&id).copied().unwrap_or_default());
    let printer = Printer::new(output);
    printer.json(&json!({ "caller": name, "created": is_new, "credits": balance, "token": new.token }));
    printer.line(&match is_new {
        true => format!("created {name} with {balance} credits"),
        false => format!("{name} exists and has {balance} credits"),
    });
    printer.line("its token, shown only now:");
    printer.line(&new.token);
    Ok(())
}

/// What was looked at, and what was found: in order, or what is wrong.
type Checked = (String, Result<String, String>);

/// 0 when everything is in order, 1 with what is wrong.
async fn check(settings: &Settings, with_providers: bool, output: Output) -> ExitCode {
    let mut checks: Vec<Checked> = Vec::new();
    // Looking must make nothing: no folder, no database, no key.
    let missing = settings.database_url.strip_prefix("sqlite:").filter(|path| !Path::new(path).exists());
    if let Some(path) = missing {
        let why = format!("there is none at {path} yet; forebay import or forebay serve makes it");
        checks.push(("database".into(), Err(why)));
        return report(&checks, output);
    }
    match Store::open(&settings.database_url, settings.sqlite_sync_full).await {
        Err(error) => checks.push(("database".into(), Err(error.to_string()))),
        Ok(store) => {
            let kind = if store.dialect() == Dialect::Sqlite { "SQLite" } else { "PostgreSQL" };
            checks.push(("database".into(), Ok(format!("{kind} answers, migrated"))));
            checks.push((
                "credits".into(),
                match store.credit_differences().await {
                    Ok(differences) if differences.is_empty() => {
                        Ok("balances are what the ledger adds up to".into())
                    }
                    Ok(differences) => {
                        Err(format!("{} balances differ from their ledger", differences.len()))
                    }
                    Err(error) => Err(error.to_string()),
                },
            ));
            checks.push((
                "operators".into(),
                match store.operator_count().await {
                    Ok(0) => {
                        Err("nobody can log in; make an operator with: forebay admin create NAME".into())
                    }
                    Ok(n) => Ok(format!("{n} can log in")),
                    Err(error) => Err(error.to_string()),
                },
            ));
            store.close().await;
            match open(settings).await {
                Err(error) => checks.push(("configuration".into(), Err(error.to_string()))),
                Ok(Opened { catalog, .. }) => {
                    let snapshot = catalog.snapshot();
                    let (pools, models) = (snapshot.pools.len(), snapshot.alone.len());
                    checks.push((
                        "configuration".into(),
                        Ok(format!("{pools} active pools, {models} usable models")),
                    ));
                    let broken: Vec<String> = snapshot
                        .rows
                        .accounts
                        .iter()
                        .filter_map(|row| {
                            let id = forebay_engine::AccountId(row.id.as_str().into());
                            Some(format!("account {}: {}", row.name, snapshot.account_problems.get(&id)?))
                        })
                        .collect();
                    let keys =
                        if broken.is_empty() { Ok("all open".to_owned()) } else { Err(broken.join("; ")) };
                    checks.push(("keys".into(), keys));
                    if with_providers {
                        checks.extend(providers::check(&snapshot).await);
                    }
                }
            }
        }
    }
    report(&checks, output)
}

/// Says what was checked; 1 when something is wrong.
fn report(checks: &[Checked], output: Output) -> ExitCode {
    let printer = Printer::new(output);
    let is_well = checks.iter().all(|(_, result)| result.is_ok());
    let shown: Vec<Value> = checks
        .iter()
        .map(|(name, result)| {
            let (text, ok) = match result {
                Ok(text) => (text, true),
                Err(text) => (text, false),
            };
            printer.line(&format!("{} {name}: {text}", if ok { "ok  " } else { "WRONG" }));
            json!({ "check": name, "ok": ok, "message": text })
        })
        .collect();
    printer.json(&json!({ "ok": is_well, "checks": shown }));
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn rotate_keys(settings: &Settings, output: Output) -> Result<ExitCode, Failure> {
    let rotated = open(settings).await?.catalog.rotate_keys().await?;
    let printer = Printer::new(output);
    printer.json(&json!({ "resealed": rotated.resealed, "left": rotated.left, "lost": rotated.lost }));
    printer.line(&format!("{} keys sealed anew, {} left as they are", rotated.resealed, rotated.left));
    for whose in &rotated.lost {
        printer
            .line(&format!("WRONG {whose} does not open; put its master key back, or enter the key again"));
    }
    Ok(if rotated.lost.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn backup(settings: &Settings, file: &PathBuf, output: Output) -> Result<(), Failure> {
    let store = Store::open(&settings.database_url, settings.sqlite_sync_full).await?;
    if store.sqlite_file().is_none() {
        return Err(Failure::Said("back PostgreSQL up with pg_dump".into()));
    }
    store.copy_to(file).await?;
    let printer = Printer::new(output);
    printer.json(&json!({ "file": file }));
    printer.line(&format!("copied the database to {}", file.display()));
    printer.line("the key file beside the database is not in it: keep it, too, but elsewhere");
    Ok(())
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
