//! kill −9 under load: no task lost, none sent twice, every hold settled or released exactly once.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use forebay::ledger::TaskFilter;
use forebay::simulator::Simulator;
use forebay::simulator::behaviour::Behaviour;
use forebay::store::Store;
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// How often the server is killed.
const KILLS: usize = 10;
/// Callers at once.
const CALLERS: usize = 16;

#[tokio::test(flavor = "multi_thread")]
async fn m7_kill_nine_under_load_ten_times() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let sim = Simulator::start((Ipv4Addr::LOCALHOST, 0).into()).await.expect("a simulator");
    sim.set("slow", Behaviour::Slow(Duration::from_millis(5)));
    let addr = free_address();
    let token = set_up(folder.path(), &sim);

    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let answers: Arc<Mutex<HashMap<String, Value>>> = Arc::default();
    let callers: Vec<_> = (0..CALLERS)
        .map(|n| tokio::spawn(call_for_ever(n, addr, token.clone(), stop.clone(), answers.clone())))
        .collect();
    for round in 0..KILLS {
        let mut server = serve(folder.path(), addr);
        let seen = answers.lock().await.len();
        wait_for_answers(&answers, seen + 50 + 20 * round).await;
        // SIGKILL: no handler runs, nothing is flushed.
        server.kill().expect("it was running");
        server.wait().expect("it is gone");
    }
    let mut server = serve(folder.path(), addr);
    let seen = answers.lock().await.len();
    wait_for_answers(&answers, seen + 20).await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for caller in callers {
        caller.await.expect("a caller ends");
    }
    Command::new("kill").arg("-TERM").arg(server.id().to_string()).status().expect("it is told to stop");
    assert!(server.wait().expect("it stops").success());

    let store = Store::open(&database(folder.path()), false).await.expect("the database opens");
    assert_eq!(store.credit_differences().await.expect("the store works"), [], "Σ ledger = balance");
    let users = sim.users();
    let repeated: Vec<_> = users.iter().filter(|(_, count)| **count > 1).collect();
    assert!(repeated.is_empty(), "sent twice: {repeated:?}");
    let answers = answers.lock().await;
    let (mut tasks, mut unknown, mut cursor) = (HashMap::new(), 0, None);
    loop {
        let page =
            store.tasks(&TaskFilter::default(), cursor.as_deref(), 500).await.expect("the store works");
        for task in page.tasks {
            assert!(["settled", "released"].contains(&task.hold_state.as_str()), "{task:?}");
            assert!(
                ["succeeded", "outcome_unknown", "cancelled"].contains(&task.status.as_str()),
                "{task:?}"
            );
            unknown += usize::from(task.status == "outcome_unknown");
            tasks.insert(task.id.clone(), task);
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    for answer in answers.values() {
        let id = answer["task_id"].as_str().expect("an id");
        let task = tasks.get(id).unwrap_or_else(|| panic!("task {id} was answered and is lost"));
        assert_eq!((task.status.as_str(), task.hold_state.as_str()), ("succeeded", "settled"), "{id}");
    }
    assert!(unknown > 0, "some calls were out when the server was killed");
    // Whatever reached the upstream has its row.
    assert!(users.len() <= tasks.len(), "{} reached the upstream, {} are recorded", users.len(), tasks.len());
}

async fn call_for_ever(
    caller: usize,
    addr: SocketAddr,
    token: String,
    stop: Arc<std::sync::atomic::AtomicBool>,
    answers: Arc<Mutex<HashMap<String, Value>>>,
) {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    for n in 0.. {
        if stop.load(std::sync::atomic::Ordering::Relaxed) {
            return;
        }
        let user = format!("{caller}-{n}");
        let body = json!({"model_group": "main_text",
            "input": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 64, "user": user}});
        let sent = client
            .post(format!("http://{addr}/api/generate"))
            .bearer_auth(&token)
            .header("content-type", "application/json")
            .body(body.to_string())
            .send()
            .await;
        match sent {
            Ok(response) if response.status() == 200 => {
                if let Ok(text) = response.text().await
                    && let Ok(answer) = serde_json::from_str(&text)
                {
                    answers.lock().await.insert(user, answer);
                }
            }
            // Refused or reset: the server is being killed.
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

async fn wait_for_answers(answers: &Mutex<HashMap<String, Value>>, wanted: usize) {
    let began = std::time::Instant::now();
    while answers.lock().await.len() < wanted {
        assert!(began.elapsed() < Duration::from_secs(60), "the server does not answer");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn database(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("forebay.db").display())
}

fn forebay(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(arguments).env_clear().env("FOREBAY_DATA_DIR", folder).env("RUST_LOG", "error");
    command
}

/// Configures by the command line, as an operator would; the caller's token.
fn set_up(folder: &Path, sim: &Simulator) -> String {
    let file = json!({
        "providers": [{"key": "sim", "name": "Simulator", "protocol": "openai", "base_url": sim.base_url(),
                       "tier": "other", "allow_private_network": true}],
        "accounts": [{"label": "a", "provider": "sim", "account_key": "k", "max_rps": 100_000}],
        "pools": [{"group_key": "main_text", "name": "Main text", "capability": "text",
                   "price": {"input_per_1m": "0.50", "output_per_1m": "1.50"}}],
        "models": [{"name": "slow", "provider": "sim", "upstream_model": "slow", "capability": "text",
                    "pool": "main_text", "max_concurrency": 1000, "accounts": [{"label": "a", "priority": 0}]}],
    });
    let path = folder.join("import.json");
    std::fs::write(&path, file.to_string()).expect("the file is written");
    let import = forebay(folder, &["import"]).arg(&path).output().expect("it runs");
    assert!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));
    let create =
        forebay(folder, &["caller", "create", "team", "--credits", "1000", "--concurrent-tasks", "1000"]);
    let create = { create }.output().expect("it runs");
    assert!(create.status.success(), "{}", String::from_utf8_lossy(&create.stderr));
    let told = String::from_utf8(create.stdout).expect("UTF-8");
    told.lines().last().expect("the token is the last line").trim().to_owned()
}

fn serve(folder: &Path, addr: SocketAddr) -> Child {
    forebay(folder, &["serve"])
        .env("FOREBAY_ADDR", addr.to_string())
        .stdout(Stdio::null())
        .spawn()
        .expect("the server starts")
}

/// A port that was free a moment ago.
fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a free port")
}

#[tokio::test]
async fn a_second_server_on_the_same_folder_does_not_start_and_harms_nothing() {
    let app = crate::app::TestApp::start().await;
    app.set("a", "slow-500");
    let under_way = tokio::spawn(crate::app::Answer::of(app.generation()));
    app.sim.until("a", |visits| visits.open == 1).await;
    let second = forebay(app.folder(), &["serve", "--addr", "127.0.0.1:0"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("another Forebay uses the data folder"), "{said}");
    assert_eq!(under_way.await.expect("no panic").status, 200);
    assert_eq!(app.last_task().await.0.hold_state, "settled");
}
