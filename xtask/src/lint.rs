//! Formatting and clippy. The two halves of the console are never built together: a feature of one
//! would leak into the other.

use crate::run::{Done, cargo, run, step};
use crate::tools;

/// Everything that has a lint.
pub(crate) fn all() -> Done {
    step("Formatting", formatting)?;
    step("Clippy, server", clippy_server)?;
    step("Clippy, console", clippy_console)
}

pub(crate) fn formatting() -> Done {
    run(&mut cargo(&["fmt", "--all", "--check"]))
}

pub(crate) fn clippy_server() -> Done {
    let packages = ["forebay", "forebay-engine", "forebay-wire", "xtask"];
    let packages = packages.into_iter().flat_map(|package| ["-p", package]);
    let mut arguments = vec!["clippy"];
    arguments.extend(packages);
    arguments.extend(["--all-targets", "--", "-D", "warnings"]);
    run(&mut cargo(&arguments))?;
    run(&mut cargo(&[
        "clippy",
        "-p",
        "forebay-app",
        "--features",
        "ssr",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))
}

pub(crate) fn clippy_console() -> Done {
    tools::wasm_target()?;
    let target = "wasm32-unknown-unknown";
    run(&mut cargo(&["clippy", "-p", "forebay-client", "--target", target, "--", "-D", "warnings"]))?;
    run(&mut cargo(&[
        "clippy",
        "-p",
        "forebay-app",
        "--features",
        "hydrate",
        "--target",
        target,
        "--",
        "-D",
        "warnings",
    ]))
}
