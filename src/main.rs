//! The command line of Forebay: composes the parts and runs them.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use forebay::config::{Settings, Sources};
use forebay::simulator::Simulator;
use forebay::{Outside, Server, cli, demo, telemetry, url_guard};
use tokio::signal::unix::{SignalKind, signal};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A model-pool gateway with an operators' console
#[derive(Parser)]
#[command(name = "forebay", version)]
struct Cli {
    #[command(flatten)]
    settings: Sources,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve callers and operators
    Serve,
    /// Serve with a simulated upstream and seeded pools, to look around
    Demo(demo::Options),
    /// Run only the simulated upstream
    Simulate {
        /// Where it listens
        #[arg(long, default_value = "127.0.0.1:9100", value_name = "HOST:PORT")]
        addr: String,
    },
    #[command(flatten)]
    OnDatabase(cli::Command),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let keep_data = cli.settings.data_dir.is_some() || cli.settings.database_url.is_some();
    let settings = match Settings::read(cli.settings) {
        Ok(settings) => settings,
        Err(error) => return fail(&error),
    };
    telemetry::start_logging(settings.log_json);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    runtime.block_on(async {
        match cli.command {
            Command::Serve => serve(&settings).await,
            Command::Demo(options) => match demo::run(settings, keep_data, options, stopped()).await {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => fail(&error),
            },
            Command::Simulate { addr } => simulate(&addr).await,
            Command::OnDatabase(command) => cli::run(command, &on_database(settings)).await,
        }
    })
}

fn on_database(settings: Settings) -> cli::Settings {
    cli::Settings {
        database_url: settings.database_url,
        sqlite_sync_full: settings.sqlite_sync_full,
        master_keys: settings.master_keys,
        addr: settings.addr,
        guard: Some(url_guard()),
    }
}

async fn serve(settings: &Settings) -> ExitCode {
    let server = match Server::build(settings, Outside::default()).await {
        Ok(server) => server,
        Err(error) => return fail(&error),
    };
    tracing::info!(addr = %server.addr(), console = %format!("{}/admin", server.public_url()), "serving");
    if matches!(server.store().operator_count().await, Ok(0)) {
        tracing::warn!("no operator can log in yet; make one with: forebay admin create NAME");
    }
    tokio::select! {
        () = server.serve(stopped()) => ExitCode::SUCCESS,
        // Asked twice, it stops at once; what is in flight is settled at the next start.
        () = stopped_twice() => fail(&"stopped before what was in flight had ended"),
    }
}

async fn stopped_twice() {
    stopped().await;
    stopped().await;
}

async fn simulate(addr: &str) -> ExitCode {
    let Ok(addr) = addr.parse::<SocketAddr>() else {
        return fail(&format!("--addr must be like 127.0.0.1:9100, not {addr}"));
    };
    match Simulator::start(addr).await {
        Ok(simulator) => {
            println!("simulating at {}", simulator.base_url());
            tokio::select! {
                () = simulator.join() => {}
                () = stopped() => {}
            }
            ExitCode::SUCCESS
        }
        Err(error) => fail(&format!("can't listen on {addr}: {error}")),
    }
}

/// Resolves at SIGINT or SIGTERM.
async fn stopped() {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("forebay: {error}");
    ExitCode::FAILURE
}
