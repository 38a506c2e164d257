//! The demo: a simulator, three pools on it, an operator, a caller, and a little traffic.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use forebay_wire::import::Problem;
use secrecy::SecretString;
use serde_json::json;

use crate::auth::tokens::{self, NewToken};
use crate::auth::{Role, password};
use crate::catalog::{Author, Catalog, CatalogError};
use crate::config::Settings;
use crate::simulator::Simulator;
use crate::store::{Store, StoreError};
use crate::{Outside, Server, StartError};

/// Who the demo's edits are by, in the audit log.
const AUTHOR: Author<'static> = Author("demo");
const CALLER: &str = "demo-team";

/// How the demo is run.
#[derive(Args, Clone, Copy, Debug)]
pub struct Options {
    /// Where the simulated upstream listens; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:9100", value_name = "HOST:PORT")]
    pub simulator_addr: SocketAddr,
    /// Requests a second that the demo itself sends, so that there is something to see
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=100), value_name = "N")]
    pub traffic: u32,
    /// Say where it is as one line of JSON, for a script to read
    #[arg(long)]
    pub json: bool,
}

/// Why the demo did not start.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The server.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The configuration.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The simulator.
    #[error("the simulator can't listen on {addr}: {source}; choose another with --simulator-addr")]
    Simulator {
        /// Its address.
        addr: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The temporary folder.
    #[error("{path}: {source}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A password could not be hashed.
    #[error("the operator's password could not be hashed")]
    Password,
}

/// Runs the demo until `stop` resolves. Its data is gone afterwards, unless `settings` name a folder
/// or a database of their own.
pub async fn run(
    mut settings: Settings,
    keep_data: bool,
    options: Options,
    stop: impl Future<Output = ()>,
) -> Result<(), DemoError> {
    let folder = std::env::temp_dir().join(format!("forebay-demo-{}", std::process::id()));
    if !keep_data {
        std::fs::create_dir_all(&folder)
            .map_err(|source| DemoError::Folder { path: folder.clone(), source })?;
        settings.database_url = format!("sqlite:{}", folder.join("forebay.db").display());
        settings.data_dir.clone_from(&folder);
    }
    let simulator = Simulator::start(options.simulator_addr)
        .await
        .map_err(|source| DemoError::Simulator { addr: options.simulator_addr, source })?;
    let server = Server::build(&settings, Outside::default()).await?;
    let seeded = seed(&server, &pools(&simulator.base_url())).await?;
    if options.json {
        println!("{}", facts(&server, &simulator, &seeded));
    } else {
        greet(&server, &simulator, &seeded);
    }
    if options.traffic > 0 {
        tokio::spawn(traffic(server.addr(), seeded.token.clone(), options.traffic));
    }
    server.serve(stop).await;
    if !keep_data {
        // A temporary folder that stays does no harm.
        let _ = std::fs::remove_dir_all(&folder);
    }
    Ok(())
}

/// What [`seed`] made.
#[derive(Clone, Debug)]
pub struct Seeded {
    /// The operator's name.
    pub operator: &'static str,
    /// Its password.
    pub password: String,
    /// The caller's token.
    pub token: String,
}

/// Imports `file`, and makes the operator `admin` and the caller `demo-team` with 100 credits.
///
/// # Errors
/// What of it could not be made.
pub async fn seed(server: &Server, file: &str) -> Result<Seeded, DemoError> {
    let document = forebay_wire::import::parse(file, &|name| std::env::var(name).ok()).map_err(invalid)?;
    server.catalog().import(&document, AUTHOR, false).await?;
    let callers =
        json!({"callers": [{"name": CALLER, "plan": {"concurrent_tasks": 1_000}, "credits": "100"}]});
    let callers = forebay_wire::import::parse_value(&callers).map_err(invalid)?;
    server.catalog().import(&callers, AUTHOR, false).await?;
    let token = issue_token(server.store(), server.catalog(), CALLER).await?;
    let password = NewToken::random("").token;
    let hash = password::hash(password.clone()).await.ok_or(DemoError::Password)?;
    server.store().put_operator("admin", &hash, Role::Admin.as_str()).await?;
    Ok(Seeded { operator: "admin", password, token })
}

/// Makes a token for a caller, which is shown this once.
async fn issue_token(store: &Store, catalog: &Catalog, caller: &str) -> Result<String, DemoError> {
    let id =
        store.caller_id(caller).await?.ok_or_else(|| CatalogError::Missing(format!("caller {caller}")))?;
    let token = NewToken::random(tokens::CALLER);
    store.add_caller_token(&id, &token.hash, &token.prefix, 0).await?;
    catalog.reload().await?;
    Ok(token.token)
}

fn invalid(problems: Vec<Problem>) -> DemoError {
    CatalogError::Invalid(problems).into()
}

/// Text pools with weights within one tier, with two tiers, and with a member that fails now and then;
/// and one pool for every other capability.
fn pools(base_url: &str) -> String {
    let account = |label: &str| json!({"label": label, "provider": "sim", "account_key": format!("sk-demo-{label}"), "max_rps": 500});
    let model = |name: &str, upstream: &str, pool: &str, weight: u32, priority: u32, account: &str| {
        json!({"name": name, "provider": "sim", "upstream_model": upstream, "capability": "text", "pool": pool,
               "weight": weight, "priority": priority, "max_concurrency": 100,
               "prices": {"input_per_1m": "0.10", "output_per_1m": "0.30"},
               "accounts": [{"label": account, "priority": 0}]})
    };
    let pool = |key: &str, name: &str, threshold: u32, recovery: u32| {
        json!({"group_key": key, "name": name, "capability": "text", "circuit_failure_threshold": threshold,
               "circuit_recovery_seconds": recovery, "price": {"input_per_1m": "0.50", "output_per_1m": "1.50"}})
    };
    let mut pools = vec![
        pool("main_text", "Main text", 5, 20),
        pool("tiered_text", "Two tiers", 5, 60),
        pool("shaky_text", "With a shaky member", 2, 30),
    ];
    let mut models = vec![
        model("main-small", "small", "main_text", 1, 0, "sim-a"),
        model("main-medium", "medium", "main_text", 3, 0, "sim-b"),
        model("main-large", "large", "main_text", 6, 0, "sim-c"),
        model("tier-first", "first", "tiered_text", 1, 0, "sim-a"),
        model("tier-second", "slow-300", "tiered_text", 1, 1, "sim-b"),
        model("shaky-one", "flaky-40", "shaky_text", 1, 0, "sim-a"),
        model("steady-one", "steady", "shaky_text", 1, 0, "sim-c"),
    ];
    let mut defaults = json!({"text": "main_text"});
    for (capability, unit, price, cost) in CAPABILITIES {
        let key = format!("main_{capability}");
        pools.push(json!({"group_key": key, "name": format!("Main {capability}"), "capability": capability,
                          "price": {unit: price}}));
        for (name, account) in [("one", "sim-a"), ("two", "sim-b")] {
            models.push(
                json!({"name": format!("{capability}-{name}"), "provider": "sim", "capability": capability,
                               "pool": key, "max_concurrency": 100, "prices": {unit: cost},
                               "features": {"image_edit": capability == "image"},
                               "accounts": [{"label": account, "priority": 0}]}),
            );
        }
        defaults[capability] = json!(key);
    }
    json!({
        "providers": [{"key": "sim", "name": "Simulator", "protocol": "openai", "base_url": base_url,
                       "tier": "other", "allow_private_network": true}],
        "accounts": [account("sim-a"), account("sim-b"), account("sim-c")],
        "pools": pools,
        "models": models,
        "settings": {"default_pool": defaults},
    })
    .to_string()
}

/// The other capabilities: what is paid for, what callers pay for it, and what we pay.
const CAPABILITIES: [(&str, &str, &str, &str); 6] = [
    ("image", "per_image", "0.04", "0.02"),
    ("audio", "per_1k_characters", "0.02", "0.01"),
    ("embedding", "input_per_1m", "0.10", "0.02"),
    ("rerank", "per_rerank_unit", "0.002", "0.001"),
    ("moderation", "per_request", "0.0001", "0"),
    ("speech2text", "per_audio_second", "0.0002", "0.0001"),
];

fn facts(server: &Server, simulator: &Simulator, seeded: &Seeded) -> serde_json::Value {
    json!({
        "url": server.public_url(),
        "admin": seeded.operator,
        "password": seeded.password,
        "token": seeded.token,
        "simulator": format!("http://{}", simulator.address()),
    })
}

fn greet(server: &Server, simulator: &Simulator, seeded: &Seeded) {
    let (addr, sim, console) = (server.addr(), simulator.address(), server.public_url());
    let Seeded { operator, password, token } = seeded;
    println!(
        r#"
Forebay is running.

  console    {console}/admin   ({operator} / {password})
  token      {token}

Send a generation:

  curl -s http://{addr}/api/generate -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json' \
    -d '{{"model_group": "main_text", "input": {{"messages": [{{"role": "user", "content": "hi"}}]}}}}'

Break an upstream, and mend it again:

  curl -s -X PUT http://{sim}/control/large -H 'Content-Type: application/json' -d '{{"behaviour": "500"}}'
  curl -s -X PUT http://{sim}/control/large -H 'Content-Type: application/json' -d '{{"behaviour": "ok"}}'

Ctrl-C stops it."#
    );
}

/// A little traffic over all pools, for as long as the demo runs.
async fn traffic(addr: SocketAddr, token: String, per_second: u32) {
    let token = SecretString::from(token);
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, addr.port()));
    let client = reqwest::Client::builder().no_proxy().build().unwrap_or_default();
    let url: Arc<str> = format!("http://{addr}/api/generate").into();
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / per_second);
    for pool in ["main_text", "main_text", "tiered_text", "shaky_text"].into_iter().cycle() {
        ticks.tick().await;
        let body = json!({"model_group": pool, "input": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 64}});
        let request = client
            .post(&*url)
            .bearer_auth(secrecy::ExposeSecret::expose_secret(&token))
            .header("content-type", "application/json")
            .body(body.to_string());
        tokio::spawn(async move {
            // What comes of it is to be seen in the console.
            let _ = request.send().await;
        });
    }
}
