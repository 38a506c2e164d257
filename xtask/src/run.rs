//! Running other programs, with each step named and timed.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What a step comes to; the error says what to do.
pub(crate) type Done<T = ()> = Result<T, Box<dyn Error>>;

/// The repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_owned()
}

/// A command that runs in the repository.
pub(crate) fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// The cargo that runs us. What it set for us alone must not reach what it builds next: a different
/// environment would rebuild every crate that reads it.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut cargo = command(&program, arguments);
    for (name, _) in std::env::vars_os() {
        let own = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") || name == "CARGO_BIN_NAME"
        });
        if own {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Runs a command to its end; anything but success is an error.
pub(crate) fn run(command: &mut Command) -> Done {
    let name = show(command);
    let status = command.status().map_err(|error| format!("`{name}` could not be started: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{name}` ended with {status}").into()) }
}

/// Whether a command succeeds; its output is nobody's business.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// What a command writes, if it succeeds.
pub(crate) fn output(command: &mut Command) -> Done<String> {
    let name = show(command);
    let output = command.output().map_err(|error| format!("`{name}` could not be started: {error}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("`{name}` ended with {}: {why}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Goes on as the command, so that signals reach it.
pub(crate) fn become_command(command: &mut Command) -> Done {
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt;
        let name = show(command);
        Err(format!("`{name}` could not be started: {}", command.exec()).into())
    }
    #[cfg(not(unix))]
    run(command)
}

/// Names a step, does it, and says how long it took.
pub(crate) fn step<T>(name: &str, work: impl FnOnce() -> Done<T>) -> Done<T> {
    eprintln!("\n==> {name}");
    let start = Instant::now();
    let result = work();
    let end = if result.is_ok() { "done" } else { "FAILED" };
    eprintln!("    {name}: {end} in {}", seconds(start.elapsed()));
    result
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
