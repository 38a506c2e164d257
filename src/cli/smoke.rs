//! `forebay smoke`: one small task of every capability through a running server, and what became of it.

use std::process::ExitCode;
use std::time::Duration;

use forebay_engine::Capability;
use forebay_wire::import::{Section, parse_row};
use serde_json::{Value, json};

use super::print::Printer;
use super::{BY, Failure, Opened, Output, Settings, open};
use crate::catalog::{CatalogError, Snapshot};
use crate::exchange::smallest_input;
use crate::store::Store;

/// The caller that the tasks are sent as; it is made when it is not there, with a little credit.
const CALLER: &str = "smoke";
const CREDITS: &str = "10";
/// The token that is made for a run ends by itself after this.
const TOKEN_LIFE: Duration = Duration::from_secs(600);
/// How long the server may take to see the new token.
const SEEN_WITHIN: Duration = Duration::from_secs(10);
/// How long a task may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// 0 when every capability that has a pool answered, 1 otherwise.
pub(super) async fn run(
    settings: &Settings,
    url: Option<String>,
    output: Output,
) -> Result<ExitCode, Failure> {
    let Opened { store, catalog } = open(settings).await?;
    let url = url.unwrap_or_else(|| format!("http://{}", settings.addr));
    let row = if catalog.caller_id(CALLER).is_ok() { json!({}) } else { json!({"credits": CREDITS}) };
    catalog.put(parse_row(Section::Callers, CALLER, &row).map_err(CatalogError::Invalid)?, BY).await?;
    let expires = Store::now_ms() + TOKEN_LIFE.as_millis() as i64;
    let token = catalog.issue_token(CALLER, expires, BY).await?;
    let server = Server { url, token: token.token.clone(), client: client()? };
    let printer = Printer::new(output);
    let mut results = Vec::new();
    let seen = server.wait_until_known().await;
    if seen.is_ok() {
        let snapshot = catalog.snapshot();
        for capability in Capability::ALL {
            let Some(pool) = pool_of(&snapshot, capability) else { continue };
            let Some(input) = smallest_input(capability) else { continue };
            let result = server.generate(&pool, input).await;
            results.push(show(&printer, &store, capability, &pool, result).await?);
        }
    }
    // A token that is left behind ends by itself.
    let _ = catalog.revoke_tokens(CALLER, &token.prefix, BY).await;
    seen?;
    let is_well = results.iter().all(|result| result["ok"] == true);
    printer.json(&json!({"ok": is_well, "tasks": results}));
    printer.line(&format!(
        "{} capabilities, {}",
        results.len(),
        if is_well { "all answered" } else { "not all answered" }
    ));
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn client() -> Result<reqwest::Client, Failure> {
    let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build();
    client.map_err(|error| Failure::Said(error.to_string()))
}

struct Server {
    url: String,
    token: String,
    client: reqwest::Client,
}

impl Server {
    /// A running server takes a change of configuration within two seconds.
    async fn wait_until_known(&self) -> Result<(), Failure> {
        let until = tokio::time::Instant::now() + SEEN_WITHIN;
        loop {
            let asked =
                self.client.get(format!("{}/v1/models", self.url)).bearer_auth(&self.token).send().await;
            match asked {
                Ok(response) if response.status().is_success() => return Ok(()),
                Ok(response) if tokio::time::Instant::now() > until => {
                    let status = response.status();
                    return Err(Failure::Said(format!(
                        "{} does not know the token that was just made ({status}): does it use this database?",
                        self.url
                    )));
                }
                Err(error) if error.is_connect() => {
                    return Err(Failure::Said(format!(
                        "nobody answers at {}; start it with: forebay serve",
                        self.url
                    )));
                }
                _ => tokio::time::sleep(Duration::from_millis(250)).await,
            }
        }
    }

    /// The body of the answer, and its status.
    async fn generate(&self, pool: &str, input: Value) -> Result<(u16, Value), String> {
        let body = json!({"model_group": pool, "input": input});
        let sent = self.client.post(format!("{}/api/generate", self.url)).bearer_auth(&self.token);
        let sent = sent.header("content-type", "application/json").body(body.to_string()).send().await;
        let response = sent.map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let text = response.text().await.map_err(|error| error.to_string())?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }
}

/// The default pool of a capability, else its first one.
fn pool_of(snapshot: &Snapshot, capability: Capability) -> Option<String> {
    let default = snapshot.settings.default_pool.get(capability.as_str()).cloned();
    default.or_else(|| {
        snapshot.pool_configs().find(|pool| pool.capability == capability).map(|pool| pool.key.to_string())
    })
}

/// Prints a task and its chain.
async fn show(
    printer: &Printer,
    store: &Store,
    capability: Capability,
    pool: &str,
    result: Result<(u16, Value), String>,
) -> Result<Value, Failure> {
    let (status, body) = match result {
        Ok(answered) => answered,
        Err(why) => {
            printer.line(&format!("WRONG {capability} ({pool}): {why}"));
            return Ok(json!({"capability": capability.as_str(), "pool": pool, "ok": false, "message": why}));
        }
    };
    let ok = status == 200;
    let task_id = body["task_id"].as_str().or_else(|| body["error"]["task_id"].as_str());
    let said = if ok { "answered".to_owned() } else { format!("{status} {}", body["error"]["message"]) };
    let word = if ok { "ok   " } else { "WRONG" };
    printer.line(&format!("{word} {capability} ({pool}): {said}, task {}", task_id.unwrap_or("-")));
    let attempts = match task_id {
        Some(id) => store.attempts(id).await?,
        None => Vec::new(),
    };
    let chain: Vec<Value> = attempts
        .iter()
        .map(|attempt| {
            let class = attempt.error_class.as_ref().map(|class| format!(" ({class})")).unwrap_or_default();
            printer.line(&format!(
                "        {} {} {} at {} with {}: {} in {} ms{class}",
                attempt.seq,
                attempt.kind,
                attempt.model,
                attempt.provider,
                attempt.account.as_deref().unwrap_or("no account"),
                attempt.status,
                attempt.duration_ms.unwrap_or_default(),
            ));
            json!({"seq": attempt.seq, "kind": attempt.kind, "model": attempt.model, "provider": attempt.provider,
                   "account": attempt.account, "status": attempt.status, "error_class": attempt.error_class,
                   "duration_ms": attempt.duration_ms})
        })
        .collect();
    Ok(
        json!({"capability": capability.as_str(), "pool": pool, "ok": ok, "status": status, "task_id": task_id,
              "error": body["error"], "attempts": chain}),
    )
}
