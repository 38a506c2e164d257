//! What the README's commands call: `cargo xtask build`, `serve`, `demo`, `lint`, `test`, `soak`, `bench`.

mod bench;
mod build;
mod lint;
mod run;
mod soak;
mod suite;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use build::Profile;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Builds, runs and tests Forebay")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build the server and the console's bundle (target/site)
    Build {
        /// Optimised, with a small precompressed bundle
        #[arg(long)]
        release: bool,
        /// The console's bundle alone
        #[arg(long)]
        console: bool,
    },
    /// Build (debug), then run `forebay serve` with what follows
    Serve {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Build (debug), then run `forebay demo` with what follows
    Demo {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Formatting, and clippy with warnings denied, for both halves
    Lint,
    /// Everything: lints, unit and integration tests, loom, SDK and browser tests
    Test,
    /// Long runs: every fuzz target for its time
    Soak {
        /// Seconds a target
        #[arg(long, default_value_t = 60)]
        seconds: u32,
    },
    /// Forebay beside the direct line and nginx: requests a second and latency
    Bench {
        /// Seconds a cell of the table
        #[arg(long, default_value_t = 5)]
        seconds: u32,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Build { release, console: true } => build::site(Profile::of(release)),
        Task::Build { release, console: false } => build::all(Profile::of(release)),
        Task::Serve { rest } => build_and_run("serve", &rest),
        Task::Demo { rest } => build_and_run("demo", &rest),
        Task::Lint => lint::all(),
        Task::Test => suite::all(),
        Task::Soak { seconds } => soak::all(seconds),
        Task::Bench { seconds } => bench::all(seconds),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn build_and_run(command: &str, rest: &[String]) -> run::Done {
    build::all(Profile::Debug)?;
    let server = run::root().join("target/debug/forebay");
    run::become_command(std::process::Command::new(server).arg(command).args(rest))
}
