//! Long runs: every fuzz target for its time.

use crate::run::{Done, cargo, run, step};

/// The fuzz targets of `wire`.
const TARGETS: [&str; 4] = ["sse", "classify", "import_file", "responses"];

/// Each target for so many seconds, optimised.
pub(crate) fn all(seconds: u32) -> Done {
    for target in TARGETS {
        step(&format!("Fuzz {target}"), || fuzz(&["--release"], target, seconds))?;
    }
    Ok(())
}

/// Each target for a few seconds, as it is built for the tests.
pub(crate) fn briefly() -> Done {
    TARGETS.into_iter().try_for_each(|target| fuzz(&[], target, 3))
}

fn fuzz(profile: &[&str], target: &str, seconds: u32) -> Done {
    let mut command = cargo(&["run", "--quiet", "-p", "forebay-wire", "--features", "fuzzing"]);
    command.args(profile).args(["--example", "soak_fuzz", "--", target]).arg(seconds.to_string());
    run(&mut command)
}
