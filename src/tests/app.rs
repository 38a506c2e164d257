//! A whole server on real sockets, with a simulated upstream, for one test.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay::config::{Settings, Sources};
use forebay::demo::{self, Seeded};
use forebay::simulator::Simulator;
use forebay::simulator::behaviour::Behaviour;
use forebay::store::Store;
use forebay::{Outside, Server};
use forebay_engine::clock::TokioClock;
use forebay_engine::random::SeededRandom;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// What a model of the test's pool is called, upstream and here, from the first tier down.
pub(crate) const MODELS: [&str; 3] = ["a", "b", "c"];

/// How a [`TestApp`] differs from the plain one.
#[derive(Clone, Default)]
pub(crate) struct Plan {
    /// Fields over the pool's.
    pub(crate) pool: Value,
    /// Fields over each model's, by name.
    pub(crate) models: Value,
    /// Fields over each account's.
    pub(crate) account: Value,
    /// Global settings.
    pub(crate) settings: Value,
    /// How many of [`MODELS`] there are; 0 = all.
    pub(crate) size: usize,
    /// All in one tier, with these weights.
    pub(crate) weights: Option<[u32; 3]>,
    /// What the pool generates; empty = text.
    pub(crate) capability: &'static str,
    /// Fields over the provider's.
    pub(crate) provider: Value,
    /// A database other than a new SQLite file.
    pub(crate) database_url: Option<String>,
}

/// A server, its upstream and a caller.
pub(crate) struct TestApp {
    pub(crate) addr: SocketAddr,
    pub(crate) sim: Simulator,
    pub(crate) clock: Arc<TokioClock>,
    pub(crate) store: Store,
    pub(crate) catalog: Arc<forebay::catalog::Catalog>,
    pub(crate) ledger: forebay::ledger::Ledger,
    pub(crate) seeded: Seeded,
    pub(crate) client: reqwest::Client,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) serving: Option<JoinHandle<()>>,
    folder: TempDir,
}

impl TestApp {
    pub(crate) async fn start() -> Self {
        Self::with(Plan::default()).await
    }

    pub(crate) async fn with(plan: Plan) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let sim = Simulator::start((Ipv4Addr::LOCALHOST, 0).into()).await.expect("a simulator");
        let clock = Arc::new(TokioClock::new());
        let outside = Outside { clock: clock.clone(), random: Arc::new(SeededRandom::new(7)) };
        let settings = settings(folder.path(), plan.database_url.clone());
        let server = Server::build(&settings, outside).await.expect("a server");
        let seeded = demo::seed(&server, &file(&sim, &plan)).await.expect("a configuration");
        let (stop, stopped) = oneshot::channel::<()>();
        let app = Self {
            addr: server.addr(),
            sim,
            clock,
            store: server.store().clone(),
            catalog: server.catalog().clone(),
            ledger: server.ledger().clone(),
            seeded,
            client: reqwest::Client::builder().no_proxy().build().expect("a client"),
            stop: Some(stop),
            serving: Some(tokio::spawn(server.serve(async {
                let _ = stopped.await;
            }))),
            folder,
        };
        tokio::task::yield_now().await;
        app
    }

    /// Asks the server to stop, as SIGTERM does.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    pub(crate) fn set(&self, model: &str, behaviour: &str) {
        self.sim.set(model, behaviour.parse::<Behaviour>().expect("a behaviour"));
    }

    /// Upstream requests so far, by model.
    pub(crate) fn asked(&self) -> [u64; 3] {
        MODELS.map(|model| self.sim.visits(model).requests)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    pub(crate) fn post(&self, path: &str) -> reqwest::RequestBuilder {
        self.client
            .post(self.url(path))
            .bearer_auth(&self.seeded.token)
            .header("content-type", "application/json")
    }

    pub(crate) fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.get(self.url(path)).bearer_auth(&self.seeded.token)
    }

    /// POST /api/generate with a small chat.
    pub(crate) fn generation(&self) -> reqwest::RequestBuilder {
        self.post("/api/generate").body(chat(&json!({})).to_string())
    }

    /// POST /v1/chat/completions with a small chat and these fields.
    pub(crate) fn completion(&self, fields: Value) -> reqwest::RequestBuilder {
        let mut body = json!({"model": "main_text", "messages": [{"role": "user", "content": "hi"}]});
        merge(&mut body, fields);
        self.post("/v1/chat/completions").body(body.to_string())
    }

    pub(crate) async fn generate(&self) -> Answer {
        Answer::of(self.generation()).await
    }

    /// The caller's newest task with its attempts, once it has ended.
    pub(crate) async fn last_task(&self) -> (forebay::ledger::TaskRow, Vec<forebay::ledger::AttemptRow>) {
        self.ledger.flush().await;
        let filter = forebay::ledger::TaskFilter::default();
        let page = self.ledger.list(&filter, None, 1).await.expect("the store works");
        let id = &page.tasks.first().expect("there is a task").id;
        let task = self.ledger.task(id, None).await.expect("the store works").expect("the task is there");
        let attempts = self.ledger.attempts(id).await.expect("the store works");
        (task, attempts)
    }

    /// Σ ledger = balance, and nothing is held.
    pub(crate) async fn money_adds_up(&self) {
        self.ledger.flush().await;
        let differences = self.store.credit_differences().await.expect("the store works");
        assert!(differences.is_empty(), "{differences:?}");
        let filter = forebay::ledger::TaskFilter::default();
        let page = self.ledger.list(&filter, None, 100).await.expect("the store works");
        let held: Vec<_> = page.tasks.iter().filter(|task| task.hold_state == "held").collect();
        assert!(held.is_empty(), "{held:?}");
    }

    /// Every permit of every model and account is free again.
    pub(crate) fn permits_are_free(&self) -> bool {
        let snapshot = self.catalog.snapshot();
        snapshot.pools.values().all(|pool| {
            pool.members().all(|member| {
                member.state.in_flight.taken() == 0
                    && member.accounts.iter().all(|binding| binding.account.state.in_flight.taken() == 0)
            })
        })
    }

    /// The server's data folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// An operator's API token, made as the command line makes it.
    pub(crate) async fn operator_token(&self, name: &str, role: &str) -> String {
        let run = async |arguments: &[&str]| {
            let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_forebay"))
                .args(arguments)
                .env_clear()
                .env("FOREBAY_DATA_DIR", self.folder.path())
                .env("RUST_LOG", "error")
                .output()
                .await
                .expect("it runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let told = String::from_utf8(output.stdout).expect("UTF-8");
            told.lines().last().expect("it says something").trim().to_owned()
        };
        run(&["admin", "create", name, "--role", role]).await;
        run(&["admin", "token", name]).await
    }

    pub(crate) fn breaker(&self, model: &str) -> forebay_engine::breaker::BreakerView {
        use forebay_engine::Clock;
        let snapshot = self.catalog.snapshot();
        let member =
            snapshot.pools.values().flat_map(|pool| pool.members()).find(|member| &*member.name == model);
        member.expect("a member of that name").state.breaker.view(self.clock.now())
    }
}

/// Waits until something that happens elsewhere has happened; fails after ten seconds.
pub(crate) async fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !happened() {
        assert!(began.elapsed() < Duration::from_secs(10), "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A whole answer, read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) async fn of(request: reqwest::RequestBuilder) -> Self {
        let response = request.send().await.expect("an answer");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.expect("a body");
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Self { status, headers, body }
    }

    /// The status, and the code of the error if it is one.
    pub(crate) fn outcome(&self) -> (u16, &str) {
        (self.status, self.body["error"]["code"].as_str().unwrap_or_default())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// A streamed answer: its events' data, and whether its connection ended as it should.
#[derive(Debug)]
pub(crate) struct Streamed {
    pub(crate) status: u16,
    pub(crate) raw: String,
    pub(crate) ended_well: bool,
}

impl Streamed {
    pub(crate) async fn of(request: reqwest::RequestBuilder) -> Self {
        let mut response = request.send().await.expect("an answer");
        let status = response.status().as_u16();
        let mut bytes = Vec::new();
        let ended_well = loop {
            match response.chunk().await {
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        Self { status, raw: String::from_utf8(bytes).expect("UTF-8"), ended_well }
    }

    pub(crate) fn data(&self) -> Vec<&str> {
        self.raw.lines().filter_map(|line| line.strip_prefix("data: ")).collect()
    }

    /// The chunks that are JSON.
    pub(crate) fn chunks(&self) -> Vec<Value> {
        self.data().into_iter().filter_map(|data| serde_json::from_str(data).ok()).collect()
    }

    /// All content deltas in a row.
    pub(crate) fn text(&self) -> String {
        self.chunks()
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
            .collect()
    }

    pub(crate) fn error_code(&self) -> Option<String> {
        self.chunks().iter().find_map(|chunk| Some(chunk["error"]["code"].as_str()?.to_owned()))
    }

    pub(crate) fn is_done(&self) -> bool {
        self.data().last() == Some(&"[DONE]")
    }
}

/// The body of a generation, with these fields over it.
pub(crate) fn chat(fields: &Value) -> Value {
    let mut body = json!({
        "model_group": "main_text",
        "input": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 64},
    });
    merge(&mut body, fields.clone());
    body
}

pub(crate) fn settings(folder: &Path, database_url: Option<String>) -> Settings {
    let sources = Sources {
        addr: Some("127.0.0.1:0".into()),
        data_dir: Some(folder.into()),
        master_keys: database_url
            .as_ref()
            .map(|_| "1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".to_owned()),
        database_url,
        ..Sources::default()
    };
    Settings::check(sources).expect("the settings are right")
}

fn file(sim: &Simulator, plan: &Plan) -> String {
    let capability = if plan.capability.is_empty() { "text" } else { plan.capability };
    let key = format!("main_{capability}");
    let size = if plan.size == 0 { MODELS.len() } else { plan.size };
    let names = &MODELS[..size];
    let accounts: Vec<Value> = names
        .iter()
        .map(|name| {
            let mut account = json!({"label": format!("acc-{name}"), "provider": "sim",
                "account_key": format!("sk-canary-{name}"), "max_rps": 100_000});
            merge(&mut account, plan.account.clone());
            account
        })
        .collect();
    let models: Vec<Value> = names
        .iter()
        .enumerate()
        .map(|(place, name)| {
            let weight = plan.weights.map_or(1, |weights| weights[place]);
            let priority = if plan.weights.is_some() { 0 } else { place };
            let mut model = json!({"name": name, "provider": "sim", "upstream_model": name, "capability": capability,
                "pool": key, "weight": weight, "priority": priority, "max_concurrency": 1000,
                "prices": {"input_per_1m": "0.10", "output_per_1m": "0.30"},
                "accounts": [{"label": format!("acc-{name}"), "priority": 0}]});
            merge(&mut model, plan.models[name].clone());
            model
        })
        .collect();
    let mut pool = json!({"group_key": key, "name": "Main", "capability": capability,
        "price": {"input_per_1m": "0.50", "output_per_1m": "1.50"}});
    merge(&mut pool, plan.pool.clone());
    let mut provider = json!({"key": "sim", "name": "Simulator", "protocol": "openai", "base_url": sim.base_url(),
                              "tier": "other", "allow_private_network": true});
    merge(&mut provider, plan.provider.clone());
    let mut file = json!({
        "providers": [provider],
        "accounts": accounts, "pools": [pool], "models": models,
    });
    if !plan.settings.is_null() {
        file["settings"] = plan.settings.clone();
    }
    file.to_string()
}

fn merge(into: &mut Value, over: Value) {
    let (Some(into), Value::Object(over)) = (into.as_object_mut(), over) else { return };
    into.extend(over);
}
