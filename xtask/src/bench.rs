//! Forebay beside the direct line and nginx, in one run: requests a second and latency.
//!
//! Upstream: nginx, which answers a fixed chat completion. Load: wrk. Forebay: the release build on a
//! new SQLite file, every request authenticated, its task, hold, attempt and settlement committed
//! before the answer ends.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::build::{self, Profile};
use crate::run::{Done, cargo, command, output, root, run, step};
use crate::tools::{self, Tool};

const NGINX: Tool = Tool { program: "/usr/sbin/nginx", package: "nginx-light" };
const WRK: Tool = Tool { program: "wrk", package: "wrk" };
const UPSTREAM: &str = "127.0.0.1:19300";
const PROXY: &str = "127.0.0.1:19301";
const FOREBAY: &str = "127.0.0.1:19302";
const CONNECTIONS: [u32; 4] = [1, 16, 64, 256];
const ANSWER: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"Hello! How can I help you today?"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}}"#;
const REQUEST: &str = r#"{"model":"bench","messages":[{"role":"user","content":"Hello!"}],"max_tokens":64}"#;

/// Measures and prints the table; `seconds` a cell.
pub(crate) fn all(seconds: u32) -> Done {
    step("Tools", || {
        tools::need(&NGINX)?;
        tools::need(&WRK)
    })?;
    step("Build, release", || build::all(Profile::Release))?;
    step("pick()", || run(&mut cargo(&["bench", "-p", "forebay-engine", "--bench", "pick"])))?;
    step("Requests", || requests(seconds))
}

fn requests(seconds: u32) -> Done {
    let folder = root().join("target/bench");
    // What an earlier run left is in the way, if it is there at all.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let _nginx = nginx(&folder)?;
    let (_forebay, token) = forebay(&folder)?;
    for address in [UPSTREAM, PROXY, FOREBAY] {
        until_open(address)?;
    }
    println!("\n| through | p50 at 1 | requests/s at 16 | at 64 | at 256 | p99 at 64 | ÷ direct at 64 |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let mut direct = None;
    for (name, address) in
        [("straight to the upstream", UPSTREAM), ("nginx as a reverse proxy", PROXY), ("Forebay", FOREBAY)]
    {
        let script = folder.join("post.lua");
        fs::write(&script, lua(&token))?;
        // Warm: connections, caches, the allocator.
        wrk(address, 16, 1, &script)?;
        let runs = CONNECTIONS.map(|connections| wrk(address, connections, seconds, &script));
        let [one, sixteen, sixty_four, many] = runs;
        let (one, sixteen, sixty_four, many) = (one?, sixteen?, sixty_four?, many?);
        let base = *direct.get_or_insert(sixty_four.rate);
        println!(
            "| {name} | {} | {:.0} | {:.0} | {:.0} | {} | {:.3} |",
            one.p50,
            sixteen.rate,
            sixty_four.rate,
            many.rate,
            sixty_four.p99,
            sixty_four.rate / base
        );
        for run in [one, sixteen, sixty_four, many] {
            if run.failed {
                println!("  (some answers were no 2xx: {})", run.raw.trim());
            }
        }
    }
    Ok(())
}

struct Measured {
    rate: f64,
    p50: String,
    p99: String,
    failed: bool,
    raw: String,
}

fn wrk(address: &str, connections: u32, seconds: u32, script: &Path) -> Done<Measured> {
    let threads = connections.min(2).to_string();
    let (connections, seconds) = (connections.to_string(), format!("{seconds}s"));
    let url = format!("http://{address}/v1/chat/completions");
    let mut wrk = command("wrk", &["-t", &threads, "-c", &connections, "-d", &seconds, "--latency", "-s"]);
    let raw = output(wrk.arg(script).arg(url))?;
    let word = |start: &str| {
        let line = raw.lines().find(|line| line.trim_start().starts_with(start));
        line.and_then(|line| line.split_whitespace().nth(1)).unwrap_or("?").to_owned()
    };
    let rate = word("Requests/sec:").parse().map_err(|_| format!("wrk said no rate:\n{raw}"))?;
    let failed = raw.contains("Non-2xx");
    Ok(Measured {
        rate,
        p50: word("50%"),
        p99: word("99%"),
        failed,
        raw: if failed { raw } else { String::new() },
    })
}

fn lua(token: &str) -> String {
    format!(
        "wrk.method = 'POST'\nwrk.body = '{REQUEST}'\nwrk.headers['Content-Type'] = 'application/json'\n\
         wrk.headers['Authorization'] = 'Bearer {token}'\n"
    )
}

/// A child that ends with us.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Gone already is as good as stopped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn nginx(folder: &Path) -> Done<Running> {
    let config = folder.join("nginx.conf");
    let text = format!(
        "daemon off; worker_processes 1; pid {pid}; error_log stderr error;\n\
         events {{ worker_connections 4096; }}\n\
         http {{ access_log off; keepalive_requests 100000000; client_body_temp_path {tmp}; proxy_temp_path {tmp};\n\
           fastcgi_temp_path {tmp}; uwsgi_temp_path {tmp}; scgi_temp_path {tmp};\n\
           upstream direct {{ server {UPSTREAM}; keepalive 256; }}\n\
           server {{ listen {UPSTREAM}; location / {{ default_type application/json; return 200 '{ANSWER}'; }} }}\n\
           server {{ listen {PROXY}; location / {{ proxy_pass http://direct; proxy_http_version 1.1;\n\
             proxy_set_header Connection ''; }} }} }}\n",
        pid = folder.join("nginx.pid").display(),
        tmp = folder.join("tmp").display(),
    );
    fs::File::create(&config)?.write_all(text.as_bytes())?;
    Ok(Running(Command::new(NGINX.program).arg("-c").arg(config).stderr(Stdio::null()).spawn()?))
}

/// Forebay's release build on a new database, with one pool of three members on the upstream.
fn forebay(folder: &Path) -> Done<(Running, String)> {
    let binary = root().join("target/release/forebay");
    let with = |arguments: &[&str]| {
        let mut forebay = Command::new(&binary);
        forebay.args(arguments).env("FOREBAY_DATA_DIR", folder.join("data")).env("FOREBAY_ADDR", FOREBAY);
        forebay.env("RUST_LOG", "warn");
        forebay
    };
    let file: PathBuf = folder.join("bench.json");
    fs::write(&file, configuration())?;
    output(with(&["import"]).arg(&file))?;
    let told = output(&mut with(&[
        "caller",
        "create",
        "bench",
        "--credits",
        "100000",
        "--concurrent-tasks",
        "100000",
    ]))?;
    let token = told.lines().last().unwrap_or_default().trim().to_owned();
    Ok((Running(with(&["serve"]).spawn()?), token))
}

fn configuration() -> String {
    let model = |name: &str| {
        format!(
            r#"{{"name": "{name}", "provider": "nginx", "upstream_model": "bench", "capability": "text", "pool": "bench",
               "max_concurrency": 100000, "prices": {{"input_per_1m": "0.10", "output_per_1m": "0.30"}},
               "accounts": [{{"label": "bench", "priority": 0}}]}}"#
        )
    };
    format!(
        r#"{{"providers": [{{"key": "nginx", "name": "nginx", "protocol": "openai", "base_url": "http://{UPSTREAM}/v1",
                            "tier": "other", "allow_private_network": true}}],
            "accounts": [{{"label": "bench", "provider": "nginx", "account_key": "k", "max_rps": 1000000}}],
            "pools": [{{"group_key": "bench", "name": "Bench", "capability": "text",
                       "price": {{"input_per_1m": "0.50", "output_per_1m": "1.50"}}}}],
            "models": [{}, {}, {}]}}"#,
        model("bench-a"),
        model("bench-b"),
        model("bench-c")
    )
}

fn until_open(address: &str) -> Done {
    let began = Instant::now();
    while TcpStream::connect(address).is_err() {
        if began.elapsed() > Duration::from_secs(20) {
            return Err(format!("nothing listens on {address}").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
